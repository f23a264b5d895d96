package rma_test

import (
	"context"
	"testing"

	"goshmem/amo"
	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

func target(p *pe.PE) heap.Ref { return heap.MakeRef(p.World().ID(), heap.RegionHeap, 4096) }

func BenchmarkPutQuiet8(b *testing.B) {
	bench(b, func(ctx context.Context, c *pe.Context, p *pe.PE) error {
		dst, src := target(p), make([]byte, 8)
		b.ReportAllocs()
		for b.Loop() {
			if err := rma.PutMem(c, dst, src, 1); err != nil {
				return err
			}
			if err := rma.Quiet(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
}

func BenchmarkPutNBI8(b *testing.B) {
	bench(b, func(ctx context.Context, c *pe.Context, p *pe.PE) error {
		dst, src := target(p), make([]byte, 8)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := rma.PutMemNBI(c, dst, src, 1); err != nil {
				return err
			}
		}
		return rma.Quiet(ctx, c)
	})
}

func BenchmarkGet8(b *testing.B) {
	bench(b, func(ctx context.Context, c *pe.Context, p *pe.PE) error {
		dst, src := target(p), make([]byte, 8)
		b.ReportAllocs()
		for b.Loop() {
			if err := rma.GetMem(c, src, dst, 1); err != nil {
				return err
			}
		}
		return nil
	})
}

func BenchmarkPutSignal8(b *testing.B) {
	bench(b, func(ctx context.Context, c *pe.Context, p *pe.PE) error {
		dst, src := target(p), make([]byte, 8)
		sig := heap.MakeSignal(dst.Add(4096))
		b.ReportAllocs()
		for b.Loop() {
			if err := rma.PutMemSignal(c, dst, src, sig, rma.SignalAdd, 1, 1); err != nil {
				return err
			}
		}
		return nil
	})
}

func BenchmarkFetchAdd(b *testing.B) {
	bench(b, func(ctx context.Context, c *pe.Context, p *pe.PE) error {
		w := heap.MakePtr[uint64](target(p))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := amo.FetchAdd(c, w, 1, 1); err != nil {
				return err
			}
		}
		return nil
	})
}

func BenchmarkCompareSwap(b *testing.B) {
	bench(b, func(ctx context.Context, c *pe.Context, p *pe.PE) error {
		w := heap.MakePtr[uint64](target(p))
		b.ReportAllocs()
		for i := uint64(0); b.Loop(); i++ {
			if _, err := amo.CompareSwap(c, w, i, i+1, 1); err != nil {
				return err
			}
		}
		return nil
	})
}
