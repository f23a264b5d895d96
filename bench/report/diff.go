package report

import (
	"errors"
	"fmt"
	"io"
	"math"

	"golang.org/x/perf/benchmath"
)

// Change is one figure of two sets.
type Change struct {
	Figure   string // program, metric and what tells it from others
	Unit     string
	Old, New float64 // medians
	Percent  float64 // of Old; positive is better
	// Significant says that the samples of the two sets differ by a rank test at
	// 0.05. With fewer than four samples each it never is: Enough tells.
	Significant, Enough bool
	Wrong               bool    // New comes of wrong data
	Far                 [2]bool // Old, New: with the PEs far from each other, some of it at least
	P                   float64
	Samples             [2]int
}

// Comparison is two sets side by side.
type Comparison struct {
	Changes          []Change
	OnlyOld, OnlyNew []string // figures that the other set lacks
}

// Compare pairs the figures of two sets.
func Compare(before, after Set) Comparison {
	var c Comparison
	old := map[key]figure{}
	for _, f := range figures(before) {
		old[f.key] = f
	}
	for _, f := range figures(after) {
		o, ok := old[f.key]
		if !ok {
			c.OnlyNew = append(c.OnlyNew, f.label())
			continue
		}
		delete(old, f.key)
		c.Changes = append(c.Changes, change(o, f))
	}
	for _, f := range figures(before) {
		if _, left := old[f.key]; left {
			c.OnlyOld = append(c.OnlyOld, f.label())
		}
	}
	return c
}

// change tests with Mann and Whitney's rank test, as benchstat does.
func change(o, n figure) Change {
	d := Change{Figure: n.label(), Unit: n.unit, Old: o.p50, New: n.p50, Wrong: n.wrong, Far: [2]bool{o.far, n.far}, Samples: [2]int{len(o.samples), len(n.samples)}}
	switch {
	case o.p50 == n.p50:
	case o.p50 == 0:
		d.Percent = math.Inf(1)
	default:
		d.Percent = (n.p50 - o.p50) / o.p50 * 100
	}
	if lowerIsBetter(n.unit) {
		d.Percent = 0 - d.Percent
	}
	t := benchmath.DefaultThresholds
	r := benchmath.AssumeNothing.Compare(benchmath.NewSample(o.samples, &t), benchmath.NewSample(n.samples, &t))
	d.Enough = len(o.samples) >= 4 && len(n.samples) >= 4
	d.P, d.Significant = r.P, d.Enough && r.P < r.Alpha
	return d
}

// Regressions are the changes for the worse by more than percent that are
// significant, and wrong data. Where there are too few samples to tell, the medians
// alone count.
func (c Comparison) Regressions(percent float64) []Change {
	var bad []Change
	for _, d := range c.Changes {
		if d.Wrong || d.Percent < -percent && (d.Significant || !d.Enough) {
			bad = append(bad, d)
		}
	}
	return bad
}

// Write prints a table.
func (c Comparison) Write(w io.Writer) error {
	const row = "%-56s %12s %12s %-7s %9s  %s\n"
	p := &printer{w: w}
	p.f(row, "figure", "old", "new", "unit", "better by", "")
	for _, d := range c.Changes {
		p.f(row, d.Figure, number(d.Old), number(d.New), d.Unit, fmt.Sprintf("%+.1f%%", d.Percent), d.remark())
	}
	for _, s := range c.OnlyOld {
		p.f(row, s, "there", "-", "", "", "")
	}
	for _, s := range c.OnlyNew {
		p.f(row, s, "-", "there", "", "", "")
	}
	return p.err
}

func (d Change) remark() string {
	n := fmt.Sprintf("n=%d+%d", d.Samples[0], d.Samples[1])
	switch d.Far {
	case [2]bool{true, false}:
		n += ", old far"
	case [2]bool{false, true}:
		n += ", new far"
	}
	switch {
	case d.Wrong:
		return "WRONG DATA " + n
	case !d.Enough:
		return "too few samples to tell: " + n
	case d.Significant:
		return fmt.Sprintf("p=%.3f %s", d.P, n)
	}
	return fmt.Sprintf("~ (p=%.3f %s)", d.P, n)
}

// ErrRegression says that a figure got worse by more than was allowed.
var ErrRegression = errors.New("report: regression")

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
