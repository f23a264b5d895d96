package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"goshmem/internal/options"
)

// palette keeps apart for most kinds of colour blindness (Okabe and Ito).
var palette = []color.NRGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
	{0x56, 0xb4, 0xe9, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x00, 0x00, 0x00, 0xff},
	{0x8c, 0x56, 0x4b, 0xff}, {0x6a, 0x3d, 0x9a, 0xff}, {0x99, 0x99, 0x99, 0xff}, {0x17, 0xa2, 0xb8, 0xff},
}

// maxBands is the number of curves up to which bands do not hide each other.
const maxBands = 4

const (
	chartWidth  = 9 * vg.Inch
	chartHeight = 4.5 * vg.Inch
)

// A font that pages have, or have one of the same widths as.
func init() {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
}

// drawable reports whether the chart has a curve: two abscissas at least, all
// above zero, as log axes need.
func (c *chart) drawable() bool {
	for _, k := range c.curves {
		seen := map[float64]bool{}
		for _, f := range k.points {
			if c.x(f) > 0 && drawable(f.p50) {
				seen[c.x(f)] = true
			}
		}
		if len(seen) > 1 {
			return true
		}
	}
	return false
}

// drawable reports whether a figure has a place on a log axis that others share.
func drawable(v float64) bool { return v > 1e-12 && v < 1e18 }

// svg draws the chart: medians as lines with points, the band to the 99th
// percentile, floors dashed.
func (c *chart) svg() (string, error) {
	p := plot.New()
	p.X.Label.Text, p.X.Tick.Marker = "bytes", sizeTicks{}
	if c.byPEs {
		p.X.Label.Text, p.X.Tick.Marker = "PEs", peTicks{c}
	}
	p.Y.Label.Text = c.unit
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Tick.Marker = valueTicks{c.unit}
	p.Add(plotter.NewGrid())
	for i, k := range c.curves {
		if err := c.drawCurve(p, k, palette[i%len(palette)]); err != nil {
			return "", err
		}
	}
	span(&p.X)
	span(&p.Y)
	p.X.Max *= math.Pow(p.X.Max/p.X.Min, 0.03) // room for the last label
	canvas := vgsvg.NewWith(vgsvg.UseWH(chartWidth, chartHeight))
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	_, body, found := bytes.Cut(b.Bytes(), []byte("<svg"))
	if !found {
		return b.String(), nil
	}
	return "<svg" + string(body), nil // without the XML prologue: it stands in a page
}

// span keeps an axis whose values are all alike a range with something in it, which
// the plotter would make from 1 below.
func span(a *plot.Axis) {
	if a.Min == a.Max {
		a.Min, a.Max = a.Min/2, a.Max*2
	}
}

// entry is a curve's line of the legend, which stands above the drawing, where it
// hides nothing.
type entry struct{ Name, Color string }

func (c *chart) legend() []entry {
	var all []entry
	for i, k := range c.curves {
		col := palette[i%len(palette)]
		all = append(all, entry{k.name, fmt.Sprintf("#%02x%02x%02x", col.R, col.G, col.B)})
	}
	return all
}

func (c *chart) drawCurve(p *plot.Plot, k curve, col color.NRGBA) error {
	var mid, bad, floor plotter.XYs
	for _, f := range k.points {
		x := c.x(f)
		if x <= 0 || !drawable(f.p50) {
			continue
		}
		mid = append(mid, plotter.XY{X: x, Y: f.p50})
		end := f.p99
		if !drawable(end) {
			end = f.p50
		}
		bad = append(bad, plotter.XY{X: x, Y: end})
		if drawable(f.floor) {
			floor = append(floor, plotter.XY{X: x, Y: f.floor})
		}
	}
	if len(mid) == 0 {
		return nil
	}
	if len(mid) > 1 && len(c.curves) <= maxBands {
		if err := drawBand(p, mid, bad, col); err != nil {
			return err
		}
	}
	line, points, err := plotter.NewLinePoints(mid)
	if err != nil {
		return err
	}
	line.Color, line.Width, points.Color, points.Shape = col, vg.Points(1.5), col, draw.CircleGlyph{}
	p.Add(line, points)
	if len(floor) == 0 {
		return nil
	}
	low, err := plotter.NewLine(floor)
	if err != nil {
		return err
	}
	low.Color, low.Dashes = col, []vg.Length{vg.Points(4), vg.Points(3)}
	p.Add(low)
	return nil
}

func drawBand(p *plot.Plot, mid, bad plotter.XYs, col color.NRGBA) error {
	ring := append(plotter.XYs{}, mid...)
	for i := range bad {
		ring = append(ring, bad[len(bad)-1-i])
	}
	band, err := plotter.NewPolygon(ring)
	if err != nil {
		return err
	}
	col.A = 0x28
	band.Color, band.LineStyle.Width = col, 0
	p.Add(band)
	return nil
}

// sizeTicks marks powers of two of bytes.
type sizeTicks struct{}

func (sizeTicks) Ticks(low, high float64) []plot.Tick {
	first, last := int(math.Floor(math.Log2(low))), int(math.Ceil(math.Log2(high)))
	step := max(1, (last-first)/8)
	var t []plot.Tick
	for e := max(first, 0); e <= min(last, 62); e++ {
		m := plot.Tick{Value: math.Exp2(float64(e))}
		if (e-first)%step == 0 {
			m.Label = options.FormatBytes(int64(1) << e)
		}
		t = append(t, m)
	}
	return t
}

// valueTicks marks 1, 2 and 5 times powers of ten.
type valueTicks struct{ unit string }

func (v valueTicks) Ticks(low, high float64) []plot.Tick {
	wide := high/low > 1e4
	var t []plot.Tick
	for e := math.Floor(math.Log10(low)); e <= math.Log10(high); e++ {
		for _, m := range []float64{1, 2, 5} {
			at := m * math.Pow(10, e)
			tick := plot.Tick{Value: at}
			if m == 1 || !wide {
				tick.Label = v.label(at)
			}
			t = append(t, tick)
		}
	}
	return t
}

// label gives times a unit that keeps the number short.
func (v valueTicks) label(x float64) string {
	if v.unit == "ns" {
		for _, u := range []struct {
			per  float64
			name string
		}{{1e9, " s"}, {1e6, " ms"}, {1e3, " us"}} {
			if x >= 0.999*u.per {
				return strconv.FormatFloat(x/u.per, 'g', 4, 64) + u.name
			}
		}
		return strconv.FormatFloat(x, 'g', 4, 64) + " ns"
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}

// peTicks marks the numbers of PEs that were measured.
type peTicks struct{ c *chart }

func (p peTicks) Ticks(_, _ float64) []plot.Tick {
	var t []plot.Tick
	for _, k := range p.c.curves {
		for _, f := range k.points {
			t = append(t, plot.Tick{Value: p.c.x(f), Label: strconv.Itoa(f.pes)})
		}
	}
	return t
}
