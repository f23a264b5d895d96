package coll_test

import (
	"context"
	"fmt"

	"goshmem/coll"
	"goshmem/pe"
)

func Example() {
	ctx := context.Background()
	err := pe.Run(ctx, pe.Config{Size: 4, HeapSize: 8 << 20}, func(p *pe.PE) error {
		c, err := coll.New(ctx, p.Team(), coll.Config{})
		if err != nil {
			return err
		}
		x := []float32{float32(p.Rank()), 1}
		if err := coll.AllReduce(ctx, c, coll.Sum, x, x); err != nil {
			return err
		}
		before := []int{0}
		if err := coll.ExclusiveScan(ctx, c, coll.Sum, before, []int{10 * p.Rank()}); err != nil {
			return err
		}
		if p.Rank() == 3 {
			fmt.Println("sums", x, "before rank 3", before)
		}
		return c.Free(ctx)
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: sums [6 4] before rank 3 [30]
}

// A started collective goes on while its caller computes.
func ExampleStartAllReduce() {
	ctx := context.Background()
	err := pe.Run(ctx, pe.Config{Size: 2, HeapSize: 8 << 20}, func(p *pe.PE) error {
		c, err := coll.New(ctx, p.Team(), coll.Config{})
		if err != nil {
			return err
		}
		largest := []int64{int64(7 * p.Rank())}
		pending, err := coll.StartAllReduce(c, coll.Max, largest, largest)
		if err != nil {
			return err
		}
		// … something else …
		if err := pending.Wait(ctx); err != nil {
			return err
		}
		if p.Rank() == 0 {
			fmt.Println(largest)
		}
		return c.Free(ctx)
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [7]
}

// Messages are matched by source and tag.
func ExampleSend() {
	ctx := context.Background()
	err := pe.Run(ctx, pe.Config{Size: 2, HeapSize: 8 << 20}, func(p *pe.PE) error {
		c, err := coll.New(ctx, p.Team(), coll.Config{})
		if err != nil {
			return err
		}
		if p.Rank() == 1 {
			return coll.Send(ctx, c, 0, 42, []byte("hello"))
		}
		buf := make([]byte, 16)
		got, err := coll.Recv(ctx, c, coll.Any, 42, buf)
		fmt.Printf("%q from %d\n", buf[:got.Count], got.Source)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: "hello" from 1
}
