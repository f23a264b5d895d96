package moe_test

import (
	"context"
	"fmt"
	"testing"

	"goshmem/moe"
	"goshmem/moe/internal/kernels"
	"goshmem/moe/routing"
	"goshmem/pe"
)

// muted is a device that, while it is told to, takes calls and does nothing: what is
// left is the engine's own work.
type muted struct {
	kernels.Runner
	on bool
}

func (m *muted) Launch(k kernels.Kernel, blocks, threads, shared uint32, stream uintptr, params ...uint64) error {
	if m.on {
		return nil
	}
	return m.Runner.Launch(k, blocks, threads, shared, stream, params...)
}

func (m *muted) Record(event, stream uintptr) error {
	if m.on {
		return nil
	}
	return m.Runner.Record(event, stream)
}

func (m *muted) Capturing(stream uintptr) (bool, error) {
	if m.on {
		return false, nil
	}
	return m.Runner.Capturing(stream)
}

func (m *muted) Enter() error {
	if m.on {
		return nil
	}
	return m.Runner.Enter()
}

func (m *muted) Leave() {
	if !m.on {
		m.Runner.Leave()
	}
}

// In the steady state a dispatch takes the memory of its handle, and a combine none.
func TestDeviceSteadyAllocs(t *testing.T) {
	b := device(t)
	cfg := moe.Config{Experts: 8, TopK: 2, Hidden: 16, MaxTokens: 16, Combine: moe.WeightsAtExpert}
	in := inputs(t, cfg, routing.Spec{Seed: 1}, 9)
	run := &muted{Runner: b.run}
	err := pe.Run(t.Context(), pe.Config{Size: 1, HeapSize: 1 << 20}, func(p *pe.PE) error {
		ctx := context.Background()
		e, err := moe.NewDevice(ctx, p.Team(), cfg, moe.DeviceOptions{SMs: 2}.On(run))
		if err != nil {
			return err
		}
		d := b.desk(t)
		defer d.close()
		x := d.load(in, 0)
		o := moe.DeviceOutput{Y: d.alloc(1 << 16), Out: d.alloc(1 << 16)}
		h, err := e.Dispatch(d.stream, x)
		if err != nil {
			return err
		}
		if _, err := h.Wait(ctx); err != nil {
			return err
		}
		r, err := h.Routing()
		if err != nil {
			return err
		}
		run.on = true
		for _, c := range []struct {
			name string
			most float64
			call func() error
		}{
			{"dispatch", 1, func() (err error) { h, err = e.Dispatch(d.stream, x); return err }},
			{"cached dispatch", 1, func() (err error) { h, err = e.DispatchCached(d.stream, r, x.X, x.Scales); return err }},
			{"combine", 0, func() error { return e.Combine(d.stream, h, o) }},
		} {
			var failed error
			if n := testing.AllocsPerRun(100, func() {
				if err := c.call(); err != nil {
					failed = err
				}
			}); n > c.most || failed != nil {
				return fmt.Errorf("%s: %v allocations, at most %v; %w", c.name, n, c.most, failed)
			}
		}
		run.on = false
		return e.Close(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
}
