package moe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"goshmem/moe"
	"goshmem/moe/oracle"
	"goshmem/moe/routing"
	"goshmem/pe"
)

// Two and three dispatches in flight share nothing: all are started, waited for
// in another order, and combined in a third.
func TestInFlight(t *testing.T) {
	each(t, func(t *testing.T, l lane) {
		for _, cfg := range variants(moe.Config{Experts: 10, TopK: 3, Hidden: 24, MaxTokens: 16}) {
			t.Run(label(cfg), func(t *testing.T) {
				cfg.InFlight = 3
				var ins []oracle.Input
				for i, tokens := range [][]int{{5, 9, 2}, {0, 16, 1}, {7, 7, 7}} {
					ins = append(ins, inputs(t, cfg, routing.Spec{Seed: uint64(i), Kind: routing.Zipf, Exponent: 1}, tokens...))
				}
				engine(t, l, 3, cfg, func(ctx context.Context, e *moe.Engine) error {
					for range 3 {
						if err := threeAtOnce(ctx, cfg, e, ins); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	})
}

func threeAtOnce(ctx context.Context, cfg moe.Config, e *moe.Engine, ins []oracle.Input) error {
	rank := e.Team().Rank()
	pending := make([]*moe.Pending[*moe.Dispatched], 3)
	for i, in := range ins {
		a := argsOf(in, rank)
		p, err := e.StartDispatch(ctx, a.x, a.scales, a.idx, a.w)
		if err != nil {
			return err
		}
		// The routing was copied.
		clear(a.idx)
		clear(a.w)
		pending[i] = p
	}
	ds := make([]*moe.Dispatched, 3)
	for _, i := range []int{2, 0, 1} {
		d, err := pending[i].Wait(ctx)
		if err != nil {
			return err
		}
		ds[i] = d
	}
	combining := make([]*moe.Pending[moe.Traffic], 3)
	outs := make([][]byte, 3)
	for _, i := range []int{1, 2, 0} {
		if err := sameDispatch(cfg, ins[i], ds[i], rank); err != nil {
			return fmt.Errorf("dispatch %d: %w", i, err)
		}
		outs[i] = fill(make([]byte, ins[i].Tokens(rank)*cfg.Hidden*2))
		p, err := e.StartCombine(ctx, ds[i], outputs(cfg, e, ds[i], i), nil, outs[i])
		if err != nil {
			return err
		}
		combining[i] = p
	}
	for i, p := range combining {
		if _, err := p.Wait(ctx); err != nil {
			return err
		}
		if err := sameBytes(outs[i], wantCombine(cfg, ins[i], rank, i, nil), cfg.Hidden); err != nil {
			return fmt.Errorf("combine %d: %w", i, err)
		}
	}
	return nil
}

// A call on rows that another one still works on would block; it can be tried
// again after a wait. A wait that gives up leaves the call going.
func TestWouldBlock(t *testing.T) {
	in := inputs(t, small, routing.Spec{}, 3, 2)
	each(t, func(t *testing.T, l lane) {
		late := make(chan struct{}) // holds rank 1 back
		engine(t, l, 2, small, func(ctx context.Context, e *moe.Engine) error {
			rank := e.Team().Rank()
			a := argsOf(in, rank)
			if rank == 1 {
				<-late
			}
			p, err := e.StartDispatch(ctx, a.x, nil, a.idx, a.w)
			if err != nil {
				return err
			}
			if rank == 0 {
				if _, err := e.StartDispatch(ctx, a.x, nil, a.idx, a.w); !errors.Is(err, pe.ErrWouldBlock) {
					return fmt.Errorf("start: %v", err)
				}
				if _, err := e.Dispatch(ctx, a.x, nil, a.idx, a.w); !errors.Is(err, pe.ErrWouldBlock) {
					return fmt.Errorf("dispatch: %v", err)
				}
				short, cancel := context.WithCancel(ctx)
				cancel()
				if _, err := p.Wait(short); !errors.Is(err, context.Canceled) {
					return fmt.Errorf("wait: %v", err)
				}
				select {
				case <-p.Done():
					return errors.New("done without rank 1")
				default:
				}
				close(late)
			}
			d, err := p.Wait(ctx)
			if err != nil {
				return err
			}
			if again, err := p.Wait(ctx); again != d || err != nil {
				return fmt.Errorf("second wait: %v", err)
			}
			return combineAndCompare(ctx, small, e, in, d, nil, 1)
		})
	})
}

// Errors of arguments come from the wait, on every rank.
func TestStartWithBadArguments(t *testing.T) {
	in := inputs(t, small, routing.Spec{}, 3, 2)
	each(t, func(t *testing.T, l lane) {
		engine(t, l, 2, small, func(ctx context.Context, e *moe.Engine) error {
			rank := e.Team().Rank()
			a := argsOf(in, rank)
			if rank == 0 {
				a.idx[0] = 99
			}
			p, err := e.StartDispatch(ctx, a.x, nil, a.idx, a.w)
			if err != nil {
				return err
			}
			_, err = p.Wait(ctx)
			if err := sameFailure(rank, 0, err, pe.ErrRange, nil); err != nil {
				return err
			}
			return roundTrip(ctx, small, e, in, nil)
		})
	})
}

// A routing kept is repeated with other rows, long after its own dispatch, and
// its handle combines.
func TestCached(t *testing.T) {
	each(t, func(t *testing.T, l lane) {
		for _, cfg := range variants(moe.Config{Experts: 10, TopK: 3, Hidden: 16, MaxTokens: 16}) {
			t.Run(label(cfg), func(t *testing.T) {
				cfg.InFlight = 2
				spec := routing.Spec{Seed: 8, Holes: 0.2}
				a := inputs(t, cfg, spec, 5, 0, 9)
				other := inputs(t, cfg, routing.Spec{Seed: 9}, 16, 3, 1)
				b := withRows(cfg, 77, []routing.Batch{
					{TopK: 3, Idx: a.Idx[0], Weights: a.Weights[0]},
					{TopK: 3, Idx: a.Idx[1], Weights: a.Weights[1]},
					{TopK: 3, Idx: a.Idx[2], Weights: a.Weights[2]},
				})
				engine(t, l, 3, cfg, func(ctx context.Context, e *moe.Engine) error {
					rank := e.Team().Rank()
					d, err := e.Dispatch(ctx, a.X[rank], a.Scales[rank], a.Idx[rank], a.Weights[rank])
					if err != nil {
						return err
					}
					r, err := d.Routing()
					if err != nil {
						return err
					}
					if r.Tokens() != a.Tokens(rank) {
						return fmt.Errorf("%d tokens", r.Tokens())
					}
					for range 5 { // the slot of d goes to others meanwhile
						if err := roundTrip(ctx, cfg, e, other, nil); err != nil {
							return err
						}
					}
					for i := range 3 {
						var d *moe.Dispatched
						if i == 0 {
							p, err := e.StartDispatchCached(ctx, r, b.X[rank], b.Scales[rank])
							if err != nil {
								return err
							}
							if d, err = p.Wait(ctx); err != nil {
								return err
							}
						} else if d, err = e.DispatchCached(ctx, r, b.X[rank], b.Scales[rank]); err != nil {
							return err
						}
						if err := sameDispatch(cfg, b, d, rank); err != nil {
							return err
						}
						for j := range 2 { // twice in a row from one handle
							if err := combineAndCompare(ctx, cfg, e, b, d, ramp(cfg.Hidden), j); err != nil {
								return err
							}
						}
					}
					return roundTrip(ctx, cfg, e, other, nil)
				})
			})
		}
	})
}

// The rows of before a failed or shorter dispatch never show through: padding is
// zero even where a larger dispatch has been.
func TestPaddingIsZero(t *testing.T) {
	cfg := moe.Config{Experts: 4, TopK: 2, Hidden: 8, MaxTokens: 40, Layout: moe.ExpertMajor, Alignment: 16, ScaleBytes: 3, DType: moe.Opaque, RowBytes: 9}
	large := inputs(t, cfg, routing.Spec{Seed: 1}, 40, 40)
	few := inputs(t, cfg, routing.Spec{Seed: 2}, 1, 2)
	engine(t, lanes()[0], 2, cfg, func(ctx context.Context, e *moe.Engine) error {
		for _, in := range []oracle.Input{large, few, large, few} {
			if err := roundTrip(ctx, cfg, e, in, nil); err != nil {
				return err
			}
		}
		return nil
	})
}
