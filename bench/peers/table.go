package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"goshmem/bench"
)

// figure is what is compared.
type figure struct {
	op, metric string
	pes        int
	size       int64
}

// table collects the medians of all rounds.
type table struct {
	group
	figures []figure
	units   map[figure]string
	p50     map[figure]map[string][]float64
	own     map[figure][]float64 // time over that of the floor in goshmem's own run
	failed  []string             // what did not run, and why
	silent  map[string]bool      // who has said why a figure is not there
}

func newTable(g group) *table {
	t := &table{group: g, units: map[figure]string{}, p50: map[figure]map[string][]float64{}, own: map[figure][]float64{}, silent: map[string]bool{}}
	for _, l := range g.suites {
		for _, size := range append(l.sizes, make([]int64, 1-min(len(l.sizes), 1))...) {
			for _, m := range l.metrics {
				if has(m, size) {
					t.figures = append(t.figures, figure{l.op, m, l.pes, size})
				}
			}
		}
	}
	return t
}

// has reports whether a size has a figure: small ones a rate, large ones a bandwidth.
func has(metric string, size int64) bool {
	const limit = 4 << 10
	return (metric != "rate" || size <= limit) && (metric != "bandwidth" || size >= limit)
}

// take runs a job and keeps its figures, those before a failure included.
func (t *table) take(s settings, l suite, name string, run func() ([]byte, error)) error {
	text, failure := run()
	results, err := decode(text)
	if failure == nil {
		failure = err
	}
	for _, r := range results {
		r.Impl = name
		if r.Path = l.path; r.Path == "" {
			r.Path = "host"
		}
		if s.lines != nil {
			r.Machine = bench.ThisMachine()
			if err := r.WriteJSON(s.lines); err != nil {
				return err
			}
		}
		if !r.Verified {
			return fmt.Errorf("%w: %+v", bench.ErrVerify, r)
		}
		t.add(name, r)
	}
	return failure
}

// add keeps what is compared; goshmem's programs print more.
func (t *table) add(name string, r bench.Result) {
	f := figure{r.Bench, r.Metric, r.PEs, r.Size}
	if !slices.Contains(t.figures, f) {
		return
	}
	if t.p50[f] == nil {
		t.p50[f] = map[string][]float64{}
	}
	t.units[f] = r.Unit
	t.p50[f][name] = append(t.p50[f][name], r.P50)
	if name == ours && r.Floor > 0 && r.P50 > 0 {
		t.own[f] = append(t.own[f], cost(r.Unit, r.P50, r.Floor))
	}
}

// cost is the time of one over that of another, by figures of times or of rates.
func cost(unit string, one, other float64) float64 {
	if unit == "ns" {
		return one / other
	}
	return other / one
}

// failure notes a reason, once, for all of a peer or for a suite.
func (t *table) failure(name string, l suite, err error) {
	what := name
	if l.op != "" {
		what = fmt.Sprintf("%s, %v", name, l)
	}
	if line := fmt.Sprintf("%s: %v", what, err); !slices.Contains(t.failed, line) {
		t.failed = append(t.failed, line)
	}
	t.silent[name+l.op] = true
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// print writes medians and ratios, what is missing, and what each side does.
func (t *table) print(w io.Writer) error {
	fmt.Fprintf(w, "\n%s. Ratios are of times: below 1 goshmem is faster.\n\n", t.title)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "figure\tPEs\tB\tunit\t%s\t", ours)
	for _, p := range t.peers {
		fmt.Fprintf(tw, "%s\t", p.name)
	}
	fmt.Fprint(tw, "of best peer\tof floor\tof own floor\t\n")
	for _, f := range t.figures {
		t.row(tw, f)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, line := range append(t.failed, t.gaps()...) {
		if _, err := fmt.Fprintln(w, "missing:", line); err != nil {
			return err
		}
	}
	for _, n := range t.notes {
		if _, err := fmt.Fprintf(w, "%s, %s: %s.\n", n.of, n.side, n.text); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) row(w io.Writer, f figure) {
	mine, floor, best := median(t.p50[f][ours]), 0.0, 0.0
	unit := t.units[f]
	fmt.Fprintf(w, "%s %s\t%d\t%d\t%s\t%s\t", f.op, f.metric, f.pes, f.size, unit, number(mine))
	for _, p := range t.peers {
		v := median(t.p50[f][p.name])
		fmt.Fprintf(w, "%s\t", number(v))
		switch {
		case v == 0:
		case p.name == floorName:
			floor = v
		case best == 0 || cost(unit, v, best) < 1:
			best = v
		}
	}
	for _, other := range []float64{best, floor} {
		if mine == 0 || other == 0 {
			fmt.Fprint(w, "-\t")
			continue
		}
		fmt.Fprintf(w, "%.2f\t", cost(unit, mine, other))
	}
	fmt.Fprintf(w, "%s\t\n", number(median(t.own[f])))
}

// number has three digits or more; nothing is a dash.
func number(x float64) string {
	switch {
	case x == 0:
		return "-"
	case x >= 1000:
		return fmt.Sprintf("%.0f", x)
	case x >= 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// gaps gives a reason for every dash that no failure explains.
func (t *table) gaps() []string {
	var all []string
	for _, f := range t.figures {
		for _, p := range t.peers {
			if len(t.p50[f][p.name]) > 0 || t.silent[p.name] || t.silent[p.name+f.op] {
				continue
			}
			why := p.gap(f.op, f.metric)
			if why == "" {
				why = "printed no such figure"
			}
			if line := fmt.Sprintf("%s, %s %s: %s", p.name, f.op, f.metric, why); !slices.Contains(all, line) {
				all = append(all, line)
			}
		}
	}
	return all
}
