package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxRepeat bounds -repeat.
const maxRepeat = 100

// spread collects the medians of a program's repetitions.
type spread struct {
	order []Result // one of each figure, in order
	runs  map[string][]Result
}

func newSpread() *spread { return &spread{runs: map[string][]Result{}} }

// figureKey is what makes two results of one program samples of one figure.
func figureKey(r Result) string {
	return fmt.Sprint(r.Bench, " ", r.Metric, " ", r.Path, " ", r.Algo, " ", r.Nodes, " ", r.PEs, " ", r.Local, " ", r.Size, " ", r.Unit)
}

func (s *spread) take(r Result) {
	k := figureKey(r)
	if s.runs[k] == nil {
		s.order = append(s.order, r)
	}
	s.runs[k] = append(s.runs[k], r)
}

// steady are those samples that may be compared: none that the machine changed
// under; of one placement, the near one if it came as often; and of one speed of the
// machine, which the floor tells. The operation's own times have no say.
func steady(all []Result) (keep []Result, far bool) {
	var sorted [2][]Result
	for _, r := range all {
		if !r.Flipped {
			i := int(bit(r.Far()))
			sorted[i] = append(sorted[i], r)
		}
	}
	if len(sorted[1]) > len(sorted[0]) {
		return fast(sorted[1]), true
	}
	return fast(sorted[0]), false
}

// slowState is how much more the floor takes while another thread, maybe of another
// machine, has a part of the core.
const slowState = 1.2

// fast leaves out samples during which the floor was slow.
func fast(all []Result) []Result {
	took := func(r Result) float64 { // something that falls as the floor gets faster
		if r.Floor == 0 || r.Unit == unitNS {
			return r.Floor
		}
		return 1 / r.Floor
	}
	if len(all) == 0 {
		return nil
	}
	best := took(slices.MinFunc(all, func(a, b Result) int { return cmp.Compare(took(a), took(b)) }))
	return slices.DeleteFunc(all, func(r Result) bool { return took(r) > slowState*best })
}

// Far reports whether the figure was taken while the PEs stood far from each other.
func (r Result) Far() bool { return max(r.CalibBefore, r.CalibAfter) > nearLimit }

// lacks reports whether some figure has fewer than n samples that may be compared.
func (s *spread) lacks(n int) bool {
	for _, all := range s.runs {
		if keep, _ := steady(all); len(keep) < n {
			return true
		}
	}
	return false
}

// repeated starts a program as often as is wanted; once more, up to twice as often,
// for every time that the machine changed under a figure.
func (c commandLine) repeated(ctx context.Context, emit Emit, stderr io.Writer, launch Launcher, all *spread) error {
	n := max(c.Repeat, 1)
	own := newSpread()
	for i := 0; i < n || n > 1 && i < 2*n && own.lacks(n); i++ {
		err := c.start(ctx, func(r Result) error {
			own.take(r)
			all.take(r)
			return emit(r)
		}, stderr, launch)
		if err != nil {
			return err
		}
	}
	return nil
}

// around is the distance of the farthest sample from the median, in per cent of it.
func around(v []float64) (median, percent float64) {
	slices.Sort(v)
	median = series(v).quantile(0.5)
	if len(v) == 0 || median == 0 {
		return median, 0
	}
	return median, 100 * max(v[len(v)-1]-median, median-v[0]) / median
}

// within is the distance that repetitions should keep, in per cent.
const within = 10.0

// print writes a line for each figure, those that differ most first.
func (s *spread) print(w io.Writer) error {
	const row = "%-58s %4s %4s %10s %-7s %8s %8s  %s\n"
	type rowOf struct {
		text    string
		percent float64
	}
	var rows []rowOf
	met := 0
	for _, r := range s.order {
		all := s.runs[figureKey(r)]
		keep, far := steady(all)
		var p50, ratio []float64
		for _, k := range keep {
			p50, ratio = append(p50, k.P50), append(ratio, k.Ratio())
		}
		median, percent := around(p50)
		_, floors := around(ratio)
		var remarks []string
		if percent <= within && len(keep) > 1 {
			met++
		} else {
			remarks = append(remarks, "DIFFER")
		}
		if far {
			remarks = append(remarks, "far")
		}
		name := fmt.Sprintf("%s %s %s", r.Bench, r.Metric, r.Path)
		if r.Algo != "" {
			name += " " + r.Algo
		}
		if r.PEs > 0 {
			name += fmt.Sprintf(" %d PEs", r.PEs)
		}
		if r.Local {
			name += " as goroutines"
		}
		if r.Size > 0 {
			name += " " + sizeText(r.Size)
		}
		ofFloor := "-"
		if r.Floor > 0 {
			ofFloor = fmt.Sprintf("%.1f", floors)
		}
		rows = append(rows, rowOf{fmt.Sprintf(row, name, fmt.Sprint(len(keep)), fmt.Sprint(len(all)), number(median), r.Unit,
			fmt.Sprintf("%.1f", percent), ofFloor, strings.Join(remarks, ", ")), percent})
	}
	slices.SortStableFunc(rows, func(a, b rowOf) int { return cmp.Compare(b.percent, a.percent) })
	if _, err := fmt.Fprintf(w, "\n"+row, "figure", "kept", "runs", "median", "unit", "+- %", "ratio %", ""); err != nil {
		return err
	}
	for _, r := range rows {
		if _, err := io.WriteString(w, r.text); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d of %d figures repeat within %g %% of their median\n", met, len(rows), within)
	return err
}
