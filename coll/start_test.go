package coll_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"goshmem/coll"
	"goshmem/pe"
	"goshmem/rma"
)

// Started calls queue, go on while their caller does something else, and blocking
// ones take their turn among them.
func TestStartedCallsQueue(t *testing.T) {
	for _, l := range everyLane(t) {
		t.Run(l.name, func(t *testing.T) {
			comm(t, l, 3, small(), func(ctx context.Context, c *coll.Comm) error {
				const k = 20
				var all []*coll.Pending
				bufs := make([][]int32, k)
				for i := range bufs {
					bufs[i] = make([]int32, 200)
					for j := range bufs[i] {
						bufs[i][j] = int32(c.Rank() + i*j)
					}
					p, err := coll.StartAllReduce(c, coll.Sum, bufs[i], bufs[i])
					if err != nil {
						return err
					}
					all = append(all, p)
				}
				x := []int32{int32(c.Rank())}
				if err := coll.AllReduce(ctx, c, coll.Max, x, x); err != nil { // in its turn, the last
					return err
				}
				assert.EqualValues(t, 2, x[0])
				for i, p := range all {
					done, err := p.Test()
					assert.True(t, done, "call %d is before the blocking one", i)
					if err != nil {
						return err
					}
					for j, v := range bufs[i] {
						if v != int32(3+3*i*j) {
							return fmt.Errorf("call %d element %d: %d", i, j, v)
						}
					}
				}
				return nil
			})
		})
	}
}

// A started call needs nothing of its caller: it goes on while that sleeps, or
// waits for something else.
func TestStartedCallGoesOnAlone(t *testing.T) {
	for _, l := range everyLane(t) {
		t.Run(l.name, func(t *testing.T) {
			world(t, l, 3, func(ctx context.Context, p *pe.PE) error {
				c, err := coll.New(ctx, p.Team(), small())
				if err != nil {
					return err
				}
				sigs, err := p.AllocSignals(ctx, 1)
				if err != nil {
					return err
				}
				dst, src := make([]int32, 3000), make([]int32, 1000)
				q, err := coll.StartFCollect(c, dst, src)
				if err != nil {
					return err
				}
				if p.Rank() == 0 {
					for done := false; !done; { // nothing but looking: no poll
						time.Sleep(time.Millisecond)
						done = complete(q)
						if err := ctx.Err(); err != nil {
							return err
						}
					}
					for i := 1; i < 3; i++ {
						if err := rma.Signal(p.Context(), sigs.At(0), rma.SignalAdd, 1, i); err != nil {
							return err
						}
					}
				} else if err := rma.WaitSignal(ctx, p.Context(), sigs.At(0), rma.GE, 1); err != nil {
					return err
				}
				if err := q.Wait(ctx); err != nil {
					return err
				}
				return c.Free(ctx)
			})
		})
	}
}

// complete looks at a Pending without driving it.
func complete(p *coll.Pending) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return p.Wait(ctx) == nil
}

// A wait that ends at its deadline leaves the call going.
func TestWaitAgain(t *testing.T) {
	waited := make(chan struct{})
	comm(t, lanes()[0], 2, coll.Config{}, func(ctx context.Context, c *coll.Comm) error {
		x := []float64{1}
		if c.Rank() == 1 {
			<-waited
		}
		p, err := coll.StartAllReduce(c, coll.Sum, x, x)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			assert.ErrorIs(t, p.Wait(short), pe.ErrTimeout)
			close(waited)
		}
		if err := p.Wait(ctx); err != nil {
			return err
		}
		assert.InDelta(t, 2, x[0], 0)
		return p.Wait(ctx) // again: the same
	})
}

// A barrier that was started covers what was put before.
func TestStartedBarrierCompletesPuts(t *testing.T) {
	for _, l := range everyLane(t) {
		t.Run(l.name, func(t *testing.T) {
			world(t, l, 3, func(ctx context.Context, p *pe.PE) error {
				c, err := coll.New(ctx, p.Team(), small())
				if err != nil {
					return err
				}
				a, err := pe.Calloc[uint64](ctx, p, 3*1000)
				if err != nil {
					return err
				}
				for round := range uint64(20) {
					src := make([]uint64, 1000)
					for i := range src {
						src[i] = round*10 + uint64(p.Rank())
					}
					for to := range 3 {
						if _, err := rma.PutNBI(p.Context(), a.Slice(p.Rank()*1000, p.Rank()*1000+1000), src, to); err != nil {
							return err
						}
					}
					b, err := coll.StartBarrier(c)
					if err != nil {
						return err
					}
					if err := b.Wait(ctx); err != nil {
						return err
					}
					for i, v := range a.Local() {
						if v != round*10+uint64(i/1000) {
							return fmt.Errorf("round %d element %d: %d", round, i, v)
						}
					}
					if err := coll.Sync(ctx, p.Team()); err != nil {
						return err
					}
				}
				return c.Free(ctx)
			})
		})
	}
}

// Calls from several goroutines of a PE take turns; here any order will do.
func TestGoroutinesTakeTurns(t *testing.T) {
	for _, l := range everyLane(t) {
		for _, call := range []func(ctx context.Context, c *coll.Comm) error{
			func(ctx context.Context, c *coll.Comm) error { return coll.Broadcast(ctx, c, 0, []byte{1, 2, 3}) },
			func(ctx context.Context, c *coll.Comm) error { return coll.Barrier(ctx, c.Team()) },
			func(ctx context.Context, c *coll.Comm) error { return coll.Sync(ctx, c.Team()) },
		} {
			comm(t, l, 3, small(), func(ctx context.Context, c *coll.Comm) error {
				var eg errgroup.Group
				for range 4 {
					eg.Go(func() error {
						for range 50 {
							if err := call(ctx, c); err != nil {
								return err
							}
						}
						return nil
					})
				}
				return eg.Wait()
			})
		}
	}
}

// A goroutine that gives up before its turn leaves the other members without the barrier
// that it would have come to: they hear so.
func TestGivesUpItsTurn(t *testing.T) {
	for _, barrier := range []func(ctx context.Context, t *pe.Team) error{coll.Barrier, coll.Sync} {
		gone := make(chan struct{})
		world(t, lanes()[0], 2, func(ctx context.Context, p *pe.PE) error {
			if p.Rank() == 1 {
				<-gone
				err := errors.Join(barrier(ctx, p.Team()), barrier(ctx, p.Team()))
				assert.ErrorContains(t, err, "canceled")
				assert.NotErrorIs(t, err, pe.ErrTimeout)
				return nil
			}
			var eg errgroup.Group
			eg.Go(func() error { return barrier(ctx, p.Team()) })
			time.Sleep(time.Millisecond) // mostly that one has the turn; the test holds if not
			soon, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond, cancel)
			assert.Error(t, barrier(soon, p.Team()))
			close(gone)
			_ = eg.Wait()
			return nil
		})
	}
}

// Close and Free with calls in flight.
func TestFree(t *testing.T) {
	comm(t, lanes()[0], 2, coll.Config{}, func(ctx context.Context, c *coll.Comm) error {
		_, before := c.Team().PE().Heap()
		again, err := coll.New(ctx, c.Team(), small())
		if err != nil {
			return err
		}
		x := []int32{1}
		if _, err := coll.StartAllReduce(again, coll.Sum, x, x); err != nil {
			return err
		}
		if err := again.Free(ctx); err != nil { // the started call ends first
			return err
		}
		assert.EqualValues(t, 2, x[0])
		_, after := c.Team().PE().Heap()
		assert.Equal(t, before, after, "memory is given back")
		assert.ErrorIs(t, again.Free(ctx), pe.ErrBadRef)
		assert.ErrorIs(t, coll.AllReduce(ctx, again, coll.Sum, x, x), pe.ErrClosed)
		_, err = coll.StartAllReduce(again, coll.Sum, x, x)
		assert.ErrorIs(t, err, pe.ErrClosed)
		assert.ErrorIs(t, coll.Send(ctx, again, 0, 0, x), pe.ErrClosed)
		return nil
	})
}

// A Free that failed at every member may be tried again.
func TestFreeAgain(t *testing.T) {
	world(t, lanes()[0], 2, func(ctx context.Context, p *pe.PE) error {
		var c [2]*coll.Comm
		for i := range c {
			var err error
			if c[i], err = coll.New(ctx, p.Team(), small()); err != nil {
				return err
			}
		}
		assert.ErrorIs(t, c[p.Rank()].Free(ctx), pe.ErrMismatch, "the members mean different ones")
		for i := range c {
			if err := c[i].Free(ctx); err != nil {
				return err
			}
		}
		_, inUse := p.Heap()
		assert.Zero(t, inUse)
		return nil
	})
}

// A PE that leaves the world with calls in flight is not held up by them; they and
// all later ones end.
func TestCloseWithACallInFlight(t *testing.T) {
	began := time.Now()
	var comms [2]*coll.Comm
	var started [2]*coll.Pending
	world(t, lanes()[0], 2, func(ctx context.Context, p *pe.PE) error {
		c, err := coll.New(ctx, p.Team(), coll.Config{})
		if err != nil {
			return err
		}
		comms[p.Rank()] = c
		if p.Rank() == 0 {
			started[0], err = coll.StartAllReduce(c, coll.Sum, []int32{1}, []int32{1})
		} else {
			started[1], err = coll.StartRecv(c, 0, 1, []int32{1})
		}
		return err
	})
	assert.Less(t, time.Since(began), 8*time.Second)
	ctx, x := t.Context(), []int32{1}
	for r, c := range comms {
		_, rerr := coll.Recv(ctx, c, 0, 0, x)
		for i, err := range []error{
			started[r].Wait(ctx), coll.AllReduce(ctx, c, coll.Sum, x, x), coll.Barrier(ctx, c.Team()), rerr,
			coll.Send(ctx, c, r, 0, x), coll.Send(ctx, c, 1-r, 0, x), c.Free(ctx),
		} {
			assert.ErrorIs(t, err, pe.ErrClosed, "rank %d, call %d", r, i)
		}
	}
}

// An operation that failed before a barrier is what the barrier returns, to the PE
// whose it was; the members meet all the same, and the team goes on.
func TestBarrierAfterAFailedOperation(t *testing.T) {
	err := tryWorld(t, lanes()[1], 3, func(ctx context.Context, p *pe.PE) error {
		a, err := pe.Calloc[byte](ctx, p, 8)
		if err != nil {
			return err
		}
		if p.Rank() == 2 {
			return errDied
		}
		for len(p.Lost()) == 0 {
			time.Sleep(time.Millisecond)
		}
		if err := p.AckLost(2); err != nil {
			return err
		}
		team, err := p.Team().Split(ctx, 0, p.Rank())
		if err != nil {
			return err
		}
		c, err := coll.New(ctx, team, small())
		if err != nil {
			return err
		}
		for round := range 4 {
			if p.Rank() == 0 && round%2 == 0 {
				// To a lost PE: refused at once, or failed later.
				_, _ = rma.PutNBI(p.Context(), a, []byte{1}, 2)
			}
			if round < 2 {
				err = coll.Barrier(ctx, team)
			} else {
				b, serr := coll.StartBarrier(c)
				if serr != nil {
					return serr
				}
				err = b.Wait(ctx)
			}
			if err != nil && (p.Rank() != 0 || !errors.Is(err, pe.ErrPeerLost)) {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		return c.Free(ctx)
	})
	require.ErrorIs(t, err, errDied)
}
