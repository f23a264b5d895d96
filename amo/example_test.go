package amo_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"goshmem/amo"
	"goshmem/coll"
	"goshmem/pe"
)

// PEs share out a list of tasks by a counter at PE 0: each fetch gives another.
func Example() {
	const tasks = 100
	ctx := context.Background()
	var done atomic.Int64
	err := pe.Run(ctx, pe.Config{Size: 4, HeapSize: 1 << 20}, func(p *pe.PE) error {
		next, err := pe.Calloc[uint64](ctx, p, 1)
		if err != nil {
			return err
		}
		for {
			task, err := amo.FetchInc(p.Context(), next.At(0), 0)
			if err != nil {
				return err
			}
			if task >= tasks {
				break
			}
			done.Add(int64(task))
		}
		return coll.Barrier(ctx, p.Team())
	})
	fmt.Println(done.Load(), err)
	// Output: 4950 <nil>
}

// A lock: who swaps its rank for the 0 in the word has it.
func ExampleCompareSwap() {
	ctx := context.Background()
	held := 0 // guarded by the lock
	err := pe.Run(ctx, pe.Config{Size: 3, HeapSize: 1 << 20}, func(p *pe.PE) error {
		lock, err := pe.Calloc[int64](ctx, p, 1)
		if err != nil {
			return err
		}
		c, word, me := p.Context(), lock.At(0), int64(p.Rank()+1)
		for range 10 {
			for {
				old, err := amo.CompareSwap(c, word, 0, me, 0)
				if err != nil {
					return err
				}
				if old == 0 {
					break
				}
			}
			held++
			if _, err := amo.Swap(c, word, 0, 0); err != nil {
				return err
			}
		}
		return coll.Barrier(ctx, p.Team())
	})
	fmt.Println(held, err)
	// Output: 30 <nil>
}
