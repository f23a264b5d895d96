package coll_test

import (
	"context"
	"fmt"
	"testing"

	"goshmem/coll"
	"goshmem/pe"
)

// bench runs f on two PEs of this process: the first is timed, the other does as
// many calls. dst has twice as many elements a PE as src.
func bench(b *testing.B, bytes int, f func(ctx context.Context, c *coll.Comm, src, dst []float32) error) {
	benchOn(b, 2, bytes, f)
}

func benchOn(b *testing.B, pes, bytes int, f func(ctx context.Context, c *coll.Comm, src, dst []float32) error) {
	ctx := context.Background()
	err := pe.Run(ctx, pe.Config{Size: pes, HeapSize: int64(4*pes*bytes) + 16<<20}, func(p *pe.PE) error {
		c, err := coll.New(ctx, p.Team(), coll.Config{})
		if err != nil {
			return err
		}
		n := max(bytes/4, 1)
		mem, err := pe.Calloc[float32](ctx, p, 3*pes*n)
		if err != nil {
			return err
		}
		more, err := pe.Calloc[uint64](ctx, p, 1)
		if err != nil {
			return err
		}
		src, dst := mem.Local()[:pes*n], mem.Local()[pes*n:]
		// The others do not know how often: a flag goes along.
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
		if p.Rank() > 0 {
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

// More PEs than most test machines have cores.
func BenchmarkCrowded(b *testing.B) {
	const pes = 8
	type call = func(ctx context.Context, c *coll.Comm, src, dst []float32, n int) error
	for _, k := range []struct {
		name string
		call call
	}{
		{"barrier", func(ctx context.Context, c *coll.Comm, _, _ []float32, _ int) error {
			return coll.Barrier(ctx, c.Team())
		}},
		{"allreduce", func(ctx context.Context, c *coll.Comm, src, dst []float32, n int) error {
			return coll.AllReduce(ctx, c, coll.Sum, dst[:n], src[:n])
		}},
		{"broadcast", func(ctx context.Context, c *coll.Comm, _, dst []float32, n int) error {
			return coll.Broadcast(ctx, c, 0, dst[:n])
		}},
		{"alltoall", func(ctx context.Context, c *coll.Comm, src, dst []float32, n int) error {
			return coll.AllToAll(ctx, c, dst[:pes*n], src[:pes*n])
		}},
	} {
		for _, bytes := range []int{8, 1 << 10, 64 << 10} {
			if k.name == "barrier" && bytes > 8 {
				break
			}
			b.Run(fmt.Sprint(k.name, "/", bytes), func(b *testing.B) {
				benchOn(b, pes, bytes, func(ctx context.Context, c *coll.Comm, src, dst []float32) error {
					return k.call(ctx, c, src, dst, bytes/4)
				})
			})
		}
	}
}
