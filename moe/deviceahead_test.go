package moe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"goshmem/moe"
	"goshmem/moe/oracle"
	"goshmem/moe/routing"
	"goshmem/pe"
)

// twice is a routing with two sets of rows.
func twice(t testing.TB, cfg moe.Config, seed uint64, tokens ...int) (one, two oracle.Input) {
	one = inputs(t, cfg, routing.Spec{Seed: seed, Holes: 0.2}, tokens...)
	two = inputs(t, cfg, routing.Spec{Seed: seed, Holes: 0.2}, tokens...)
	for _, x := range two.X {
		for i := range x {
			x[i] ^= 0x5a
		}
	}
	return one, two
}

// cameFrom reports whether the rows of a source are in place at a rank.
func (d *desk) cameFrom(cfg moe.Config, in oracle.Input, at uint64, rank, source int) bool {
	want := oracle.RankMajor(in, rank)
	if cfg.Layout == moe.ExpertMajor {
		want = oracle.ExpertMajor(in, rank, max(cfg.Alignment, 1))
	}
	have := down[byte](d, at, int64(len(want.Rows)*in.RowBytes))
	for i, w := range want.Rows {
		if w.Source == source && !bytes.Equal(have[i*in.RowBytes:(i+1)*in.RowBytes], w.X) {
			return false
		}
	}
	return true
}

// Rows of a cached dispatch arrive at a rank that has not come to its call yet, in
// the place of results that are dead; those in flight stay as they are.
func TestDeviceAhead(t *testing.T) {
	b := device(t)
	for i, cfg := range variants(moe.Config{Experts: 8, TopK: 2, Hidden: 16, MaxTokens: 64}) {
		if b.gpu == nil && i > 2 {
			break
		}
		cfg.InFlight = 1 + i%2
		one, two := twice(t, cfg, 1, 60, 9)
		deviceEngine(t, b, 2, cfg, moe.DeviceOptions{}.Far(i%3 == 0), func(ctx context.Context, e *moe.DeviceEngine, d *desk) error {
			rank := e.Team().Rank()
			x, y := d.load(one, rank), d.load(two, rank)
			must(gathered(ctx, e))
			oldest, err := e.Dispatch(d.stream, x)
			must(err)
			if _, err := d.delivered(ctx, cfg, e, one, oldest); err != nil {
				return err
			}
			must(gathered(ctx, e))
			r, err := oldest.Routing()
			must(err)
			must(gathered(ctx, e))
			live := oldest
			for range cfg.InFlight {
				live, err = e.DispatchCached(d.stream, r, x.X, x.Scales)
				must(err)
			}
			if _, err := d.delivered(ctx, cfg, e, one, live); err != nil {
				return err
			}
			must(gathered(ctx, e))
			if rank == 1 { // late
				for end := time.Now().Add(5 * time.Second); !d.cameFrom(cfg, two, oldest.Rows, rank, 0); time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						return errors.New("no rows before the call")
					}
				}
				if _, err := d.delivered(ctx, cfg, e, one, live); err != nil {
					return fmt.Errorf("in flight: %w", err)
				}
			}
			h, err := e.StartDispatchCached(d.stream, r, y.X, y.Scales)
			must(err)
			must(h.Finish(d.stream))
			return deviceRest(ctx, cfg, e, d, two, h, nil, 1)
		})
	}
}

// A graph that uses the same slot again at once asks whether it is free: the rows of a
// late rank stay until it has come.
func TestDeviceReplayWaits(t *testing.T) {
	b := device(t)
	cfg := moe.Config{Experts: 8, TopK: 2, Hidden: 16, MaxTokens: 16}
	one, two := twice(t, cfg, 2, 9, 16)
	deviceEngine(t, b, 2, cfg, moe.DeviceOptions{}, func(ctx context.Context, e *moe.DeviceEngine, d *desk) error {
		rank := e.Team().Rank()
		x := d.load(one, rank)
		must(gathered(ctx, e))
		h, err := e.Dispatch(d.stream, x)
		must(err)
		if _, err := d.delivered(ctx, cfg, e, one, h); err != nil {
			return err
		}
		must(gathered(ctx, e))
		r, err := h.Routing()
		must(err)
		launch, done := d.capture(func() {
			h, err = e.DispatchCached(d.stream, r, x.X, x.Scales)
			must(err)
		})
		defer done()
		must(gathered(ctx, e))
		for range 2 {
			launch()
		}
		if !d.cameFrom(cfg, one, h.Rows, rank, 0) || !d.cameFrom(cfg, one, h.Rows, rank, 1) {
			return errors.New("rows of the first replays")
		}
		d.put(x.X, two.X[rank])
		must(gathered(ctx, e))
		early := false
		if rank == 1 { // late
			for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end) && !early; {
				early = !d.cameFrom(cfg, one, h.Rows, rank, 0)
			}
		}
		launch()
		if early {
			return errors.New("overwritten before the call")
		}
		if !d.cameFrom(cfg, two, h.Rows, rank, 0) || !d.cameFrom(cfg, two, h.Rows, rank, 1) {
			return errors.New("rows of the last replay")
		}
		return nil
	})
}

// A cached dispatch that one rank's arguments spoil, whole and in halves, after which
// the engine goes on.
func TestDeviceCachedRefuses(t *testing.T) {
	b := device(t)
	for _, mover := range movers() {
		cfg := moe.Config{Experts: 8, TopK: 2, Hidden: 16, MaxTokens: 16}
		in := inputs(t, cfg, routing.Spec{Seed: 3}, 9, 16)
		deviceEngine(t, b, 2, cfg, moe.DeviceOptions{Mover: mover}, func(ctx context.Context, e *moe.DeviceEngine, d *desk) error {
			rank := e.Team().Rank()
			x := d.load(in, rank)
			must(gathered(ctx, e))
			h, err := e.Dispatch(d.stream, x)
			must(err)
			_, err = h.Wait(ctx)
			must(err)
			must(gathered(ctx, e))
			r, err := h.Routing()
			must(err)
			must(gathered(ctx, e))
			for round := range 4 {
				h, err := e.DispatchCached(d.stream, r, x.X, x.Scales)
				must(err)
				if _, err := d.delivered(ctx, cfg, e, in, h); err != nil {
					return err
				}
				rows := x.X
				if rank == 1 {
					rows = 0
				}
				if round%2 == 0 {
					h, err = e.DispatchCached(d.stream, r, rows, x.Scales)
				} else if h, err = e.StartDispatchCached(d.stream, r, rows, x.Scales); err == nil {
					must(h.Finish(d.stream))
				}
				var remote *moe.RemoteError
				if err == nil {
					_, err = h.Wait(ctx)
				}
				if !errors.Is(err, pe.ErrRange) || errors.As(err, &remote) != (rank == 0) {
					return fmt.Errorf("round %d: %w", round, err)
				}
			}
			return deviceTrip(ctx, cfg, e, d, in, nil)
		})
	}
}

// Dispatches and combines in any order, on ranks that dawdle: whatever is in flight
// stays as it was delivered.
func TestDeviceOrders(t *testing.T) {
	b := device(t)
	seeds, steps := 10, 40
	if b.gpu == nil {
		seeds, steps = 3, 10
	}
	for seed := range seeds {
		all := variants(moe.Config{Experts: 8, TopK: 2, Hidden: 16, MaxTokens: 64, InFlight: 1 + seed%3})
		cfg := all[seed%len(all)]
		var ins []oracle.Input
		for i := range uint64(2) {
			one, two := twice(t, cfg, 10*uint64(seed)+i, 60, 9, 33)
			ins = append(ins, one, two)
		}
		deviceEngine(t, b, 3, cfg, moe.DeviceOptions{}.Far(seed%2 == 0), func(ctx context.Context, e *moe.DeviceEngine, d *desk) error {
			rank := e.Team().Rank()
			common, own := rand.New(rand.NewPCG(uint64(seed), 1)), rand.New(rand.NewPCG(uint64(seed), uint64(rank)+2))
			var x []moe.DeviceInput
			for _, in := range ins {
				x = append(x, d.load(in, rank))
			}
			y, out := d.alloc(1<<20), d.alloc(1<<20)
			d.room(1 << 20)
			must(gathered(ctx, e))
			type result struct {
				h  *moe.DeviceDispatched
				in oracle.Input
			}
			var flight []result
			routings := make([]*moe.DeviceRouting, len(ins)/2)
			for step := range steps {
				k := common.IntN(len(ins))
				combines := common.IntN(3) == 0 && len(flight) > 0
				time.Sleep(time.Duration(own.IntN(3)) * time.Millisecond)
				if combines {
					f := flight[k%len(flight)]
					r, err := d.delivered(ctx, cfg, e, f.in, f.h)
					if err != nil {
						return fmt.Errorf("step %d: %w", step, err)
					}
					d.put(y, outputs(cfg, e, r, step))
					must(e.Combine(d.stream, f.h, moe.DeviceOutput{Y: y, Out: out}))
					have := down[byte](d, out, int64(f.in.Tokens(rank)*cfg.Hidden*2))
					if err := sameBytes(have, wantCombine(cfg, f.in, rank, step, nil), cfg.Hidden); err != nil {
						return fmt.Errorf("step %d: combine: %w", step, err)
					}
					continue
				}
				var h *moe.DeviceDispatched
				var err error
				if r := routings[k/2]; r == nil {
					h, err = e.Dispatch(d.stream, x[k])
					must(err)
					_, err = h.Wait(ctx)
					must(err)
					must(gathered(ctx, e)) // keeping a routing takes memory
					routings[k/2], err = h.Routing()
					must(gathered(ctx, e))
				} else {
					h, err = e.DispatchCached(d.stream, r, x[k].X, x[k].Scales)
				}
				must(err)
				flight = append(flight, result{h, ins[k]})
				flight = flight[max(len(flight)-cfg.InFlight, 0):]
				for i, f := range flight {
					if _, err := d.delivered(ctx, cfg, e, f.in, f.h); err != nil {
						return fmt.Errorf("step %d: %d of %d in flight: %w", step, i, len(flight), err)
					}
				}
			}
			return nil
		})
	}
}
