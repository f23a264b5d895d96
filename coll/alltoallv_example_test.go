package coll_test

import (
	"context"
	"fmt"

	"goshmem/coll"
	"goshmem/pe"
)

// Member i sends i+1 numbers to every member.
func ExampleAllToAllV() {
	ctx := context.Background()
	err := pe.Run(ctx, pe.Config{Size: 3, HeapSize: 16 << 20}, func(p *pe.PE) error {
		c, err := coll.New(ctx, p.Team(), coll.Config{})
		if err != nil {
			return err
		}
		dst, err := pe.Alloc[int32](ctx, p, 6)
		if err != nil {
			return err
		}
		mine := p.Rank() + 1
		src := make([]int32, mine) // the same to everybody
		for i := range src {
			src[i] = int32(10*p.Rank() + i)
		}
		send, from := []int{mine, mine, mine}, []int{0, 0, 0}
		recv := []int{1, 2, 3} // one after the other
		if err := coll.AllToAllV(ctx, c, dst, recv, nil, src, send, from); err != nil {
			return err
		}
		if p.Rank() == 0 {
			fmt.Println(dst.Local())
		}
		return c.Free(ctx)
	})
	fmt.Println(err)
	// Output:
	// [0 10 11 20 21 22]
	// <nil>
}
