package coll_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/coll"
	"goshmem/pe"
)

var errDied = errors.New("died")

// A PE that dies in the middle of a long call, or does not come to one, ends it
// for all with ErrPeerLost naming it; so do all later calls of the team.
func TestLoss(t *testing.T) {
	calls := map[string]func(ctx context.Context, c *coll.Comm, x, y []float32) error{
		"barrier": func(ctx context.Context, c *coll.Comm, _, _ []float32) error { return coll.Barrier(ctx, c.Team()) },
		"allreduce": func(ctx context.Context, c *coll.Comm, x, y []float32) error {
			return coll.AllReduce(ctx, c, coll.Sum, y[:len(x)], x)
		},
		"alltoall": func(ctx context.Context, c *coll.Comm, x, y []float32) error {
			return coll.AllToAll(ctx, c, y[:len(x)], x)
		},
		"fcollect": func(ctx context.Context, c *coll.Comm, x, y []float32) error {
			return coll.FCollect(ctx, c, y, x)
		},
		"scan": func(ctx context.Context, c *coll.Comm, x, y []float32) error {
			return coll.Scan(ctx, c, coll.Sum, y[:len(x)], x)
		},
		"started allreduce": func(ctx context.Context, c *coll.Comm, x, y []float32) error {
			p, err := coll.StartAllReduce(c, coll.Sum, y[:len(x)], x)
			if err != nil {
				return err
			}
			return p.Wait(ctx)
		},
		"started barrier": func(ctx context.Context, c *coll.Comm, _, _ []float32) error {
			p, err := coll.StartBarrier(c)
			if err != nil {
				return err
			}
			return p.Wait(ctx)
		},
	}
	for _, l := range everyLane(t) {
		for name, call := range calls {
			t.Run(l.name+"/"+name, func(t *testing.T) {
				const n, dead = 4, 2
				var lost atomic.Int32
				began := time.Now()
				err := tryWorld(t, l, n, func(ctx context.Context, p *pe.PE) error {
					c, err := coll.New(ctx, p.Team(), small())
					if err != nil {
						return err
					}
					x, y := make([]float32, 4000), make([]float32, n*4000)
					if err := call(ctx, c, x, y); err != nil {
						return err
					}
					if _, err := p.Team().Gather(ctx, "first", nil); err != nil {
						return err
					}
					if p.Rank() == dead {
						return errDied
					}
					for k := range 2 {
						err := call(ctx, c, x, y)
						lostErr, ok := errors.AsType[*pe.PeerLostError](err)
						if !ok || lostErr.PE != dead {
							return fmt.Errorf("call %d at rank %d: %w", k, p.Rank(), errors.Join(errors.New("not the loss"), err))
						}
						lost.Add(1)
					}
					return nil
				})
				require.ErrorIs(t, err, errDied)
				assert.EqualValues(t, 2*(n-1), lost.Load())
				assert.Less(t, time.Since(began), 15*time.Second)
			})
		}
	}
}

// The living go on with a team of their own, once they acknowledged the loss; the
// old team stays what it is.
func TestGoingOnAfterLoss(t *testing.T) {
	for _, l := range everyLane(t)[:2] {
		t.Run(l.name, func(t *testing.T) {
			err := tryWorld(t, l, 4, func(ctx context.Context, p *pe.PE) error {
				c, err := coll.New(ctx, p.Team(), small())
				if err != nil {
					return err
				}
				if p.Rank() == 3 {
					return errDied
				}
				x := []int64{int64(p.Rank())}
				if err := coll.AllReduce(ctx, c, coll.Sum, x, x); !errors.Is(err, pe.ErrPeerLost) {
					return fmt.Errorf("before: %w", errors.Join(errors.New("no loss"), err))
				}
				if err := p.AckLost(3); err != nil {
					return err
				}
				if err := coll.AllReduce(ctx, c, coll.Sum, x, x); !errors.Is(err, pe.ErrPeerLost) {
					return fmt.Errorf("acknowledged: %w", errors.Join(errors.New("no loss"), err))
				}
				team, err := p.Team().Split(ctx, 0, p.Rank())
				if err != nil {
					return err
				}
				again, err := coll.New(ctx, team, small())
				if err != nil {
					return err
				}
				x[0] = int64(p.Rank())
				if err := coll.AllReduce(ctx, again, coll.Sum, x, x); err != nil {
					return err
				}
				assert.EqualValues(t, 3, x[0])
				if err := coll.Barrier(ctx, team); err != nil {
					return err
				}
				return again.Free(ctx)
			})
			require.ErrorIs(t, err, errDied)
		})
	}
}

// A member that died and was acknowledged before the call began ends it as well.
func TestCallAfterAcknowledgedLoss(t *testing.T) {
	err := tryWorld(t, lanes()[0], 3, func(ctx context.Context, p *pe.PE) error {
		c, err := coll.New(ctx, p.Team(), small())
		if err != nil {
			return err
		}
		if p.Rank() == 0 {
			return errDied
		}
		for len(p.Lost()) == 0 {
			time.Sleep(time.Millisecond)
		}
		if err := p.AckLost(0); err != nil {
			return err
		}
		b := make([]byte, 10)
		if err := coll.Broadcast(ctx, c, 0, b); !errors.Is(err, pe.ErrPeerLost) {
			return fmt.Errorf("no loss: %w", err)
		}
		return nil
	})
	require.ErrorIs(t, err, errDied)
}
