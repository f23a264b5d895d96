package coll_test

import (
	"context"
	"fmt"

	"goshmem/coll"
	"goshmem/pe"
	"goshmem/rma"
)

// Behind a barrier everybody sees what anybody put before it.
func ExampleBarrier() {
	ctx := context.Background()
	err := pe.Run(ctx, pe.Config{Size: 3, HeapSize: 1 << 20}, func(p *pe.PE) error {
		table, err := pe.Calloc[int32](ctx, p, p.Size())
		if err != nil {
			return err
		}
		for to := range p.Size() {
			part := table.Slice(p.Rank(), p.Rank()+1)
			if _, err := rma.PutNBI(p.Context(), part, []int32{int32(100 + p.Rank())}, to); err != nil {
				return err
			}
		}
		if err := coll.Barrier(ctx, p.Team()); err != nil {
			return err
		}
		if p.Rank() == 2 {
			fmt.Println(table.Local())
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [100 101 102]
}
