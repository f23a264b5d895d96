package rma_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/amo"
	"goshmem/pe"
	"goshmem/rma"
)

// A ring of PEs each puts to its right neighbour with a signal.
func TestRing(t *testing.T) {
	for _, path := range []string{"direct", "proxy"} {
		for _, n := range []int{1, 2, 5} {
			ctx := t.Context()
			err := pe.Run(ctx, pe.Config{Size: n, Path: path, HeapSize: 1 << 20, RingCapacity: 1}, func(p *pe.PE) error {
				c := p.Context()
				a, err := pe.Calloc[int64](ctx, p, 100)
				if err != nil {
					return err
				}
				sigs, err := p.AllocSignals(ctx, 1)
				if err != nil {
					return err
				}
				next := (p.Rank() + 1) % n
				prev := (p.Rank() + n - 1) % n
				src := make([]int64, 100)
				for round := range uint64(50) {
					for i := range src {
						src[i] = int64(p.Rank()*1000 + i + int(round))
					}
					if err := rma.PutSignal(c, a, src, sigs.At(0), rma.SignalAdd, 1, next); err != nil {
						return err
					}
					if err := rma.WaitSignal(ctx, c, sigs.At(0), rma.GE, round+1); err != nil {
						return err
					}
					for i, v := range a.Local() {
						if v != int64(prev*1000+i+int(round)) {
							t.Errorf("round %d element %d: %d", round, i, v)
							break
						}
					}
					if err := rma.Notify(c, 0, prev); err != nil {
						return err
					}
					if err := rma.WaitSignals(ctx, c, 1, rma.From(next)); err != nil {
						return err
					}
				}
				w, err := pe.Calloc[uint64](ctx, p, 1)
				if err != nil {
					return err
				}
				for range 10 {
					if _, err := amo.FetchAdd(c, w.At(0), 1, 0); err != nil {
						return err
					}
				}
				if p.Rank() == 0 {
					if err := rma.WaitUntil(ctx, c, w.At(0), rma.EQ, uint64(10*n)); err != nil {
						t.Log("have", w.Local()[0])
						return err
					}
					return nil
				}
				return rma.Quiet(ctx, c)
			})
			require.NoError(t, err, "%s %d", path, n)
		}
	}
}

func bench(b *testing.B, f func(ctx context.Context, c *pe.Context, p *pe.PE) error) {
	ctx := context.Background()
	err := pe.Run(ctx, pe.Config{Size: 2, HeapSize: 1 << 20}, func(p *pe.PE) error {
		if p.Rank() != 0 {
			return nil
		}
		return f(ctx, p.Context(), p)
	})
	if err != nil {
		b.Fatal(err)
	}
}
