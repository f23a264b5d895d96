package bench

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"goshmem/coll"
	"goshmem/pe"
	"goshmem/rma"
)

func idleProgram() program {
	return program{
		name: "idle", text: "processor time that PEs use while all wait for a signal: per cent of a processor, the busiest PE",
		pes: 2, least: 2, time: time.Second,
		work: idleWork,
	}
}

// idleWork lets all PEs but the last wait for a signal that comes after the time of
// a figure.
func idleWork(ctx context.Context, e *env) error {
	sigs, err := e.p.AllocSignals(ctx, 1)
	if err != nil {
		return err
	}
	if _, err := e.share(0); err != nil {
		return err
	}
	n, rank := e.p.Size(), e.p.Rank()
	wall, cpu := time.Now(), processorTime()
	if rank == n-1 {
		time.Sleep(e.cfg.Time)
		for i := range n - 1 {
			if err := rma.Signal(e.c, sigs.At(0), rma.SignalSet, 1, i); err != nil {
				return err
			}
		}
	} else if err := rma.WaitSignal(ctx, e.c, sigs.At(0), rma.EQ, 1); err != nil {
		return err
	}
	used := 100 * float64(processorTime()-cpu) / float64(time.Since(wall))
	all, err := e.share(uint64(used * 1e6))
	if err != nil {
		return err
	}
	var s series
	for _, v := range all {
		s = append(s, float64(v)/1e6)
	}
	r := e.base
	r.Metric, r.Unit = "waiting", unitLoad
	r.P50, r.P99, r.Mean = s.quantile(0.5), s.quantile(1), s.mean()
	return e.report(r, true)
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func worldsProgram() program {
	return program{
		name: "worlds", text: "time to open and close a world of goroutines, and the Go heap that it takes for each PE",
		solo: true, pes: 8, least: 1, time: time.Second,
		run: worldsRun,
	}
}

// worldsRun opens and closes worlds for the time of a figure.
func worldsRun(ctx context.Context, cfg Config, emit Emit) error {
	wc, err := cfg.World()
	if err != nil {
		return err
	}
	wc.Size, wc.Sparse = cfg.PEs, true
	var opened, closed series
	for begun := time.Now(); len(opened) == 0 || time.Since(begun) < cfg.Time; {
		var ready time.Time
		start := time.Now()
		err := pe.Run(ctx, wc, func(p *pe.PE) error {
			if err := coll.Sync(ctx, p.Team()); err != nil {
				return err
			}
			if p.Rank() == 0 {
				ready = time.Now()
			}
			return nil
		})
		if err != nil {
			return err
		}
		opened = append(opened, float64(ready.Sub(start)))
		closed = append(closed, float64(time.Since(ready)))
	}
	base := Result{Bench: "worlds", Path: "direct", Mem: "host", Nodes: 1, Impl: "goshmem", PEs: cfg.PEs, Local: true, Unit: unitNS, Verified: true}
	for _, m := range []struct {
		metric string
		s      series
	}{{"open", opened}, {"close", closed}} {
		r := base
		r.Metric = m.metric
		r.fill(m.s, nil, 0)
		if err := emit(r); err != nil {
			return err
		}
	}
	for _, m := range []struct {
		metric string
		talk   func(*pe.PE) error
	}{
		{"heap-silent", func(*pe.PE) error { return nil }},
		{"heap-all-talk", func(p *pe.PE) error { return talkToAll(ctx, p) }},
	} {
		bytes, err := worldMemory(ctx, wc, m.talk)
		if err != nil {
			return err
		}
		r := base
		r.Metric, r.Unit = m.metric, unitBytes
		r.P50 = float64(bytes) / float64(cfg.PEs)
		r.P99, r.Mean = r.P50, r.P50
		if err := emit(r); err != nil {
			return err
		}
	}
	return nil
}

// talkToAll puts a word to every PE.
func talkToAll(ctx context.Context, p *pe.PE) error {
	w, err := pe.Calloc[uint64](ctx, p, 1)
	if err != nil {
		return err
	}
	for i := range p.Size() {
		if err := rma.PutValue(p.Context(), w.At(0), 1, i); err != nil {
			return err
		}
	}
	return rma.Quiet(ctx, p.Context())
}

// worldMemory is what a world adds to the Go heap; its symmetric memory lies
// outside.
func worldMemory(ctx context.Context, wc pe.Config, talk func(*pe.PE) error) (uint64, error) {
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	err := pe.Run(ctx, wc, func(p *pe.PE) error {
		if err := talk(p); err != nil {
			return err
		}
		if err := coll.Sync(ctx, p.Team()); err != nil {
			return err
		}
		if p.Rank() == 0 {
			runtime.GC()
			runtime.ReadMemStats(&during)
		}
		return coll.Sync(ctx, p.Team())
	})
	return during.HeapAlloc - min(before.HeapAlloc, during.HeapAlloc), err
}
