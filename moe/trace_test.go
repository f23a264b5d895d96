package moe_test

import (
	"context"
	"fmt"
	"testing"

	"goshmem/moe"
	"goshmem/moe/oracle"
	"goshmem/moe/routing"
	"goshmem/moe/routing/traces"
)

// Every layer of both traces, through every variant, on 4 and on 5 ranks.
func TestTraces(t *testing.T) {
	const hidden = 16
	each(t, func(t *testing.T, l lane) {
		tokens := 300
		if l.path == "proxy" || testing.Short() {
			tokens = 60
		}
		for _, name := range traces.Names() {
			tr, err := traces.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			for i, cfg := range variants(moe.Config{Experts: tr.Experts, TopK: tr.TopK, Hidden: hidden, MaxTokens: tokens}) {
				ranks := 4 + i%2
				t.Run(fmt.Sprintf("%s/%d-ranks/%s", name, ranks, label(cfg)), func(t *testing.T) {
					var ins []oracle.Input
					for layer := range tr.Layers {
						var all []routing.Batch
						for rank := range ranks {
							b, err := tr.Batch(layer, rank, tokens)
							if err != nil {
								t.Fatal(err)
							}
							all = append(all, b)
						}
						ins = append(ins, withRows(cfg, uint64(layer), all))
					}
					engine(t, l, ranks, cfg, func(ctx context.Context, e *moe.Engine) error {
						for layer, in := range ins {
							if err := roundTrip(ctx, cfg, e, in, nil); err != nil {
								return fmt.Errorf("layer %d: %w", layer, err)
							}
						}
						return nil
					})
				})
			}
		}
	})
}
