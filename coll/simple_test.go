package coll_test

import (
	"context"
	"testing"

	"goshmem/coll"
)

func TestSimple(t *testing.T) {
	for _, l := range lanes() {
		for _, n := range []int{1, 2, 3} {
			comm(t, l, n, coll.Config{}, func(ctx context.Context, c *coll.Comm) error {
				for i := range 1000 {
					x := []float32{float32(c.Rank() + i)}
					if err := coll.AllReduce(ctx, c, coll.Sum, x, x); err != nil {
						return err
					}
					want := float32(n*i) + float32(n*(n-1)/2)
					if x[0] != want {
						t.Errorf("%s %d call %d: %v, want %v", l.name, n, i, x[0], want)
						return nil
					}
				}
				return nil
			})
		}
	}
}
