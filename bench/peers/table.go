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
	op   string
	pes  int
	size int64
}

// table collects the medians of all rounds.
type table struct {
	figures []figure
	names   []string // of the implementations
	p50     map[figure]map[string][]float64
	absent  []string // what did not run, and why
}

func newTable() *table { return &table{p50: map[figure]map[string][]float64{}} }

// take runs a job and keeps its latencies, those before a failure included.
func (t *table) take(s settings, out io.Writer, name string, run func() ([]byte, error)) error {
	text, failure := run()
	results, err := decode(text)
	if failure == nil {
		failure = err
	}
	for _, r := range results {
		if r.Impl = name; s.raw {
			if err := r.WriteJSON(out); err != nil {
				return err
			}
		}
		if !r.Verified {
			return fmt.Errorf("%w: %+v", bench.ErrVerify, r)
		}
		if r.Metric == "latency" {
			t.add(name, r)
		}
	}
	return failure
}

func (t *table) add(name string, r bench.Result) {
	f := figure{r.Bench, r.PEs, r.Size}
	if t.p50[f] == nil {
		t.p50[f] = map[string][]float64{}
		t.figures = append(t.figures, f)
	}
	if !slices.Contains(t.names, name) {
		t.names = append(t.names, name)
	}
	t.p50[f][name] = append(t.p50[f][name], r.P50)
}

// missing notes a reason, once.
func (t *table) missing(what string, err error) {
	if line := fmt.Sprintf("%s: %v", what, err); !slices.Contains(t.absent, line) {
		t.absent = append(t.absent, line)
	}
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// print writes microseconds, and ours as a part of the best peer's.
func (t *table) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "\nmedian us\tPEs\tB\t")
	for _, name := range t.names {
		fmt.Fprintf(tw, "%s\t", name)
	}
	fmt.Fprint(tw, "of best peer\t\n")
	for _, f := range t.figures {
		fmt.Fprintf(tw, "%s\t%d\t%d\t", f.op, f.pes, f.size)
		mine, best := 0.0, 0.0
		for _, name := range t.names {
			v := median(t.p50[f][name])
			if v == 0 {
				fmt.Fprint(tw, "-\t")
				continue
			}
			fmt.Fprintf(tw, "%.2f\t", v/1e3)
			if name == ours {
				mine = v
			} else if best == 0 || v < best {
				best = v
			}
		}
		if mine == 0 || best == 0 {
			fmt.Fprint(tw, "-\t\n")
		} else {
			fmt.Fprintf(tw, "%.2f\t\n", mine/best)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, line := range t.absent {
		if _, err := fmt.Fprintln(w, "missing:", line); err != nil {
			return err
		}
	}
	return nil
}
