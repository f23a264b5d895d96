package coll_test

import (
	"context"
	"fmt"
	"testing"

	"goshmem/coll"
	"goshmem/pe"
)

// bench runs f on two PEs of this process: the first is timed, the second does as
// many calls.
func bench(b *testing.B, bytes int, f func(ctx context.Context, c *coll.Comm, src, dst []float32) error) {
	ctx := context.Background()
	err := pe.Run(ctx, pe.Config{Size: 2, HeapSize: int64(8*bytes) + 8<<20}, func(p *pe.PE) error {
		c, err := coll.New(ctx, p.Team(), coll.Config{})
		if err != nil {
			return err
		}
		n := max(bytes/4, 1)
		mem, err := pe.Calloc[float32](ctx, p, 6*n)
		if err != nil {
			return err
		}
		more, err := pe.Calloc[uint64](ctx, p, 1)
		if err != nil {
			return err
		}
		src, dst := mem.Local()[:2*n], mem.Local()[2*n:6*n]
		// The second PE does not know how often: a flag goes along.
		again := func(yes uint64) (bool, error) {
			more.Local()[0] = yes
			err := coll.Broadcast(ctx, c, 0, more.Local())
			return more.Local()[0] != 0, err
		}
		const batch = 100
		run := func() error {
			for range batch {
				if err := f(ctx, c, src, dst); err != nil {
					return err
				}
			}
			return nil
		}
		if p.Rank() == 1 {
			for {
				yes, err := again(0)
				if err != nil || !yes {
					return err
				}
				if err := run(); err != nil {
					return err
				}
			}
		}
		if _, err := again(1); err != nil {
			return err
		}
		if err := run(); err != nil { // warm
			return err
		}
		b.SetBytes(int64(bytes))
		b.ReportAllocs()
		calls := 0
		for b.Loop() {
			if calls%batch == 0 {
				if _, err := again(1); err != nil {
					return err
				}
			}
			if err := f(ctx, c, src, dst); err != nil {
				return err
			}
			calls++
		}
		for ; calls%batch != 0; calls++ {
			if err := f(ctx, c, src, dst); err != nil {
				return err
			}
		}
		_, err = again(0)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}

func sizes(b *testing.B, f func(ctx context.Context, c *coll.Comm, src, dst []float32, n int) error, bytes ...int) {
	for _, n := range bytes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			bench(b, n, func(ctx context.Context, c *coll.Comm, src, dst []float32) error { return f(ctx, c, src, dst, n/4) })
		})
	}
}

func BenchmarkBarrier(b *testing.B) {
	bench(b, 0, func(ctx context.Context, c *coll.Comm, _, _ []float32) error { return coll.Barrier(ctx, c.Team()) })
}

func BenchmarkAllReduce(b *testing.B) {
	sizes(b, func(ctx context.Context, c *coll.Comm, src, dst []float32, n int) error {
		return coll.AllReduce(ctx, c, coll.Sum, dst[:n], src[:n])
	}, 8, 1<<10, 16<<10, 64<<10, 1<<20, 16<<20)
}

func BenchmarkBroadcast(b *testing.B) {
	sizes(b, func(ctx context.Context, c *coll.Comm, src, dst []float32, n int) error {
		return coll.Broadcast(ctx, c, 0, dst[:n])
	}, 8, 64<<10, 1<<20)
}

func BenchmarkFCollect(b *testing.B) {
	sizes(b, func(ctx context.Context, c *coll.Comm, src, dst []float32, n int) error {
		return coll.FCollect(ctx, c, dst[:2*n], src[:n])
	}, 8, 64<<10, 1<<20)
}

func BenchmarkAllToAll(b *testing.B) {
	sizes(b, func(ctx context.Context, c *coll.Comm, src, dst []float32, n int) error {
		return coll.AllToAll(ctx, c, dst[:2*n], src[:2*n])
	}, 1<<10, 64<<10, 1<<20)
}
