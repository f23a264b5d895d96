package bench

import (
	"fmt"
	"io"
)

// bar is a figure that must be reached.
type bar struct {
	figure string
	match  Result // by Bench, Metric, Path, Algo, PEs and Size, where they are not zero
	kind   barKind
	limit  float64
}

// barKind says what is compared with the limit.
type barKind uint8

const (
	atMost        barKind = iota // the median
	atLeast                      //
	atMostFloors                 // the median over the floor
	atLeastFloors                //
	badEndAtMost                 // p99
)

// bars are those of a machine with two cores.
func bars() []bar {
	r := func(bench, metric string, size int64, pes int) Result {
		return Result{Bench: bench, Metric: metric, Size: size, PEs: pes}
	}
	ring := func(metric, algo string) Result {
		return Result{Bench: "channel", Metric: metric, Path: "ring", Algo: algo}
	}
	const kib, mib = 1 << 10, 1 << 20
	tcp := func(bench, metric string, size int64) Result {
		return Result{Bench: bench, Metric: metric, Path: "tcp", Size: size}
	}
	amo := func(metric string) Result { return r("amo", metric, 8, 0) }
	return []bar{
		{"Put + Quiet, 8 B", r("put", "latency", 8, 0), atMost, 9},
		{"Get, 8 B", r("get", "latency", 8, 0), atMost, 8},
		{"PutSignal one way, 8 B", r("put-signal", "latency", 8, 0), atMostFloors, 1.25},
		{"PutSignal one way, 4 KiB", r("put-signal", "latency", 4*kib, 0), atMostFloors, 1.25},
		{"PutNBI rate, 8 B", r("put", "rate", 8, 0), atLeast, 140},
		{"FetchAdd", amo("fetch-add"), atMost, 9},
		{"CompareSwap", amo("compare-swap"), atMost, 9},
		{"bandwidth 4 KiB", r("put", "bandwidth", 4*kib, 0), atLeastFloors, 0.95},
		{"bandwidth 64 KiB", r("put", "bandwidth", 64*kib, 0), atLeastFloors, 0.95},
		{"bandwidth 1 MiB", r("put", "bandwidth", mib, 0), atLeastFloors, 0.95},
		{"bandwidth 16 MiB", r("put", "bandwidth", 16*mib, 0), atLeastFloors, 1.25},
		{"bandwidth 64 MiB", r("put", "bandwidth", 64*mib, 0), atLeastFloors, 1.25},
		{"barrier, 2 PEs", r("barrier", "latency", 0, 2), atMost, 180},
		{"barrier, 8 PEs", r("barrier", "latency", 0, 8), atMost, 9000},
		{"barrier, 16 PEs", r("barrier", "latency", 0, 16), atMost, 25000},
		{"alltoallv 2 PEs, 1 KiB", r("alltoallv", "latency", kib, 2), atMost, 600},
		{"alltoallv 2 PEs, 64 KiB", r("alltoallv", "latency", 64*kib, 2), atMost, 3500},
		{"alltoallv 2 PEs, 1 MiB", r("alltoallv", "latency", mib, 2), atMost, 50000},
		{"allreduce 2 PEs, 8 B", r("allreduce", "latency", 8, 2), atMost, 500},
		{"allreduce 2 PEs, 1 MiB", r("allreduce", "bandwidth", mib, 2), atLeast, 10},
		{"channel hand-off", ring("latency", "one-producer"), atMostFloors, 3},
		{"channel, two producers", ring("interval", "two-producers"), atMostFloors, 1.3},
		{"channel, allocations", ring("allocations", "two-producers"), atMost, 0},
		{"TCP: PutSignal one way, 8 B", tcp("put-signal", "latency", 8), atMostFloors, 1.4},
		{"TCP: PutSignal rate, 8 B", tcp("put-signal", "rate", 8), atLeast, 3},
		{"TCP: PutNBI rate, 8 B", tcp("put", "rate", 8), atLeast, 6},
		{"TCP: bandwidth 64 KiB", tcp("put", "nbi-bandwidth", 64*kib), atLeastFloors, 0.95},
		{"TCP: bandwidth 1 MiB", tcp("put", "nbi-bandwidth", mib), atLeastFloors, 0.95},
		{"TCP: FetchAdd over one way", tcp("amo", "fetch-add", 8), atMostFloors, 2.8},
		{"MoE dispatch, all PEs", Result{Bench: "moe", Metric: "dispatch-wire"}, atLeastFloors, 0.5},
		{"GC stopping, PEs wait", Result{Bench: "gc", Metric: "stopping", Algo: "waiting"}, badEndAtMost, 3e5},
		{"GC stopping, PEs spin", Result{Bench: "gc", Metric: "stopping", Algo: "spinning"}, badEndAtMost, 3e5},
	}
}

// runs are every program, those that give the figures of bars first.
func runs() []run {
	const kib, mib = 1 << 10, 1 << 20
	list := []run{
		{Config: Config{Name: "put", Sizes: []int64{8, 4 * kib, 64 * kib, mib, 16 * mib, 64 * mib}}},
		{Config: Config{Name: "get", Sizes: []int64{8, 4 * kib, 64 * kib, mib, 16 * mib}}},
		{Config: Config{Name: "put-signal", Sizes: []int64{8, 4 * kib}}},
		{Config: Config{Name: "amo"}},
		{Config: Config{Name: "put-signal", Path: "tcp", Sizes: []int64{8}}},
		{Config: Config{Name: "put", Path: "tcp", Sizes: []int64{8, 64 * kib, mib}}},
		{Config: Config{Name: "amo", Path: "tcp"}},
		{Config: Config{Name: "barrier", PEs: 2}},
		{Config: Config{Name: "barrier", PEs: 8}},
		{Config: Config{Name: "barrier", PEs: 16}},
		{Config: Config{Name: "ring", PEs: 2}},
		{Config: Config{Name: "ring", PEs: 8}},
		{Config: Config{Name: "alltoallv", PEs: 2, Sizes: []int64{kib, 64 * kib, mib}}},
		{Config: Config{Name: "allreduce", PEs: 2, Sizes: []int64{8, mib}}},
		{Config: Config{Name: "channel"}},
		{Config: Config{Name: "moe"}},
		{Config: Config{Name: "gc"}},
	}
	for _, name := range []string{"pairs", "contended", "order", "wait", "overlap", "idle", "worlds", "join"} {
		list = append(list, run{Config: Config{Name: name}})
	}
	for _, k := range collectives() {
		list = append(list, run{Config: Config{Name: k.name, PEs: 8, Sizes: []int64{8, 64 * kib}}})
	}
	for _, s := range spreads()[1:] {
		list = append(list, run{Config: Config{Name: "alltoallv", PEs: 8, Spread: s, Sizes: []int64{8, 64 * kib}}})
	}
	for i := range list {
		list[i].fixed, list[i].figures = costOf(list[i].Config)
	}
	return list
}

func (b bar) is(r Result) bool {
	m := b.match
	return m.Bench == r.Bench && m.Metric == r.Metric && (m.Path == "" || m.Path == r.Path) &&
		(m.Path != "" || r.Path != "tcp") && (m.Algo == "" || m.Algo == r.Algo) && (m.PEs == 0 || m.PEs == r.PEs) && (m.Size == 0 || m.Size == r.Size)
}

// judge compares a result with the bar.
func (b bar) judge(r Result) (have, want string, met bool) {
	switch b.kind {
	case atMostFloors:
		return fmt.Sprintf("%.2f x floor", r.Ratio()), fmt.Sprintf("<= %g x floor", b.limit), r.Ratio() <= b.limit
	case atLeastFloors:
		return fmt.Sprintf("%.2f x floor", r.Ratio()), fmt.Sprintf(">= %g x floor", b.limit), r.Ratio() >= b.limit
	case atLeast:
		return number(r.P50) + " " + r.Unit, fmt.Sprintf(">= %g %s", b.limit, r.Unit), r.P50 >= b.limit
	case badEndAtMost:
		return number(r.P99) + " " + r.Unit + " p99", fmt.Sprintf("<= %.0f %s p99", b.limit, r.Unit), r.P99 <= b.limit
	}
	return number(r.P50) + " " + r.Unit, fmt.Sprintf("<= %g %s", b.limit, r.Unit), r.P50 <= b.limit
}

func printBars(w io.Writer, results []Result) error {
	const row = "%-26s %-20s %-20s %s\n"
	if _, err := fmt.Fprintf(w, "\n"+row, "figure", "bar", "measured", ""); err != nil {
		return err
	}
	for _, b := range bars() {
		have, want, verdict := "-", "-", "not measured"
		for _, r := range results {
			if !b.is(r) {
				continue
			}
			var met bool
			if have, want, met = b.judge(r); met {
				verdict = "met"
			} else {
				verdict = "MISSED"
			}
			for _, m := range remarks(r) {
				if m != "verified" {
					verdict += ", " + m
				}
			}
			break
		}
		if _, err := fmt.Fprintf(w, row, b.figure, want, have, verdict); err != nil {
			return err
		}
	}
	return nil
}
