package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"goshmem/internal/options"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// view is what the page shows of a chart.
type view struct {
	ID, Title, Unit, Better string
	SVG                     template.HTML
	Legend                  []entry
	Rows                    []row
}

// row is a line of the table under a chart.
type row struct {
	Way, Size, PEs       string
	P50, P99, Mean       string
	Floor, Ratio, Remark string
	Bad                  bool
}

func views(sets []Set) ([]view, error) {
	var out []view
	for _, c := range charts(sets) {
		v := view{ID: c.bench + "-" + c.metric + c.over, Title: c.bench + ": " + c.metric, Unit: c.unit, Better: "higher is better"}
		if c.over != "" {
			v.Title += " over " + c.over
		}
		if lowerIsBetter(c.unit) {
			v.Better = "lower is better"
		}
		if c.drawable() {
			svg, err := c.svg()
			if err != nil {
				return nil, fmt.Errorf("report: %s %s: %w", c.bench, c.metric, err)
			}
			v.Legend = c.legend()
			v.SVG = template.HTML(svg) // made by the plotter, which escapes what it writes
		}
		v.Rows = c.rows()
		out = append(out, v)
	}
	return out, nil
}

func (c *chart) rows() []row {
	var out []row
	for _, k := range c.curves {
		for _, f := range k.points {
			r := row{
				Way: k.name, Size: "-", PEs: fmt.Sprint(f.pes), P50: number(f.p50), P99: number(f.p99),
				Mean: number(f.mean), Floor: "-", Ratio: "-",
			}
			if f.size > 0 {
				r.Size = options.FormatBytes(f.size)
			}
			if f.floor > 0 {
				r.Floor, r.Ratio = number(f.floor), fmt.Sprintf("%.2f", f.p50/f.floor)
			}
			r.Bad = f.wrong || f.flipped
			r.Remark = strings.Join(f.remarks(), ", ")
			out = append(out, r)
		}
	}
	return out
}

func (f figure) remarks() []string {
	var s []string
	if f.wrong {
		s = append(s, "WRONG DATA")
	}
	if f.flipped {
		s = append(s, "flipped")
	} else if f.far {
		s = append(s, "far")
	}
	if n := len(f.samples); n > 1 {
		s = append(s, fmt.Sprintf("median of %d", n))
	}
	return s
}

// HTML writes one page that needs nothing beside itself.
func HTML(w io.Writer, sets []Set) error {
	v, err := views(sets)
	if err != nil {
		return err
	}
	return page.Execute(w, map[string]any{"Sets": sets, "Views": v})
}

// Markdown writes the tables.
func Markdown(w io.Writer, sets []Set) error {
	v, err := views(sets)
	if err != nil {
		return err
	}
	p := &printer{w: w}
	p.f("# goshmem bench\n\n")
	for _, s := range sets {
		for _, m := range s.Machines() {
			p.f("- %s: %s\n", cell(s.Name), cell(m))
		}
	}
	for _, c := range v {
		p.f("\n## %s (%s, %s)\n\n", cell(c.Title), cell(c.Unit), c.Better)
		p.f("| way | PEs | size | p50 | p99 | mean | floor | ratio | |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n")
		for _, r := range c.Rows {
			p.f("| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", cell(r.Way), r.PEs, r.Size, r.P50, r.P99, r.Mean, r.Floor, r.Ratio, r.Remark)
		}
	}
	return p.err
}

// cell keeps text from ending a cell or a line.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ", "<", "&lt;").Replace(s)
}
