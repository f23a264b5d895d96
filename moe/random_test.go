package moe_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"goshmem/moe"
	"goshmem/moe/oracle"
	"goshmem/moe/routing"
	"goshmem/pe"
)

// Random configurations and random sequences of calls, bad ones among them, on
// every rank alike; each result is compared with the oracle. A failure names its
// seed, which makes the same sequence again.

type step struct {
	kind    int // see the constants
	in      int // index of the input
	handle  int // how many dispatches back, or which routing
	culprit int
	seed    int
}

const (
	doDispatch = iota
	doCached
	doCombine
	doBadDispatch
	doBadCombine
	kinds
)

func randomConfig(rng *rand.Rand) moe.Config {
	cfg := moe.Config{
		Experts:   1 + rng.IntN(12),
		Hidden:    1 + rng.IntN(20),
		MaxTokens: rng.IntN(20),
		DType:     moe.DType(rng.IntN(3)),
		Layout:    moe.Layout(rng.IntN(2)),
		Combine:   moe.CombineKind(rng.IntN(2)),
		Output:    moe.DType(rng.IntN(2)),
		Share:     moe.DType(rng.IntN(2)),
		InFlight:  1 + rng.IntN(3),
	}
	cfg.TopK = 1 + rng.IntN(cfg.Experts)
	if cfg.DType == moe.Opaque {
		cfg.RowBytes = int64(1 + rng.IntN(40))
	}
	cfg.ScaleBytes = int64(rng.IntN(2) * (1 + rng.IntN(5)))
	if cfg.Layout == moe.ExpertMajor {
		cfg.Alignment = []int{0, 1, 3, 16}[rng.IntN(4)]
	}
	return cfg
}

func TestRandomCalls(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	each(t, func(t *testing.T, l lane) {
		for seed := range rounds {
			t.Run(fmt.Sprint("seed-", seed), func(t *testing.T) { randomCalls(t, l, uint64(seed)) })
		}
	})
}

func randomCalls(t *testing.T, l lane, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	ranks := 1 + rng.IntN(5)
	cfg := randomConfig(rng)
	var ins []oracle.Input
	for i := range 3 {
		tokens := make([]int, ranks)
		for r := range tokens {
			tokens[r] = rng.IntN(cfg.MaxTokens + 1)
		}
		spec := routing.Spec{Seed: seed*10 + uint64(i), Kind: routing.Kind(rng.IntN(2)), Exponent: 1, Holes: float64(rng.IntN(3)) * 0.3}
		ins = append(ins, inputs(t, cfg, spec, tokens...))
	}
	steps := make([]step, 25)
	for i := range steps {
		steps[i] = step{rng.IntN(kinds), rng.IntN(len(ins)), rng.IntN(4), rng.IntN(ranks), i}
	}
	engine(t, l, ranks, cfg, func(ctx context.Context, e *moe.Engine) error {
		r := &runner{cfg: cfg, e: e, ins: ins, rank: e.Team().Rank()}
		for i, s := range steps {
			if err := r.do(ctx, s); err != nil {
				return fmt.Errorf("step %d %+v of %+v: %w", i, s, cfg, err)
			}
		}
		return nil
	})
}

// runner carries out steps on one rank.
type runner struct {
	cfg  moe.Config
	e    *moe.Engine
	ins  []oracle.Input
	rank int

	live []live // dispatches that can be combined, oldest first
	kept []kept
}

type live struct {
	d  *moe.Dispatched
	in oracle.Input
}

type kept struct {
	r  *moe.Routing
	in oracle.Input
}

func (r *runner) do(ctx context.Context, s step) error {
	in := r.ins[s.in]
	switch s.kind {
	case doDispatch:
		d, err := r.e.Dispatch(ctx, in.X[r.rank], in.Scales[r.rank], in.Idx[r.rank], in.Weights[r.rank])
		if err != nil {
			return err
		}
		if s.handle == 0 {
			k, err := d.Routing()
			if err != nil {
				return err
			}
			r.kept = append(r.kept, kept{k, in})
		}
		r.dispatched(d, in)
		return sameDispatch(r.cfg, in, d, r.rank)
	case doCached:
		if len(r.kept) == 0 {
			return nil
		}
		k := r.kept[s.handle%len(r.kept)]
		d, err := r.e.DispatchCached(ctx, k.r, k.in.X[r.rank], k.in.Scales[r.rank])
		if err != nil {
			return err
		}
		r.dispatched(d, k.in)
		return sameDispatch(r.cfg, k.in, d, r.rank)
	case doCombine:
		if len(r.live) == 0 {
			return nil
		}
		v := r.live[s.handle%len(r.live)]
		if err := sameDispatch(r.cfg, v.in, v.d, r.rank); err != nil {
			return fmt.Errorf("rows before the combine: %w", err)
		}
		return combineAndCompare(ctx, r.cfg, r.e, v.in, v.d, ramp(r.cfg.Hidden), s.seed)
	case doBadDispatch:
		a := argsOf(in, r.rank)
		if r.rank == s.culprit {
			a.x = append(a.x[:len(a.x):len(a.x)], 1)
		}
		_, err := r.e.Dispatch(ctx, a.x, a.scales, a.idx, a.w)
		// It has taken its turn all the same.
		r.turn()
		return sameFailure(r.rank, s.culprit, err, pe.ErrRange, nil)
	default:
		if len(r.live) == 0 {
			return nil
		}
		v := r.live[s.handle%len(r.live)]
		out := make([]byte, v.in.Tokens(r.rank)*r.cfg.Hidden*2)
		if r.rank == s.culprit {
			out = append(out, 1)
		}
		_, err := r.e.Combine(ctx, v.d, outputs(r.cfg, r.e, v.d, 1), nil, out)
		return sameFailure(r.rank, s.culprit, err, pe.ErrRange, nil)
	}
}

// turns is how many dispatches ago each live one was; a dispatch that was refused
// leaves rows alone but moves the turn on.
func (r *runner) dispatched(d *moe.Dispatched, in oracle.Input) {
	r.turn()
	r.live = append(r.live, live{d, in})
}

// turn drops the handles whose rows may be gone: those that report so.
func (r *runner) turn() {
	var still []live
	for _, v := range r.live {
		if !errors.Is(probe(v.d), pe.ErrBadRef) {
			still = append(still, v)
		}
	}
	r.live = still
}

func probe(d *moe.Dispatched) error {
	_, err := d.Routing()
	return err
}
