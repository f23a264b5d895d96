package moe_test

import (
	"context"
	"fmt"
	"testing"

	"goshmem/moe"
	"goshmem/moe/oracle"
	"goshmem/moe/routing"
)

// A captured dispatch and combine, replayed with other inputs and mixed with eager
// calls. An eager handle whose rows a replay overwrote is stale.
func TestDeviceGraph(t *testing.T) {
	b := device(t)
	rounds := 30
	if b.gpu == nil {
		rounds = 4
	}
	for _, w := range ways() {
		if b.gpu == nil && w.mover == moe.MoverCopyEngine {
			continue // the emulation's captures are of one stream
		}
		cfg := moe.Config{Experts: 16, TopK: 4, Hidden: 64, MaxTokens: 32, Combine: moe.WeightsAtExpert, Share: moe.FP32}
		deviceEngine(t, b.over(w.nodes), 2, cfg, moe.DeviceOptions{Mover: w.mover}, func(ctx context.Context, e *moe.DeviceEngine, d *desk) error {
			rank := e.Team().Rank()
			ins := []oracle.Input{}
			for seed := range uint64(3) {
				ins = append(ins, inputs(t, cfg, routing.Spec{Seed: seed}, 32, 17))
			}
			x := d.load(ins[0], rank)
			// The experts' stand-in in the graph: outputs of a size that does not depend on
			// the routing, all of them the same.
			most := 2 * 32 * 4
			y := make([]byte, most*cfg.Hidden*2)
			for i := range y {
				y[i] = 0x3f
			}
			o := moe.DeviceOutput{Y: up(d, y), Out: d.alloc(32 * cfg.Hidden * 2)}
			var h *moe.DeviceDispatched
			launch, done := d.capture(func() {
				var err error
				h, err = e.Dispatch(d.stream, x)
				must(err)
				must(e.Combine(d.stream, h, o))
			})
			defer done()
			for round := range rounds {
				in := ins[round%3]
				if err := deviceTrip(ctx, cfg, e, d, in, nil); err != nil {
					return fmt.Errorf("eager %d: %w", round, err)
				}
				d.put(x.X, in.X[rank])
				d.put(x.Idx, raw(in.Idx[rank]))
				d.put(x.Weights, raw(in.Weights[rank]))
				must(gathered(ctx, e))
				eager, err := e.Dispatch(d.stream, x)
				must(err)
				launch()
				records := int64(len(oracle.RankMajor(in, rank).Rows))
				rows := down[byte](d, h.Rows, records*int64(in.RowBytes))
				for i, w := range oracle.RankMajor(in, rank).Rows {
					if string(rows[i*in.RowBytes:(i+1)*in.RowBytes]) != string(w.X) {
						return fmt.Errorf("round %d: row %d", round, i)
					}
				}
				v := oracle.Widen(0x3f3f)
				vec := make([]float32, cfg.Hidden)
				for i := range vec {
					vec[i] = v
				}
				want := oracle.CombineAtExpert(in, rank, cfg.Hidden, func(_, _, _ int) []float32 { return vec }, nil, false)
				out := down[uint16](d, o.Out, int64(in.Tokens(rank)*cfg.Hidden))
				for i, v := range out {
					if v != want[i/cfg.Hidden][i%cfg.Hidden] {
						return fmt.Errorf("round %d: combined %d: %#x", round, i, v)
					}
				}
				if _, err := eager.Wait(ctx); err == nil {
					return fmt.Errorf("round %d: the handle outlived a replay", round)
				}
			}
			return nil
		})
	}
}
