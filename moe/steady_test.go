package moe_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"goshmem/moe"
	"goshmem/moe/routing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A dispatch and combine that have run before take no memory in proportion to
// their data: a hundred times the tokens, the same few kilobytes.
func TestSteadyStateAllocatesLittle(t *testing.T) {
	if raceBuild {
		t.Skip("the race detector allocates")
	}
	for _, cfg := range variants(moe.Config{Experts: 16, TopK: 4, Hidden: 256, MaxTokens: 512}) {
		t.Run(label(cfg), func(t *testing.T) {
			in := inputs(t, cfg, routing.Spec{Seed: 1}, 512)
			engine(t, lanes()[0], 1, cfg, func(ctx context.Context, e *moe.Engine) error {
				out := make([]byte, 512*256*2)
				var y []byte
				once := func() error {
					d, err := e.Dispatch(ctx, in.X[0], in.Scales[0], in.Idx[0], in.Weights[0])
					if err != nil {
						return err
					}
					if y == nil {
						y = outputs(cfg, e, d, 0)
					}
					_, err = e.Combine(ctx, d, y, nil, out)
					return err
				}
				for range 3 {
					if err := once(); err != nil {
						return err
					}
				}
				const rounds = 20
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range rounds {
					if err := once(); err != nil {
						return err
					}
				}
				runtime.ReadMemStats(&after)
				if per := (after.TotalAlloc - before.TotalAlloc) / rounds; per > 8<<10 {
					return fmt.Errorf("%d B a round", per)
				}
				return nil
			})
		})
	}
}

// What a call tells of its bytes, worked out by hand: two ranks, rank 0 sends
// tokens 0 and 1 to itself and token 1 to rank 1, rank 1 sends its only token to
// rank 0.
func TestTraffic(t *testing.T) {
	cfg := moe.Config{Experts: 4, TopK: 2, Hidden: 8, MaxTokens: 4, ScaleBytes: 4, Output: moe.FP32}
	in := withRows(cfg, 1, []routing.Batch{
		{TopK: 2, Idx: []int32{0, 1, 0, 2}, Weights: make([]float32, 4)},
		{TopK: 2, Idx: []int32{1, -1}, Weights: make([]float32, 2)},
	})
	const (
		row    = 16 + 4
		record = 4 + 2*8
		head   = 64 + (2+4)*4 + 40 // rounded up to 64
	)
	want := []moe.Traffic{
		{Wire: row, Meta: head + record, Logical: 3 * row},
		{Wire: row, Meta: head + record, Logical: row},
	}
	// Every choice comes back as 8 float32: rank 0 has 4 choices, one of them at
	// rank 1; rank 1 has one, at rank 0.
	wantBack := []moe.Traffic{{Wire: 32, Logical: 4 * 32}, {Wire: 32, Logical: 32}}
	engine(t, lanes()[0], 2, cfg, func(ctx context.Context, e *moe.Engine) error {
		rank := e.Team().Rank()
		d, err := e.Dispatch(ctx, in.X[rank], in.Scales[rank], in.Idx[rank], in.Weights[rank])
		if err != nil {
			return err
		}
		if d.Traffic() != want[rank] {
			return fmt.Errorf("dispatch %+v, want %+v", d.Traffic(), want[rank])
		}
		back, err := e.Combine(ctx, d, outputs(cfg, e, d, 0), nil, make([]byte, 16*in.Tokens(rank)))
		if err != nil {
			return err
		}
		if back != wantBack[rank] {
			return fmt.Errorf("combine %+v, want %+v", back, wantBack[rank])
		}
		return nil
	})
}
