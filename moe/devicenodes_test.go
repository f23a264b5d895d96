package moe_test

import (
	"context"
	"fmt"
	"testing"

	"goshmem/moe"
	"goshmem/moe/routing"
)

// Ranks of several nodes, some with mates and some alone: every variant, with scales,
// along a kept routing too, and combined twice; so rows are sent within a node, land,
// are passed on, and slots are used again.
func TestDeviceNodes(t *testing.T) {
	b := device(t)
	for i, c := range []struct{ ranks, nodes int }{{4, 2}, {5, 3}, {3, 3}, {5, 2}} {
		for v, cfg := range variants(moe.Config{Experts: 15, TopK: 5, Hidden: 24, MaxTokens: 40, ScaleBytes: 4}) {
			if b.gpu == nil && v%4 != i {
				continue
			}
			t.Run(fmt.Sprintf("%d-on-%d/%s", c.ranks, c.nodes, label(cfg)), func(t *testing.T) {
				in := inputs(t, cfg, routing.Spec{Seed: 5, Holes: 0.2}, []int{40, 17, 0, 33, 40}[:c.ranks]...)
				other := inputs(t, cfg, routing.Spec{Seed: 6, Kind: routing.Zipf, Exponent: 1}, []int{1, 40, 21, 40, 8}[:c.ranks]...)
				deviceEngine(t, b.over(c.nodes), c.ranks, cfg, moe.DeviceOptions{SMs: 2}, func(ctx context.Context, e *moe.DeviceEngine, d *desk) error {
					x, h, err := d.dispatched(ctx, e, in)
					if err != nil {
						return err
					}
					for seed := range 2 {
						if err := deviceRest(ctx, cfg, e, d, in, h, nil, seed); err != nil {
							return fmt.Errorf("combine %d: %w", seed, err)
						}
					}
					r, err := h.Routing()
					if err != nil {
						return err
					}
					if err := deviceTrip(ctx, cfg, e, d, other, ramp(cfg.Hidden)); err != nil {
						return err
					}
					if h, err = e.DispatchCached(d.stream, r, x.X, x.Scales); err != nil {
						return err
					}
					return deviceRest(ctx, cfg, e, d, in, h, nil, 2)
				})
			})
		}
	}
}
