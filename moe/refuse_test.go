package moe_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"goshmem/moe"
	"goshmem/moe/oracle"
	"goshmem/moe/routing"
	"goshmem/pe"
)

var small = moe.Config{Experts: 6, TopK: 2, Hidden: 8, MaxTokens: 4}

// call is the arguments of one rank.
type call struct {
	x, scales []byte
	idx       []int32
	w         []float32
}

func argsOf(in oracle.Input, rank int) call {
	return call{in.X[rank], in.Scales[rank], slices.Clone(in.Idx[rank]), slices.Clone(in.Weights[rank])}
}

// One rank's arguments are bad: it gets the error, the others get it as that
// rank's, and the next call goes well. Earlier rows are untouched.
func TestBadDispatch(t *testing.T) {
	cases := []struct {
		name   string
		change func(c *call)
		is     error
		want   error
	}{
		{"index E", func(c *call) { c.idx[3] = 6 }, pe.ErrRange, &moe.IndexError{Token: 1, K: 1, Value: 6, Err: pe.ErrRange}},
		{"index -2", func(c *call) { c.idx[0] = -2 }, pe.ErrRange, &moe.IndexError{Token: 0, K: 0, Value: -2, Err: pe.ErrRange}},
		{"duplicate", func(c *call) { c.idx[4], c.idx[5] = 3, 3 }, pe.ErrDuplicateExpert, &moe.IndexError{Token: 2, K: 1, Value: 3, Err: pe.ErrDuplicateExpert}},
		{"too many tokens", func(c *call) {
			c.idx, c.w, c.x = make([]int32, 10), make([]float32, 10), make([]byte, 80)
		}, pe.ErrCapacity, &moe.CapacityError{What: "tokens", PE: -1, Have: 5, Most: 4}},
		{"short x", func(c *call) { c.x = c.x[1:] }, pe.ErrRange, &moe.ArgumentError{Arg: "x", Have: 47, Want: 48}},
		{"scales", func(c *call) { c.scales = []byte{1} }, pe.ErrRange, &moe.ArgumentError{Arg: "scales", Have: 1, Want: 0}},
		{"weights", func(c *call) { c.w = c.w[1:] }, pe.ErrRange, &moe.ArgumentError{Arg: "weights", Have: 5, Want: 6}},
		{"half a token", func(c *call) { c.idx = c.idx[1:] }, pe.ErrRange, &moe.ArgumentError{Arg: "idx", Have: 5, Want: 6}},
	}
	in := inputs(t, small, routing.Spec{Seed: 3}, 3, 3, 3)
	each(t, func(t *testing.T, l lane) {
		engine(t, l, 3, small, func(ctx context.Context, e *moe.Engine) error {
			rank := e.Team().Rank()
			for i, c := range cases {
				good := argsOf(in, rank)
				before, err := e.Dispatch(ctx, good.x, good.scales, good.idx, good.w)
				if err != nil {
					return fmt.Errorf("before %s: %w", c.name, err)
				}
				bad, culprit := good, i%3
				if rank == culprit {
					bad = argsOf(in, rank)
					c.change(&bad)
				}
				_, err = e.Dispatch(ctx, bad.x, bad.scales, bad.idx, bad.w)
				if err := sameFailure(rank, culprit, err, c.is, c.want); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				if err := sameDispatch(small, in, before, rank); err != nil {
					return fmt.Errorf("rows of before, after %s: %w", c.name, err)
				}
				if err := combineAndCompare(ctx, small, e, in, before, nil, i); err != nil {
					return fmt.Errorf("combine after %s: %w", c.name, err)
				}
			}
			return nil
		})
	})
}

// sameFailure checks what a rank got when culprit failed with want.
func sameFailure(rank, culprit int, err, is, want error) error {
	if !errors.Is(err, is) {
		return fmt.Errorf("error %v, want %v", err, is)
	}
	inner := err
	var remote *moe.RemoteError
	if errors.As(err, &remote) != (rank != culprit) {
		return fmt.Errorf("rank %d, culprit %d: %v", rank, culprit, err)
	}
	if remote != nil {
		if remote.PE != culprit {
			return fmt.Errorf("names pe %d, want %d: %v", remote.PE, culprit, err)
		}
		inner = remote.Err
	}
	if want == nil {
		return nil
	}
	have := reflect.New(reflect.TypeOf(want))
	if !errors.As(inner, have.Interface()) || !reflect.DeepEqual(have.Elem().Interface(), want) {
		return fmt.Errorf("%#v, want %#v", inner, want)
	}
	return nil
}

func TestBadCombine(t *testing.T) {
	cases := []struct {
		name   string
		change func(d **moe.Dispatched, y, out *[]byte, bias *[]float32)
		is     error
		want   error
	}{
		{"short y", func(_ **moe.Dispatched, y, _ *[]byte, _ *[]float32) { *y = append(*y, 0) }, pe.ErrRange, nil},
		{"out", func(_ **moe.Dispatched, _, out *[]byte, _ *[]float32) { *out = (*out)[1:] }, pe.ErrRange, &moe.ArgumentError{Arg: "out", Have: 47, Want: 48}},
		{"bias", func(_ **moe.Dispatched, _, _ *[]byte, bias *[]float32) { *bias = make([]float32, 7) }, pe.ErrRange, &moe.ArgumentError{Arg: "bias", Have: 7, Want: 24}},
		{"no handle", func(d **moe.Dispatched, _, _ *[]byte, _ *[]float32) { *d = nil }, pe.ErrBadRef, nil},
		{"foreign handle", func(d **moe.Dispatched, _, _ *[]byte, _ *[]float32) { *d = &moe.Dispatched{} }, pe.ErrBadRef, nil},
	}
	in := inputs(t, small, routing.Spec{Seed: 4}, 3, 3, 3)
	each(t, func(t *testing.T, l lane) {
		engine(t, l, 3, small, func(ctx context.Context, e *moe.Engine) error {
			rank := e.Team().Rank()
			good := argsOf(in, rank)
			for _, again := range []bool{false, true} { // behind a dispatch, and behind a combine
				for i, c := range cases {
					d, err := e.Dispatch(ctx, good.x, good.scales, good.idx, good.w)
					if err != nil {
						return err
					}
					y := outputs(small, e, d, 0)
					if again {
						if err := combineAndCompare(ctx, small, e, in, d, nil, 7); err != nil {
							return err
						}
					}
					out, bias, h, culprit := make([]byte, 48), []float32(nil), d, (i+1)%3
					if rank == culprit {
						c.change(&h, &y, &out, &bias)
					}
					_, err = e.Combine(ctx, h, y, bias, out)
					if err := sameFailure(rank, culprit, err, c.is, c.want); err != nil {
						return fmt.Errorf("%s: %w", c.name, err)
					}
					for range 2 {
						if err := combineAndCompare(ctx, small, e, in, d, ramp(8), i); err != nil {
							return fmt.Errorf("combine after %s: %w", c.name, err)
						}
					}
				}
			}
			return nil
		})
	})
}

// A handle whose rows were overwritten is refused everywhere; so is x that lies
// in the rows to be received.
func TestStaleHandle(t *testing.T) {
	in := inputs(t, small, routing.Spec{Seed: 5}, 3, 2)
	each(t, func(t *testing.T, l lane) {
		engine(t, l, 2, small, func(ctx context.Context, e *moe.Engine) error {
			rank := e.Team().Rank()
			a := argsOf(in, rank)
			old, err := e.Dispatch(ctx, a.x, a.scales, a.idx, a.w)
			if err != nil {
				return err
			}
			y := outputs(small, e, old, 0)
			d, err := e.Dispatch(ctx, a.x, a.scales, a.idx, a.w)
			if err != nil {
				return err
			}
			if _, err := e.Combine(ctx, old, y, nil, make([]byte, 16*in.Tokens(rank))); !errors.Is(err, pe.ErrBadRef) {
				return fmt.Errorf("stale combine: %v", err)
			}
			if _, err := old.Routing(); !errors.Is(err, pe.ErrBadRef) {
				return fmt.Errorf("stale routing: %v", err)
			}
			r, err := d.Routing()
			if err != nil {
				return err
			}
			alias := a.x
			if rank == 1 {
				alias = d.Rows[:len(a.x)]
			}
			_, err = e.DispatchCached(ctx, r, alias, nil)
			if err := sameFailure(rank, 1, err, pe.ErrAlias, nil); rank == 1 && err != nil {
				return err
			}
			if err == nil {
				return errors.New("x in the receive buffer passed")
			}
			_, err = e.DispatchCached(ctx, nil, a.x, nil)
			if !errors.Is(err, pe.ErrBadRef) {
				return fmt.Errorf("no routing: %v", err)
			}
			return combineAndCompare(ctx, small, e, in, d, nil, 2)
		})
	})
}

// A handle of another engine is refused, and the engine it is given to goes on.
func TestForeignHandle(t *testing.T) {
	in := inputs(t, small, routing.Spec{Seed: 6}, 3, 2)
	world(t, lanes()[0], 2, 2*room(t, small, 2), func(ctx context.Context, p *pe.PE) error {
		a, err := moe.New(ctx, p.Team(), small)
		if err != nil {
			return err
		}
		b, err := moe.New(ctx, p.Team(), small)
		if err != nil {
			return err
		}
		args := argsOf(in, p.Rank())
		d, err := a.Dispatch(ctx, args.x, nil, args.idx, args.w)
		if err != nil {
			return err
		}
		r, err := d.Routing()
		if err != nil {
			return err
		}
		if _, err := b.Combine(ctx, d, outputs(small, a, d, 0), nil, make([]byte, 16*in.Tokens(p.Rank()))); !errors.Is(err, pe.ErrBadRef) {
			return fmt.Errorf("combine: %v", err)
		}
		if _, err := b.DispatchCached(ctx, r, args.x, nil); !errors.Is(err, pe.ErrBadRef) {
			return fmt.Errorf("cached dispatch: %v", err)
		}
		if err := roundTrip(ctx, small, b, in, nil); err != nil {
			return err
		}
		return errors.Join(a.Close(ctx), b.Close(ctx))
	})
}

// Ranks that make different calls, or repeat different dispatches, are told so.
func TestDifferentCalls(t *testing.T) {
	in := inputs(t, small, routing.Spec{Seed: 7}, 3, 2)
	each(t, func(t *testing.T, l lane) {
		engine(t, l, 2, small, func(ctx context.Context, e *moe.Engine) error {
			rank := e.Team().Rank()
			a := argsOf(in, rank)
			var kept []*moe.Routing
			for range 2 {
				d, err := e.Dispatch(ctx, a.x, nil, a.idx, a.w)
				if err != nil {
					return err
				}
				r, err := d.Routing()
				if err != nil {
					return err
				}
				kept = append(kept, r)
			}
			var m *pe.MismatchError
			_, err := e.DispatchCached(ctx, kept[rank], a.x, nil)
			if !errors.As(err, &m) || m.PE != 1-rank || m.Field != "routing" {
				return fmt.Errorf("different routings: %v", err)
			}
			if rank == 0 {
				_, err = e.DispatchCached(ctx, kept[0], a.x, nil)
			} else {
				_, err = e.Dispatch(ctx, a.x, nil, a.idx, a.w)
			}
			if !errors.As(err, &m) || m.PE != 1-rank || m.Field != "call" {
				return fmt.Errorf("different calls: %v", err)
			}
			return roundTrip(ctx, small, e, in, nil)
		})
	})
}

// A receiver that would get more rows than Config.MaxRows is ErrCapacity on every
// rank; just as many are fine.
func TestMaxRows(t *testing.T) {
	for _, layout := range []moe.Layout{moe.RankMajor, moe.ExpertMajor} {
		cfg := small
		cfg.Layout, cfg.MaxRows = layout, 6
		fits := inputs(t, cfg, routing.Spec{Kind: routing.OneExpert, Target: 4}, 3, 3)
		tooMany := inputs(t, cfg, routing.Spec{Kind: routing.OneExpert, Target: 4}, 3, 4)
		engine(t, lanes()[0], 2, cfg, func(ctx context.Context, e *moe.Engine) error {
			a := argsOf(tooMany, e.Team().Rank())
			_, err := e.Dispatch(ctx, a.x, nil, a.idx, a.w)
			var c *moe.CapacityError
			if !errors.As(err, &c) || *c != (moe.CapacityError{What: "rows", PE: 1, Have: 7, Most: 6}) || !errors.Is(err, pe.ErrCapacity) {
				return fmt.Errorf("7 rows: %v", err)
			}
			return roundTrip(ctx, cfg, e, fits, nil)
		})
	}
}

func TestErrorTexts(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&moe.IndexError{Token: 1, K: 2, Value: 6, Err: pe.ErrRange}, "token 1, k 2: expert 6: out of range"},
		{&moe.CapacityError{What: "tokens", PE: -1, Have: 5, Most: 4}, "5 tokens, at most 4: over capacity"},
		{&moe.CapacityError{What: "rows", PE: 2, Have: 5, Most: 4}, "5 rows at pe 2, at most 4: over capacity"},
		{&moe.ArgumentError{Arg: "x", Have: 1, Want: 2}, "x has 1 elements, want 2: out of range"},
		{&moe.RemoteError{PE: 3, Err: pe.ErrRange}, "pe 3: out of range"},
		{&moe.BrokenError{PE: 3, Err: pe.ErrTimeout}, "call failed under way at pe 3: timed out"},
		{&moe.ConfigError{Field: "TopK", Value: 0, Want: "1"}, "moe: TopK = 0: want 1: bad configuration"},
	} {
		if c.err.Error() != c.want {
			t.Errorf("%q, want %q", c.err, c.want)
		}
	}
	if s := moe.Layout(9).String() + moe.DType(9).String() + moe.CombineKind(9).String(); !strings.Contains(s, "layout(9)") {
		t.Error(s)
	}
}
