package bench

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"

	"goshmem/internal/spin"
	"goshmem/pe"
	"goshmem/rma"
)

func gcProgram() program {
	return program{
		name: "gc", text: "how long a garbage collection takes to stop the world while PEs wait",
		solo: true, pes: 2, least: 2,
		run: gcRun,
	}
}

// gcCollections is how many collections are measured in the default time; each
// stops the world twice.
const gcCollections = 2000

// gcRun lets PEs wait while another goroutine collects garbage. The last PE
// drives: it wakes the others after every collection. The comparisons: nobody
// waits; a loop of bare PAUSE instructions waits, as a program without help
// would.
func gcRun(ctx context.Context, cfg Config, emit Emit) error {
	n := max(int(gcCollections*cfg.Time/defaultTime), 100)
	if cfg.Iters > 0 {
		n = cfg.Iters
	}
	base := Result{
		Bench: "gc", Metric: "stopping", Path: "direct", Mem: "host", Nodes: 1, Impl: "goshmem", PEs: cfg.PEs, Unit: unitNS,
		Verified: true,
	}
	idle, err := stopping(ctx, n, func() error { return nil })
	if err != nil {
		return err
	}
	r := base
	r.Algo, r.PEs = "idle", 0
	r.take(idle)
	if err := emit(r); err != nil {
		return err
	}
	for _, how := range []struct {
		algo string
		cfg  pe.Config
	}{
		{"waiting", pe.Config{}},
		{"spinning", pe.Config{SpinTurns: 1 << 20}},
	} {
		how.cfg.Size, how.cfg.HeapSize = cfg.PEs, 1<<20
		r := base
		r.Algo = how.algo
		ok := true
		err := pe.Run(ctx, how.cfg, func(p *pe.PE) error { return gcBody(ctx, p, n, &r, &ok) })
		if err != nil {
			return err
		}
		r.Verified = ok
		if err := emit(r); err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%w: gc: a PE missed a signal", ErrVerify)
		}
	}
	r = base
	r.Algo, r.Impl, r.PEs = "unaided", "bare PAUSE loop", 0
	if err := unaided(ctx, max(1, n/20), &r); err != nil {
		return err
	}
	return emit(r)
}

// gcBody is one PE: the last drives, the others wait for its signals.
func gcBody(ctx context.Context, p *pe.PE, n int, r *Result, ok *bool) error {
	sigs, err := p.AllocSignals(ctx, 1)
	if err != nil {
		return err
	}
	c, last := p.Context(), p.Size()-1
	if p.Rank() != last {
		for i := range n {
			if err := rma.WaitSignal(ctx, c, sigs.At(0), rma.GE, uint64(i)+1, rma.From(last)); err != nil {
				return err
			}
		}
		return nil
	}
	round := uint64(0)
	h, err := stopping(ctx, n, func() error {
		round++
		for to := range last {
			if err := rma.Signal(c, sigs.At(0), rma.SignalSet, round, to); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.take(h)
	// Every signal was sent and each collection stopped the world.
	*ok = round == uint64(n) && h.total >= uint64(n)
	return nil
}

// unaided measures beside a goroutine that spins without the runtime's help.
func unaided(ctx context.Context, n int, r *Result) error {
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			spin.Pause()
		}
	})
	h, err := stopping(ctx, n, func() error { return nil })
	stop.Store(true)
	wg.Wait()
	if err != nil {
		return err
	}
	r.take(h)
	return nil
}

// histogram is the difference of two readings of the runtime's stopping times.
type histogram struct {
	counts  []uint64
	buckets []float64 // seconds; one more than counts
	total   uint64
}

// stopping collects n times and gives the stopping times; after is called behind
// each.
func stopping(ctx context.Context, n int, after func() error) (histogram, error) {
	read := func() *metrics.Float64Histogram {
		s := []metrics.Sample{{Name: "/sched/pauses/stopping/gc:seconds"}}
		metrics.Read(s)
		if s[0].Value.Kind() != metrics.KindFloat64Histogram {
			return nil
		}
		return s[0].Value.Float64Histogram()
	}
	old := read()
	if old == nil {
		return histogram{}, fmt.Errorf("bench: gc: this Go does not tell its stopping times: %w", pe.ErrUnsupported)
	}
	for range n {
		runtime.GC()
		if err := after(); err != nil {
			return histogram{}, err
		}
		if ctx.Err() != nil {
			return histogram{}, context.Cause(ctx)
		}
	}
	now := read()
	h := histogram{buckets: now.Buckets, counts: make([]uint64, len(now.Counts))}
	for i := range h.counts {
		h.counts[i] = now.Counts[i] - old.Counts[i]
		h.total += h.counts[i]
	}
	return h, nil
}

// take puts stopping times into a result.
func (r *Result) take(h histogram) {
	r.P50, r.P99, r.Mean = h.quantile(0.5), h.quantile(0.99), h.mean()
}

// quantile is the upper end of the bucket that holds it, in ns.
func (h histogram) quantile(q float64) float64 {
	want := uint64(math.Ceil(q * float64(h.total)))
	seen := uint64(0)
	for i, c := range h.counts {
		if seen += c; seen >= want && c > 0 {
			return 1e9 * h.upper(i)
		}
	}
	return 0
}

func (h histogram) mean() float64 {
	if h.total == 0 {
		return 0
	}
	sum := 0.0
	for i, c := range h.counts {
		if c > 0 {
			sum += float64(c) * (max(h.buckets[i], 0) + h.upper(i)) / 2
		}
	}
	return 1e9 * sum / float64(h.total)
}

// upper is the end of a bucket; the last one has none.
func (h histogram) upper(i int) float64 {
	if up := h.buckets[i+1]; !math.IsInf(up, 1) {
		return up
	}
	return h.buckets[i]
}
