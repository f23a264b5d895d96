package moe_test

import (
	"context"
	"fmt"
	"testing"

	"goshmem/moe"
	"goshmem/moe/routing"
)

// variants are the configurations that every input goes through: both layouts,
// both combines, all types.
func variants(base moe.Config) []moe.Config {
	var out []moe.Config
	add := func(change func(*moe.Config)) {
		c := base
		change(&c)
		out = append(out, c)
	}
	add(func(c *moe.Config) {})
	add(func(c *moe.Config) { c.Combine, c.DType, c.Output = moe.WeightsAtExpert, moe.FP32, moe.FP32 })
	add(func(c *moe.Config) { c.Layout, c.Alignment, c.Output = moe.ExpertMajor, 16, moe.FP32 })
	add(func(c *moe.Config) {
		c.Layout, c.Alignment, c.Combine, c.Share = moe.ExpertMajor, 1, moe.WeightsAtExpert, moe.FP32
		c.DType, c.RowBytes, c.ScaleBytes = moe.Opaque, int64(c.Hidden), 4
	})
	add(func(c *moe.Config) {
		c.Layout, c.Alignment, c.Combine = moe.ExpertMajor, 128, moe.WeightsAtExpert
	})
	return out
}

func label(c moe.Config) string {
	return fmt.Sprintf("%v-%v-a%d-%v-y-%v-share-%v", c.Layout, c.DType, c.Alignment, c.Combine, c.Output, c.Share)
}

// The inputs that broke others, each through every variant and lane.
func TestSmallInputs(t *testing.T) {
	type input struct {
		name    string
		experts int
		topK    int
		hidden  int
		spec    routing.Spec
		tokens  []int
	}
	inputsList := []input{
		{"one rank alone", 6, 2, 8, routing.Spec{}, []int{5}},
		{"no tokens on rank 0", 8, 2, 8, routing.Spec{}, []int{0, 5}},
		{"no tokens at all", 8, 2, 8, routing.Spec{}, []int{0, 0, 0}},
		{"ragged with zero", 12, 3, 8, routing.Spec{Kind: routing.Zipf, Exponent: 1}, []int{63, 1, 0, 7}},
		{"no expert anywhere", 8, 2, 8, routing.Spec{Kind: routing.Nothing}, []int{4, 3}},
		{"holes", 8, 4, 8, routing.Spec{Holes: 0.4}, []int{9, 4, 6}},
		{"blank tokens", 8, 4, 8, routing.Spec{Blank: 0.4}, []int{9, 4, 6}},
		{"everything to expert 0", 8, 2, 8, routing.Spec{Kind: routing.OneExpert}, []int{9, 4, 6}},
		{"everything to the last rank", 8, 2, 8, routing.Spec{Kind: routing.OneRank, Target: 2}, []int{9, 4, 6}},
		{"hot experts", 16, 4, 8, routing.Spec{Kind: routing.Hot, Hot: 2, HotShare: 0.8}, []int{9, 4, 6, 11, 2}},
		{"one choice", 8, 1, 8, routing.Spec{}, []int{9, 4}},
		{"as many choices as experts", 7, 7, 8, routing.Spec{}, []int{4, 5, 3}},
		{"as many experts as ranks", 4, 2, 8, routing.Spec{}, []int{4, 5, 3, 6}},
		{"fewer experts than ranks", 3, 2, 8, routing.Spec{}, []int{4, 5, 3, 6, 1}},
		{"uneven experts", 11, 5, 8, routing.Spec{}, []int{4, 5, 3}},
		{"129 experts a rank", 387, 9, 8, routing.Spec{}, []int{4, 5, 3}},
		{"more than 32 choices", 387, 40, 8, routing.Spec{}, []int{4, 5}},
		{"hidden 2880", 32, 4, 2880, routing.Spec{}, []int{4, 5}},
		{"hidden 7176", 16, 4, 7176, routing.Spec{}, []int{3, 2, 1}},
		{"hidden 1", 16, 4, 1, routing.Spec{}, []int{3, 2, 1}},
	}
	each(t, func(t *testing.T, l lane) {
		for _, in := range inputsList {
			if l.ring == 1 && in.hidden > 1000 {
				continue // the ring has seen every pattern by now; only bytes grow
			}
			base := moe.Config{Experts: in.experts, TopK: in.topK, Hidden: in.hidden, MaxTokens: 64}
			for _, cfg := range variants(base) {
				t.Run(in.name+"/"+label(cfg), func(t *testing.T) {
					in.spec.Seed = 11
					data := inputs(t, cfg, in.spec, in.tokens...)
					engine(t, l, len(in.tokens), cfg, func(ctx context.Context, e *moe.Engine) error {
						if err := roundTrip(ctx, cfg, e, data, nil); err != nil {
							return err
						}
						// Once more: nothing of the first call is left behind.
						return roundTrip(ctx, cfg, e, data, ramp(cfg.Hidden))
					})
				})
			}
		}
	})
}

// One rank whose tokens all have no expert, and one that nobody chooses.
func TestOneRankWithoutExperts(t *testing.T) {
	each(t, func(t *testing.T, l lane) {
		for _, cfg := range variants(moe.Config{Experts: 9, TopK: 2, Hidden: 8, MaxTokens: 8}) {
			data := without(inputs(t, cfg, routing.Spec{Kind: routing.OneRank, Target: 0}, 5, 8, 3), 1)
			engine(t, l, 3, cfg, func(ctx context.Context, e *moe.Engine) error {
				return roundTrip(ctx, cfg, e, data, ramp(cfg.Hidden))
			})
		}
	})
}

// A bias for each token by itself.
func TestBiasByToken(t *testing.T) {
	for _, cfg := range variants(moe.Config{Experts: 4, TopK: 1, Hidden: 6, MaxTokens: 8}) {
		in := inputs(t, cfg, routing.Spec{Holes: 0.3}, 5, 3)
		engine(t, lanes()[0], 2, cfg, func(ctx context.Context, e *moe.Engine) error {
			rank := e.Team().Rank()
			d, err := e.Dispatch(ctx, in.X[rank], in.Scales[rank], in.Idx[rank], in.Weights[rank])
			if err != nil {
				return err
			}
			var bias []float32
			var want []byte
			for tok := range in.Tokens(rank) {
				b := ramp(cfg.Hidden)
				for h := range b {
					b[h] += float32(tok)
				}
				bias = append(bias, b...)
				row := cfg.Hidden * 2
				want = append(want, wantCombine(cfg, in, rank, 3, b)[tok*row:(tok+1)*row]...)
			}
			out := make([]byte, len(want))
			if _, err := e.Combine(ctx, d, outputs(cfg, e, d, 3), bias, out); err != nil {
				return err
			}
			return sameBytes(out, want, cfg.Hidden)
		})
	}
}

// The rows received may be the experts' output, and the sums may be written over
// it.
func TestInPlace(t *testing.T) {
	cfg := moe.Config{Experts: 3, TopK: 1, Hidden: 6, MaxTokens: 8}
	in := inputs(t, cfg, routing.Spec{}, 7, 7, 7)
	for r := range 3 { // as many rows come as tokens go
		for tok := range 7 {
			in.Idx[r][tok] = int32((r + 1) % 3)
		}
	}
	each(t, func(t *testing.T, l lane) {
		engine(t, l, 3, cfg, func(ctx context.Context, e *moe.Engine) error {
			rank := e.Team().Rank()
			d, err := e.Dispatch(ctx, in.X[rank], in.Scales[rank], in.Idx[rank], in.Weights[rank])
			if err != nil {
				return err
			}
			copy(d.Rows, outputs(cfg, e, d, 4))
			if _, err := e.Combine(ctx, d, d.Rows, nil, d.Rows); err != nil {
				return err
			}
			return sameBytes(d.Rows, wantCombine(cfg, in, rank, 4, nil), cfg.Hidden)
		})
	})
}
