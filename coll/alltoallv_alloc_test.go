package coll_test

import (
	"context"
	"testing"

	"goshmem/coll"
	"goshmem/internal/raceflag"
	"goshmem/pe"
)

// TestAllToAllVDoesNotAllocate: neither of two PEs on one node, in a blocking
// call.
func TestAllToAllVDoesNotAllocate(t *testing.T) {
	if raceflag.Enabled {
		return // the detector allocates
	}
	const runs = 200
	comm(t, lanes()[0], 2, coll.Config{}, func(ctx context.Context, c *coll.Comm) error {
		ctx = context.WithoutCancel(ctx)
		dst, err := pe.Alloc[int32](ctx, c.Team().PE(), 200)
		if err != nil {
			return err
		}
		src, counts := make([]int32, 200), []int{100, 100}
		var failed error
		call := func() {
			if err := coll.AllToAllV(ctx, c, dst, counts, nil, src, counts, nil); err != nil {
				failed = err
			}
		}
		if c.Rank() == 0 {
			// It runs once more, to warm up.
			if n := testing.AllocsPerRun(runs, call); n != 0 {
				t.Errorf("%v allocations", n)
			}
		} else {
			for range runs + 1 {
				call()
			}
		}
		return failed
	})
}
