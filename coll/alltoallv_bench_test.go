package coll_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"goshmem/coll"
	"goshmem/pe"
)

// BenchmarkAllToAllV is two PEs of this process that send each other, and
// themselves, as many bytes as the name says.
func BenchmarkAllToAllV(b *testing.B) {
	for _, n := range []int{1 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchVector(b, 2, n, coll.Config{}) })
	}
}

// BenchmarkAllToAllVCrowded is eight PEs that share the cores.
func BenchmarkAllToAllVCrowded(b *testing.B) {
	for _, n := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchVector(b, 8, n, coll.Config{}) })
	}
}

func benchVector(b *testing.B, size, bytes int, cfg coll.Config) {
	const batch = 100
	var target atomic.Int64 // calls to make; negative: no more
	heap := int64(size*bytes) + 8<<20
	err := pe.Run(context.Background(), pe.Config{Size: size, HeapSize: heap}, func(p *pe.PE) error {
		ctx := context.Background()
		c, err := coll.New(ctx, p.Team(), cfg)
		if err != nil {
			return err
		}
		dst, err := pe.Calloc[byte](ctx, p, size*bytes)
		if err != nil {
			return err
		}
		src := make([]byte, size*bytes)
		counts := make([]int, size)
		for i := range src {
			src[i] = byte(i)
		}
		for i := range counts {
			counts[i] = bytes
		}
		call := func() error { return coll.AllToAllV(ctx, c, dst, counts, nil, src, counts, nil) }
		if p.Rank() != 0 {
			for calls := int64(0); ; {
				switch t := target.Load(); {
				case t < 0:
					return nil
				case calls == t:
					runtime.Gosched()
				default:
					if err := call(); err != nil {
						return err
					}
					calls++
				}
			}
		}
		calls := int64(0)
		next := func() error {
			if calls%batch == 0 {
				target.Add(batch)
			}
			calls++
			return call()
		}
		for range 2 * batch { // warm
			if err := next(); err != nil {
				return err
			}
		}
		b.SetBytes(int64(size * bytes))
		b.ReportAllocs()
		for b.Loop() {
			if err := next(); err != nil {
				return err
			}
		}
		for calls%batch != 0 {
			if err := next(); err != nil {
				return err
			}
		}
		target.Store(-1)
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}
