package moe_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"goshmem/moe"
	"goshmem/moe/internal/kernels"
	"goshmem/moe/routing"
)

// BenchmarkDevice times the halves of a call on a GPU by events of the stream:
// the median of all PEs. It needs a GPU.
func BenchmarkDevice(b *testing.B) {
	bed := device(b)
	if bed.gpu == nil {
		b.Skip("no GPU")
	}
	b.Run("copy", func(b *testing.B) { benchCopy(b, bed) })
	for _, c := range []struct {
		name                 string
		tokens, hidden, e, k int
		fp8                  bool
	}{
		{"4096x7168", 4096, 7168, 256, 8, false},
		{"4096x7168-fp8", 4096, 7168, 256, 8, true},
		{"4096x2880", 4096, 2880, 32, 4, false},
		{"128x7168", 128, 7168, 256, 8, false},
	} {
		for _, sms := range []int{8, 16, 24, 32, 64} {
			for _, mover := range movers() {
				if mover == moe.MoverCopyEngine && sms != 24 || c.name != "4096x7168" && sms != 24 {
					continue
				}
				cfg := moe.Config{Experts: c.e, TopK: c.k, Hidden: c.hidden, MaxTokens: c.tokens, Combine: moe.WeightsAtExpert}
				if c.fp8 {
					cfg.DType, cfg.RowBytes, cfg.ScaleBytes = moe.Opaque, int64(c.hidden), int64(c.hidden)/32
				}
				b.Run(fmt.Sprintf("%s/%v/sms-%d", c.name, mover, sms), func(b *testing.B) {
					benchDevice(b, bed, cfg, moe.DeviceOptions{Mover: mover, SMs: sms}, c.tokens)
				})
			}
		}
	}
}

func benchCopy(b *testing.B, bed *bed) {
	const n = 1 << 30
	d := bed.desk(b)
	defer d.close()
	x, y := d.alloc(n), d.alloc(n)
	var times []float64
	for range 10 {
		times = append(times, lap(d, func() { must(d.run.Copy(x, y, n, d.stream)) })())
	}
	b.ReportMetric(2*n/median(times)/1e9, "GB/s")
}

// lap times what f enqueues; the result waits.
func lap(d *desk, f func()) func() float64 {
	from, err := d.run.NewEvent(true)
	must(err)
	to, err := d.run.NewEvent(true)
	must(err)
	must(d.run.Enter())
	must(d.run.Record(from, d.stream))
	d.run.Leave()
	f()
	must(d.run.Enter())
	must(d.run.Record(to, d.stream))
	must(d.run.Record(d.event, d.stream))
	d.run.Leave()
	return func() float64 {
		d.wait()
		s, err := d.run.Elapsed(from, to)
		must(err)
		must(d.run.CloseEvent(from))
		must(d.run.CloseEvent(to))
		return s
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func benchDevice(b *testing.B, bed *bed, cfg moe.Config, opt moe.DeviceOptions, tokens int) {
	const rounds = 30
	in := inputs(b, cfg, routing.Spec{Seed: 3}, tokens, tokens)
	times := map[string][]float64{}
	results := make(chan map[string][]float64, 2)
	deviceEngine(b, bed, 2, cfg, opt, func(ctx context.Context, e *moe.DeviceEngine, d *desk) error {
		rank := e.Team().Rank()
		mine := d.load(in, rank)
		h, err := e.Dispatch(d.stream, mine)
		must(err)
		c, err := h.Wait(ctx)
		if err != nil {
			return err
		}
		r, err := h.Routing()
		must(err)
		y := d.alloc(int(c.OutputRows) * cfg.Hidden * 2)
		must(d.run.Enter())
		must(d.run.Launch(kernels.Fill, 132, kernels.Threads, 0, d.stream, y, uint64(c.OutputRows)*uint64(cfg.Hidden)/2, 0x3f813f82))
		d.run.Leave()
		o := moe.DeviceOutput{Y: y, Out: d.alloc(tokens * cfg.Hidden * 2)}
		var laps []func() float64
		var names []string
		time := func(name string, f func()) {
			names, laps = append(names, name), append(laps, lap(d, f))
		}
		for i := range rounds {
			time("dispatch", func() { h, err = e.Dispatch(d.stream, mine); must(err) })
			time("cached", func() { h, err = e.DispatchCached(d.stream, r, mine.X, mine.Scales); must(err) })
			time("reduce", func() { must(e.StartCombine(d.stream, h, o)) })
			time("fetch", func() { must(e.FinishCombine(d.stream, h, o)) })
			if i%4 == 3 { // the host stays near
				_, err := h.Wait(ctx)
				must(err)
			}
		}
		own := map[string][]float64{}
		for i, l := range laps {
			own[names[i]] = append(own[names[i]], l())
		}
		results <- own
		_, err = h.Wait(ctx)
		return err
	})
	for range 2 {
		for k, v := range <-results {
			times[k] = append(times[k], v...)
		}
	}
	for k, v := range times {
		b.ReportMetric(median(v)*1e6, k+"-us")
	}
}
