package moe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"goshmem/moe"
	"goshmem/moe/oracle"
	"goshmem/moe/routing"
	"goshmem/moe/routing/traces"
	"goshmem/pe"
)

func movers() []moe.Mover { return []moe.Mover{moe.MoverDirect, moe.MoverCopyEngine} }

// way is how rows travel: by a mover, or between so many nodes.
type way struct {
	mover moe.Mover
	nodes int
}

func (w way) String() string {
	if w.nodes > 0 {
		return fmt.Sprintf("%d-nodes", w.nodes)
	}
	return w.mover.String()
}

func ways() []way { return []way{{moe.MoverDirect, 0}, {moe.MoverCopyEngine, 0}, {moe.MoverDirect, 2}} }

// The inputs that broke others, each through every variant and mover.
func TestDeviceSmallInputs(t *testing.T) {
	b := device(t)
	for i, in := range []struct {
		name    string
		experts int
		topK    int
		hidden  int
		spec    routing.Spec
		tokens  []int
	}{
		{"one rank alone", 6, 2, 8, routing.Spec{}, []int{5}},
		{"no tokens on rank 0", 8, 2, 8, routing.Spec{}, []int{0, 5}},
		{"no tokens at all", 8, 2, 8, routing.Spec{}, []int{0, 0}},
		{"ragged with zero", 12, 3, 8, routing.Spec{Kind: routing.Zipf, Exponent: 1}, []int{63, 1, 0, 7}},
		{"no expert anywhere", 8, 2, 8, routing.Spec{Kind: routing.Nothing}, []int{4, 3}},
		{"holes", 8, 4, 8, routing.Spec{Holes: 0.4}, []int{9, 4}},
		{"blank tokens", 8, 4, 8, routing.Spec{Blank: 0.4}, []int{9, 4}},
		{"everything to expert 0", 8, 2, 8, routing.Spec{Kind: routing.OneExpert}, []int{9, 40}},
		{"everything to the last rank", 8, 2, 8, routing.Spec{Kind: routing.OneRank, Target: 1}, []int{9, 40}},
		{"one choice", 8, 1, 8, routing.Spec{}, []int{9, 4}},
		{"as many choices as experts", 7, 7, 8, routing.Spec{}, []int{4, 5}},
		{"as many experts as ranks", 4, 2, 8, routing.Spec{}, []int{4, 5, 3, 6}},
		{"fewer experts than ranks", 3, 2, 8, routing.Spec{}, []int{4, 5, 3, 6}},
		{"uneven experts", 11, 5, 8, routing.Spec{}, []int{4, 50}},
		{"129 experts a rank", 258, 9, 8, routing.Spec{}, []int{40, 5}},
		{"more than 32 choices", 387, 40, 8, routing.Spec{}, []int{4, 5}},
		{"hidden 2880", 32, 4, 2880, routing.Spec{}, []int{4, 5}},
		{"hidden 7176", 16, 4, 7176, routing.Spec{}, []int{3, 2}},
		{"many tokens", 32, 4, 2880, routing.Spec{Holes: 0.3, Blank: 0.1}, []int{64, 60}},
		{"many tokens of many ranks", 32, 4, 24, routing.Spec{Holes: 0.3, Blank: 0.1}, []int{64, 60, 1, 64}},
		{"hidden 1", 16, 4, 1, routing.Spec{}, []int{3, 2}},
		{"hidden 3", 16, 4, 3, routing.Spec{}, []int{3, 2}},
	} {
		for m, w := range ways() {
			for v, cfg := range variants(moe.Config{Experts: in.experts, TopK: in.topK, Hidden: in.hidden, MaxTokens: 64}) {
				if b.gpu == nil && (v != (i+m)%5 || m != i%2 && m != 2) {
					continue // the emulation is slow: one variant and mover each, all in turn
				}
				t.Run(fmt.Sprintf("%s/%v/%s", in.name, w, label(cfg)), func(t *testing.T) {
					in.spec.Seed = 11
					data := inputs(t, cfg, in.spec, in.tokens...)
					deviceEngine(t, b.over(w.nodes), len(in.tokens), cfg, moe.DeviceOptions{Mover: w.mover}.Far((i+v/2)%2 == 0), func(ctx context.Context, e *moe.DeviceEngine, d *desk) error {
						if err := deviceTrip(ctx, cfg, e, d, data, nil); err != nil {
							return err
						}
						return deviceTrip(ctx, cfg, e, d, data, ramp(cfg.Hidden))
					})
				})
			}
		}
	}
}

// A bias for each token by itself, also with tokens enough for bulk copies.
func TestDeviceBiasByToken(t *testing.T) {
	b := device(t)
	for i, cfg := range variants(moe.Config{Experts: 4, TopK: 2, Hidden: 40, MaxTokens: 64}) {
		in := inputs(t, cfg, routing.Spec{Holes: 0.3}, 64, 3)
		w := ways()[i%3]
		deviceEngine(t, b.over(w.nodes), 2, cfg, moe.DeviceOptions{Mover: w.mover}, func(ctx context.Context, e *moe.DeviceEngine, d *desk) error {
			rank := e.Team().Rank()
			var bias []float32
			for tok := range in.Tokens(rank) {
				for h := range cfg.Hidden {
					bias = append(bias, float32(h%7)-3.25+float32(tok))
				}
			}
			return deviceTrip(ctx, cfg, e, d, in, bias)
		})
	}
}

// Layers of both traces, on 2 and 4 ranks.
func TestDeviceTraces(t *testing.T) {
	b := device(t)
	tokens, layers := 256, 4
	if b.gpu == nil {
		tokens, layers = 24, 1
	}
	for _, name := range traces.Names() {
		tr, err := traces.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, cfg := range variants(moe.Config{Experts: tr.Experts, TopK: tr.TopK, Hidden: 64, MaxTokens: tokens}) {
			ranks, w := 2+2*(i%2), ways()[(i/2+i)%3]
			t.Run(fmt.Sprintf("%s/%d-ranks/%v/%s", name, ranks, w, label(cfg)), func(t *testing.T) {
				var ins []oracle.Input
				for layer := range min(layers, tr.Layers) {
					var all []routing.Batch
					for rank := range ranks {
						batch, err := tr.Batch(layer, rank, tokens)
						if err != nil {
							t.Fatal(err)
						}
						all = append(all, batch)
					}
					ins = append(ins, withRows(cfg, uint64(layer), all))
				}
				deviceEngine(t, b.over(w.nodes), ranks, cfg, moe.DeviceOptions{Mover: w.mover}.Far(i%3 == 0), func(ctx context.Context, e *moe.DeviceEngine, d *desk) error {
					for layer, in := range ins {
						if err := deviceTrip(ctx, cfg, e, d, in, nil); err != nil {
							return fmt.Errorf("layer %d: %w", layer, err)
						}
					}
					return nil
				})
			})
		}
	}
}

// Two dispatches in flight, a cached one, halves with work between them, and two
// combines of the same rows; on every mover.
func TestDeviceFlight(t *testing.T) {
	b := device(t)
	for i, base := range variants(moe.Config{Experts: 8, TopK: 2, Hidden: 16, MaxTokens: 16, InFlight: 2}) {
		if b.gpu == nil && i > 1 {
			break
		}
		for _, w := range ways() {
			one := inputs(t, base, routing.Spec{Seed: 1, Holes: 0.2}, 9, 16)
			two := inputs(t, base, routing.Spec{Seed: 2, Holes: 0.2}, 12, 3)
			deviceEngine(t, b.over(w.nodes), 2, base, moe.DeviceOptions{Mover: w.mover}, func(ctx context.Context, e *moe.DeviceEngine, d *desk) error {
				rank := e.Team().Rank()
				first, second := d.load(one, rank), d.load(two, rank)
				if err := gathered(ctx, e); err != nil {
					return err
				}
				h1, err := e.StartDispatch(d.stream, first)
				if err != nil {
					return err
				}
				h2, err := e.StartDispatch(d.stream, second)
				if err != nil {
					return err
				}
				if err := h2.Finish(d.stream); err != nil {
					return err
				}
				if err := h1.Finish(d.stream); err != nil {
					return err
				}
				for seed, step := range []struct {
					in oracle.Input
					h  *moe.DeviceDispatched
				}{{two, h2}, {one, h1}, {two, h2}, {two, h2}} {
					if err := deviceRest(ctx, base, e, d, step.in, step.h, nil, seed); err != nil {
						return fmt.Errorf("step %d: %w", seed, err)
					}
				}
				r, err := h1.Routing()
				if err != nil {
					return err
				}
				// Along the first routing with other rows, into both slots; h1 is stale then.
				again := one
				again.X = [][]byte{slices.Clone(one.X[0]), slices.Clone(one.X[1])}
				for _, x := range again.X {
					for i := range x {
						x[i] ^= 0x5a
					}
				}
				for seed := range 3 {
					x := d.load(again, rank)
					if err := gathered(ctx, e); err != nil {
						return err
					}
					h, err := e.DispatchCached(d.stream, r, x.X, x.Scales)
					if err != nil {
						return err
					}
					if err := deviceRest(ctx, base, e, d, again, h, nil, seed); err != nil {
						return fmt.Errorf("cached %d: %w", seed, err)
					}
				}
				err = e.Combine(d.stream, h1, moe.DeviceOutput{Y: first.X, Out: first.X})
				if !errors.Is(err, pe.ErrBadRef) {
					return fmt.Errorf("combine of stale rows: %w", err)
				}
				return deviceTrip(ctx, base, e, d, two, nil)
			})
		}
	}
}

// What is wrong with a call is told on every rank, and the engine goes on.
func TestDeviceRefuses(t *testing.T) {
	b := device(t)
	for _, w := range ways() {
		cfg := moe.Config{Experts: 8, TopK: 2, Hidden: 16, MaxTokens: 16, MaxRows: 20}
		good := inputs(t, cfg, routing.Spec{Seed: 1}, 9, 5)
		for _, c := range []struct {
			name  string
			spoil func(in oracle.Input, x *moe.DeviceInput, d *desk)
			want  error
			both  bool // every rank finds it itself
			as    func(error) bool
		}{
			{"index", func(in oracle.Input, x *moe.DeviceInput, d *desk) {
				idx := slices.Clone(in.Idx[1])
				idx[7] = 8
				x.Idx = up(d, idx)
			}, pe.ErrRange, false, func(err error) bool {
				var e *moe.IndexError
				return errors.As(err, &e) && e.Token == 3 && e.K == 1 && e.Value == 8
			}},
			{"negative", func(in oracle.Input, x *moe.DeviceInput, d *desk) {
				idx := slices.Clone(in.Idx[1])
				idx[4], idx[6] = -2, 99
				x.Idx = up(d, idx)
			}, pe.ErrRange, false, func(err error) bool {
				var e *moe.IndexError
				return errors.As(err, &e) && e.Token == 2 && e.K == 0 && e.Value == -2
			}},
			{"duplicate", func(in oracle.Input, x *moe.DeviceInput, d *desk) {
				idx := slices.Clone(in.Idx[1])
				idx[2], idx[3] = 3, 3
				x.Idx = up(d, idx)
			}, pe.ErrDuplicateExpert, false, func(err error) bool {
				var e *moe.IndexError
				return errors.As(err, &e) && e.Token == 1 && e.K == 1 && e.Value == 3
			}},
			{"tokens", func(_ oracle.Input, x *moe.DeviceInput, _ *desk) { x.Tokens = 17 }, pe.ErrCapacity, false, nil},
			{"no rows", func(_ oracle.Input, x *moe.DeviceInput, _ *desk) { x.X = 0 }, pe.ErrRange, false, nil},
			{"too many rows", func(in oracle.Input, x *moe.DeviceInput, d *desk) {
				x.Tokens = 16
				x.X, x.Weights = up(d, make([]byte, 16*32)), up(d, make([]float32, 32))
				var idx []int32
				for range 16 {
					idx = append(idx, 0, 1)
				}
				x.Idx = up(d, idx)
			}, pe.ErrCapacity, true, nil},
		} {
			t.Run(fmt.Sprintf("%v/%s", w, c.name), func(t *testing.T) {
				deviceEngine(t, b.over(w.nodes), 2, cfg, moe.DeviceOptions{Mover: w.mover}, func(ctx context.Context, e *moe.DeviceEngine, d *desk) error {
					rank := e.Team().Rank()
					x := d.load(good, rank)
					if rank == 0 && c.both { // rank 0 alone would fit
						idx := make([]int32, 18)
						for i := range idx {
							idx[i] = int32(i % 2)
						}
						x.Idx = up(d, idx)
					}
					if rank == 1 {
						c.spoil(good, &x, d)
					}
					if err := gathered(ctx, e); err != nil {
						return err
					}
					h, err := e.Dispatch(d.stream, x)
					if err == nil {
						_, err = h.Wait(ctx)
					}
					var remote *moe.RemoteError
					if !errors.Is(err, c.want) || errors.As(err, &remote) != (rank == 0 && !c.both) || c.as != nil && !c.as(err) {
						return fmt.Errorf("dispatch: %w", err)
					}
					out := d.alloc(16 * 32)
					if err := gathered(ctx, e); err != nil {
						return err
					}
					if h != nil {
						err := e.Combine(d.stream, h, moe.DeviceOutput{Y: out, Out: out})
						if err == nil {
							_, err = h.Wait(ctx)
						}
						if !errors.Is(err, pe.ErrBadRef) {
							return fmt.Errorf("combine of what was refused: %w", err)
						}
					} else if err := e.Combine(d.stream, nil, moe.DeviceOutput{}); !errors.Is(err, pe.ErrBadRef) {
						return fmt.Errorf("combine of nothing: %w", err)
					}
					return deviceTrip(ctx, cfg, e, d, good, nil)
				})
			})
		}
	}
}

// A rank that does not come ends the others' waits by the deadline, and the engine.
func TestDeviceDeadline(t *testing.T) {
	b := device(t)
	cfg := moe.Config{Experts: 4, TopK: 1, Hidden: 8, MaxTokens: 4}
	in := inputs(t, cfg, routing.Spec{}, 4, 4)
	deadline := 200 * time.Millisecond
	if b.gpu == nil {
		deadline = 3 * time.Second // long enough for the emulation's blocks to meet on a busy machine
	}
	for _, nodes := range []int{0, 2} {
		deviceEngine(t, b.over(nodes), 2, cfg, moe.DeviceOptions{Deadline: deadline}, func(ctx context.Context, e *moe.DeviceEngine, d *desk) error {
			if e.Team().Rank() == 1 {
				return nil
			}
			input := d.load(in, 0)
			if _, err := e.Dispatch(d.stream, input); err != nil {
				return err
			}
			h, err := e.Dispatch(d.stream, input) // of another slot: the first one's end is its own
			if err != nil {
				return err
			}
			_, err = h.Wait(ctx)
			var timeout *pe.TimeoutError
			if !errors.As(err, &timeout) || timeout.PE != 1 {
				return fmt.Errorf("dispatch alone: %w", err)
			}
			var broken *moe.BrokenError
			if _, err = e.Dispatch(d.stream, moe.DeviceInput{}); !errors.As(err, &broken) {
				return fmt.Errorf("dispatch of a broken engine: %w", err)
			}
			return nil
		})
	}
}

// Ranks that choose different movers, and configurations that no device takes.
func TestDeviceConfig(t *testing.T) {
	b := device(t)
	ctx := t.Context()
	cfg := moe.Config{Experts: 4, TopK: 1, Hidden: 8, MaxTokens: 4}
	err := pe.Run(ctx, pe.Config{Size: 2, HeapSize: 1 << 20}, func(p *pe.PE) error {
		_, err := moe.NewDevice(ctx, p.Team(), cfg, moe.DeviceOptions{Mover: movers()[p.Rank()]}.On(b.run))
		if !errors.Is(err, pe.ErrMismatch) {
			return fmt.Errorf("different movers: %w", err)
		}
		_, err = moe.NewDevice(ctx, p.Team(), cfg, moe.DeviceOptions{SMs: -1}.On(b.run))
		if !errors.Is(err, pe.ErrConfig) {
			return fmt.Errorf("SMs -1: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
