package moe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"goshmem/internal/fabric"
	"goshmem/moe"
	"goshmem/moe/routing"
	"goshmem/pe"
)

// over is a lane through a fabric: ranks are dealt to nodes, and what goes
// between nodes is delayed, reordered between lanes, lost and sent again.
func over(t *testing.T, nodes int, cfg fabric.Config) (lane, *fabric.Fabric) {
	t.Helper()
	f, err := fabric.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return lane{name: fmt.Sprint("fabric-", cfg.Seed), path: "auto", set: func(c *pe.Config) {
		c.Nodes, c.Remote = min(nodes, c.Size), f.Factory()
	}}, f
}

// Random sequences of calls, compared with the oracle, over fabrics that differ
// with the seed; every rank its own node, or some to a node.
func TestRandomCallsOverFabric(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for seed := range uint64(rounds) {
		l, f := over(t, []int{2, 3, 8}[seed%3], fabric.Random(seed))
		t.Run(l.name, func(t *testing.T) {
			randomCalls(t, l, seed)
			if s := f.Stats(); s.Unordered+s.Failed > 0 || s.Posted != s.Completed {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A largest message that cuts every row to pieces.
func TestTinyMessages(t *testing.T) {
	cfg := moe.Config{Experts: 6, TopK: 2, Hidden: 40, MaxTokens: 8, DType: moe.BF16, ScaleBytes: 4}
	in := inputs(t, cfg, routing.Spec{Seed: 1}, 8, 3, 5)
	for _, largest := range []uint64{1, 3, 8, 33} {
		l, _ := over(t, 3, fabric.Config{Seed: largest, MaxMessage: largest, Window: 2, Delay: 10, Partial: true})
		engine(t, l, 3, cfg, func(ctx context.Context, e *moe.Engine) error {
			return errors.Join(roundTrip(ctx, cfg, e, in, nil), roundTrip(ctx, cfg, e, in, ramp(cfg.Hidden)))
		})
	}
}
