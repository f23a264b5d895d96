package coll_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"goshmem/coll"
	"goshmem/internal/raceflag"
)

// Small blocking calls allocate nothing once they were made.
func TestSteadyCallsDoNotAllocate(t *testing.T) {
	if raceflag.Enabled {
		t.Skip("race builds allocate where others do not")
	}
	cx := [2][]float32{make([]float32, 4), make([]float32, 4)}
	cy := [2][]float32{make([]float32, 8), make([]float32, 8)}
	ch := [2][]coll.BF16{make([]coll.BF16, 4), make([]coll.BF16, 4)}
	calls := map[string]func(ctx context.Context, c *coll.Comm) error{
		"barrier": func(ctx context.Context, c *coll.Comm) error { return coll.Barrier(ctx, c.Team()) },
		"sync":    func(ctx context.Context, c *coll.Comm) error { return coll.Sync(ctx, c.Team()) },
		"broadcast": func(ctx context.Context, c *coll.Comm) error {
			return coll.Broadcast(ctx, c, 0, cx[c.Rank()])
		},
		"fcollect": func(ctx context.Context, c *coll.Comm) error {
			return coll.FCollect(ctx, c, cy[c.Rank()], cx[c.Rank()])
		},
		"collect": func(ctx context.Context, c *coll.Comm) error {
			return coll.Collect(ctx, c, cy[c.Rank()], cx[c.Rank()], nil)
		},
		"gather": func(ctx context.Context, c *coll.Comm) error {
			return coll.Gather(ctx, c, 1, cy[c.Rank()], cx[c.Rank()])
		},
		"scatter": func(ctx context.Context, c *coll.Comm) error {
			return coll.Scatter(ctx, c, 1, cx[c.Rank()], cy[c.Rank()])
		},
		"alltoall": func(ctx context.Context, c *coll.Comm) error {
			return coll.AllToAll(ctx, c, cy[c.Rank()][:4], cx[c.Rank()])
		},
		"alltoalls": func(ctx context.Context, c *coll.Comm) error {
			return coll.AllToAllS(ctx, c, cy[c.Rank()], cx[c.Rank()], 2, 1, 2)
		},
		"exclusive scan": func(ctx context.Context, c *coll.Comm) error {
			return coll.ExclusiveScan(ctx, c, coll.Sum, cx[c.Rank()], cx[c.Rank()])
		},
		"reduce": func(ctx context.Context, c *coll.Comm) error {
			return coll.Reduce(ctx, c, coll.Max, 0, cx[c.Rank()], cx[c.Rank()])
		},
		"allreduce": func(ctx context.Context, c *coll.Comm) error {
			return coll.AllReduce(ctx, c, coll.Sum, cx[c.Rank()], cx[c.Rank()])
		},
		"allreduce bf16": func(ctx context.Context, c *coll.Comm) error {
			return coll.AllReduce(ctx, c, coll.Sum, ch[c.Rank()], ch[c.Rank()])
		},
		"reduce-scatter": func(ctx context.Context, c *coll.Comm) error {
			return coll.ReduceScatter(ctx, c, coll.Min, cy[c.Rank()][:2], cx[c.Rank()])
		},
		"scan": func(ctx context.Context, c *coll.Comm) error {
			return coll.Scan(ctx, c, coll.Sum, cx[c.Rank()], cx[c.Rank()])
		},
		"send and recv": func(ctx context.Context, c *coll.Comm) error {
			if err := coll.Send(ctx, c, 1-c.Rank(), 0, cx[c.Rank()]); err != nil {
				return err
			}
			_, err := coll.Recv(ctx, c, 1-c.Rank(), 0, cx[c.Rank()])
			return err
		},
	}
	const runs = 200
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			comm(t, lanes()[0], 2, coll.Config{}, func(ctx context.Context, c *coll.Comm) error {
				for range 20 {
					if err := call(ctx, c); err != nil {
						return err
					}
				}
				if c.Rank() == 1 {
					for range runs + 1 { // AllocsPerRun makes one more
						if err := call(ctx, c); err != nil {
							return err
						}
					}
					return nil
				}
				var err error
				allocs := testing.AllocsPerRun(runs, func() {
					if e := call(ctx, c); e != nil {
						err = e
					}
				})
				assert.Zero(t, allocs)
				return err
			})
		})
	}
}
