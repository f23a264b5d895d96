package moe_test

import (
	"context"
	"fmt"
	"testing"

	"goshmem/moe"
	"goshmem/moe/routing"
)

// Many tokens, the counts as others' bug reports have them.
func TestManyTokens(t *testing.T) {
	if testing.Short() {
		t.Skip("large")
	}
	for _, c := range []struct {
		name   string
		cfg    moe.Config
		tokens []int
	}{
		{"ragged", moe.Config{Experts: 16, TopK: 2, Hidden: 8}, []int{4095, 1, 0, 7}},
		{"65536", moe.Config{Experts: 8, TopK: 1, Hidden: 2, Layout: moe.ExpertMajor, Alignment: 128}, []int{65536, 100}},
		{"131072", moe.Config{Experts: 8, TopK: 1, Hidden: 2, Combine: moe.WeightsAtExpert}, []int{131072, 0, 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range c.tokens {
				c.cfg.MaxTokens = max(c.cfg.MaxTokens, n)
			}
			in := inputs(t, c.cfg, routing.Spec{Seed: 21}, c.tokens...)
			engine(t, lanes()[0], len(c.tokens), c.cfg, func(ctx context.Context, e *moe.Engine) error {
				return roundTrip(ctx, c.cfg, e, in, nil)
			})
		})
	}
}

// Rows whose offsets lie far beyond 4 GiB: memory is sparse, and only what is
// touched exists.
func TestBeyond4GiB(t *testing.T) {
	if raceBuild {
		t.Skip("in race builds the heap is Go memory, which is not sparse")
	}
	cfg := moe.Config{Experts: 8, TopK: 2, Hidden: 7168, MaxTokens: 65536, InFlight: 3}
	if n, err := cfg.Bytes(2); err != nil || n < 10<<30 {
		t.Fatalf("%d B, %v", n, err)
	}
	in := inputs(t, cfg, routing.Spec{Seed: 22}, 9, 5)
	each(t, func(t *testing.T, l lane) {
		engine(t, l, 2, cfg, func(ctx context.Context, e *moe.Engine) error {
			for i := range cfg.InFlight {
				if err := roundTrip(ctx, cfg, e, in, nil); err != nil {
					return fmt.Errorf("slot %d: %w", i, err)
				}
			}
			return nil
		})
	})
}
