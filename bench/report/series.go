package report

import (
	"cmp"
	"slices"
	"strings"

	"goshmem/bench"
)

// key is what makes two lines samples of one figure.
type key struct {
	bench, metric, unit   string
	path, mem, algo, impl string
	nodes, pes            int
	local                 bool
	size                  int64
}

func keyOf(r bench.Result) key {
	return key{r.Bench, r.Metric, r.Unit, r.Path, r.Mem, r.Algo, r.Impl, r.Nodes, r.PEs, r.Local, r.Size}
}

// figure is the samples of one figure.
type figure struct {
	key
	p50, p99, mean, floor float64 // medians of the samples
	samples               []float64
	wrong, flipped, far   bool
}

// figures groups a set's lines, in order of first appearance.
func figures(s Set) []figure {
	var order []key
	lines := map[key][]bench.Result{}
	for _, r := range s.Results {
		k := keyOf(r)
		if lines[k] == nil {
			order = append(order, k)
		}
		lines[k] = append(lines[k], r)
	}
	out := make([]figure, 0, len(order))
	for _, k := range order {
		out = append(out, figureOf(k, lines[k]))
	}
	return out
}

func figureOf(k key, lines []bench.Result) figure {
	f := figure{key: k}
	pick := func(get func(bench.Result) float64) float64 {
		var v []float64
		for _, r := range lines {
			v = append(v, get(r))
		}
		return median(v)
	}
	f.p50 = pick(func(r bench.Result) float64 { return r.P50 })
	f.p99 = pick(func(r bench.Result) float64 { return r.P99 })
	f.mean = pick(func(r bench.Result) float64 { return r.Mean })
	f.floor = pick(func(r bench.Result) float64 { return r.Floor })
	for _, r := range lines {
		f.samples = append(f.samples, r.P50)
		f.wrong = f.wrong || !r.Verified
		f.flipped = f.flipped || r.Flipped
		f.far = f.far || r.Far()
	}
	return f
}

func median(v []float64) float64 {
	slices.Sort(v)
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}

// lowerIsBetter tells the direction of a unit.
func lowerIsBetter(unit string) bool { return !strings.HasSuffix(unit, "/s") && unit != "% hidden" }

// curve is the figures of one way of doing a thing, by size or by PEs.
type curve struct {
	name   string
	points []figure
}

// chart is one diagram: a metric of a program.
type chart struct {
	bench, metric, unit string
	over                string // "tcp": what goes over the network has a diagram of its own
	byPEs               bool   // the abscissa is the number of PEs, not the size
	curves              []curve
}

// x is where a figure stands on the abscissa.
func (c *chart) x(f figure) float64 {
	if c.byPEs {
		return float64(f.pes)
	}
	return float64(f.size)
}

// charts arranges all sets' figures.
func charts(sets []Set) []chart {
	type id struct{ bench, metric, unit, over string }
	var order []id
	members := map[id][]member{}
	for _, s := range sets {
		for _, f := range figures(s) {
			i := id{f.bench, f.metric, f.unit, ""}
			if f.path == "tcp" || f.path == "rdma" {
				i.over = f.path
			}
			if members[i] == nil {
				order = append(order, i)
			}
			members[i] = append(members[i], member{s.Name, f})
		}
	}
	// A program's diagrams stand together.
	slices.SortStableFunc(order, func(a, b id) int {
		first := func(i id) int { return slices.IndexFunc(order, func(o id) bool { return o.bench == i.bench }) }
		return cmp.Compare(first(a), first(b))
	})
	var out []chart
	for _, i := range order {
		c := chart{bench: i.bench, metric: i.metric, unit: i.unit, over: i.over}
		c.arrange(members[i], len(sets) > 1)
		out = append(out, c)
	}
	return out
}

type member struct {
	set string
	f   figure
}

// arrange makes the curves. Only what differs is part of their names.
func (c *chart) arrange(list []member, several bool) {
	sizes, pes := map[int64]bool{}, map[int]bool{}
	for _, m := range list {
		sizes[m.f.size], pes[m.f.pes] = true, true
	}
	c.byPEs = len(sizes) == 1 && len(pes) > 1
	at := map[string]int{}
	for _, m := range list {
		n := c.curveName(m, several, len(pes) > 1)
		i, ok := at[n]
		if !ok {
			i = len(c.curves)
			at[n] = i
			c.curves = append(c.curves, curve{name: n})
		}
		c.curves[i].points = append(c.curves[i].points, m.f)
	}
	for i := range c.curves {
		slices.SortStableFunc(c.curves[i].points, func(a, b figure) int { return cmp.Compare(c.x(a), c.x(b)) })
	}
}
