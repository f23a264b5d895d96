package coll_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/coll"
	"goshmem/pe"
)

// badCall is a call with one thing wrong at one member; ok is how the others call.
type badCall struct {
	name string
	want error
	bad  func(ctx context.Context, c *coll.Comm) error
	ok   func(ctx context.Context, c *coll.Comm) error
}

func badCalls() []badCall {
	f := func(n int) []float32 { return make([]float32, n) }
	overlap := make([]float32, 100)
	return []badCall{
		{"broadcast, root", pe.ErrPeer,
			func(ctx context.Context, c *coll.Comm) error { return coll.Broadcast(ctx, c, 7, f(1)) },
			func(ctx context.Context, c *coll.Comm) error { return coll.Broadcast(ctx, c, 0, f(1)) }},
		{"broadcast, negative root", pe.ErrPeer,
			func(ctx context.Context, c *coll.Comm) error { return coll.Broadcast(ctx, c, -1, f(1)) },
			func(ctx context.Context, c *coll.Comm) error { return coll.Broadcast(ctx, c, 0, f(1)) }},
		{"fcollect, destination", pe.ErrRange,
			func(ctx context.Context, c *coll.Comm) error { return coll.FCollect(ctx, c, f(4), f(2)) },
			func(ctx context.Context, c *coll.Comm) error { return coll.FCollect(ctx, c, f(6), f(2)) }},
		{"fcollect, overlap", pe.ErrAlias,
			func(ctx context.Context, c *coll.Comm) error {
				return coll.FCollect(ctx, c, overlap[:6], overlap[1:3])
			},
			func(ctx context.Context, c *coll.Comm) error { return coll.FCollect(ctx, c, f(6), f(2)) }},
		{"collect, short destination", pe.ErrRange,
			func(ctx context.Context, c *coll.Comm) error { return coll.Collect(ctx, c, f(5), f(2), nil) },
			func(ctx context.Context, c *coll.Comm) error { return coll.Collect(ctx, c, f(9), f(2), nil) }},
		{"collect, counts", pe.ErrRange,
			func(ctx context.Context, c *coll.Comm) error {
				return coll.Collect(ctx, c, f(9), f(2), make([]int, 2))
			},
			func(ctx context.Context, c *coll.Comm) error { return coll.Collect(ctx, c, f(9), f(2), nil) }},
		{"gather, destination at root", pe.ErrRange,
			func(ctx context.Context, c *coll.Comm) error { return coll.Gather(ctx, c, 1, f(5), f(2)) },
			func(ctx context.Context, c *coll.Comm) error { return coll.Gather(ctx, c, 1, nil, f(2)) }},
		{"scatter, source at root", pe.ErrRange,
			func(ctx context.Context, c *coll.Comm) error { return coll.Scatter(ctx, c, 1, f(2), f(5)) },
			func(ctx context.Context, c *coll.Comm) error { return coll.Scatter(ctx, c, 1, f(2), nil) }},
		{"alltoall, not divisible", pe.ErrRange,
			func(ctx context.Context, c *coll.Comm) error { return coll.AllToAll(ctx, c, f(5), f(5)) },
			func(ctx context.Context, c *coll.Comm) error { return coll.AllToAll(ctx, c, f(6), f(6)) }},
		{"alltoall, in place", pe.ErrAlias,
			func(ctx context.Context, c *coll.Comm) error {
				return coll.AllToAll(ctx, c, overlap[:6], overlap[:6])
			},
			func(ctx context.Context, c *coll.Comm) error { return coll.AllToAll(ctx, c, f(6), f(6)) }},
		{"alltoalls, stride", pe.ErrRange,
			func(ctx context.Context, c *coll.Comm) error {
				return coll.AllToAllS(ctx, c, f(6), f(6), 0, 1, 2)
			},
			func(ctx context.Context, c *coll.Comm) error {
				return coll.AllToAllS(ctx, c, f(6), f(6), 1, 1, 2)
			}},
		{"alltoalls, span", pe.ErrRange,
			func(ctx context.Context, c *coll.Comm) error {
				return coll.AllToAllS(ctx, c, f(6), f(6), 1, 2, 2)
			},
			func(ctx context.Context, c *coll.Comm) error {
				return coll.AllToAllS(ctx, c, f(6), f(6), 1, 1, 2)
			}},
		{"alltoalls, huge", pe.ErrRange,
			func(ctx context.Context, c *coll.Comm) error {
				return coll.AllToAllS(ctx, c, f(6), f(6), 1<<40, 1<<40, 1<<40)
			},
			func(ctx context.Context, c *coll.Comm) error {
				return coll.AllToAllS(ctx, c, f(6), f(6), 1, 1, 2)
			}},
		{"reduce, operation", pe.ErrUnsupported,
			func(ctx context.Context, c *coll.Comm) error { return coll.Reduce(ctx, c, coll.Xor, 1, f(1), f(1)) },
			func(ctx context.Context, c *coll.Comm) error { return coll.Reduce(ctx, c, coll.Sum, 1, f(1), f(1)) }},
		{"allreduce, no operation", pe.ErrUnsupported,
			func(ctx context.Context, c *coll.Comm) error { return coll.AllReduce(ctx, c, coll.Op(99), f(1), f(1)) },
			func(ctx context.Context, c *coll.Comm) error { return coll.AllReduce(ctx, c, coll.Sum, f(1), f(1)) }},
		{"allreduce, overlap", pe.ErrAlias,
			func(ctx context.Context, c *coll.Comm) error {
				return coll.AllReduce(ctx, c, coll.Sum, overlap[:4], overlap[1:5])
			},
			func(ctx context.Context, c *coll.Comm) error { return coll.AllReduce(ctx, c, coll.Sum, f(4), f(4)) }},
		{"reduce-scatter, source", pe.ErrRange,
			func(ctx context.Context, c *coll.Comm) error { return coll.ReduceScatter(ctx, c, coll.Sum, f(2), f(5)) },
			func(ctx context.Context, c *coll.Comm) error { return coll.ReduceScatter(ctx, c, coll.Sum, f(2), f(6)) }},
		{"scan, destination", pe.ErrRange,
			func(ctx context.Context, c *coll.Comm) error { return coll.Scan(ctx, c, coll.Sum, f(2), f(3)) },
			func(ctx context.Context, c *coll.Comm) error { return coll.Scan(ctx, c, coll.Sum, f(3), f(3)) }},
		{"exclusive scan, long, overlap", pe.ErrAlias,
			func(ctx context.Context, c *coll.Comm) error {
				return coll.ExclusiveScan(ctx, c, coll.Sum, overlap[:90], overlap[10:])
			},
			func(ctx context.Context, c *coll.Comm) error {
				return coll.ExclusiveScan(ctx, c, coll.Sum, f(90), f(90))
			}},
	}
}

// One member's bad argument ends the call for all: it gets the plain reason, the
// others an AbortError that names it, unless they were through; and so does every
// later collective of the team, its barrier included, until the team is split
// anew.
func TestBadArgument(t *testing.T) {
	for _, l := range everyLane(t) {
		for i, b := range badCalls() {
			t.Run(l.name+"/"+b.name, func(t *testing.T) {
				world(t, l, 3, func(ctx context.Context, p *pe.PE) error {
					c, err := coll.New(ctx, p.Team(), small())
					if err != nil {
						return err
					}
					other, err := coll.New(ctx, p.Team(), small())
					if err != nil {
						return err
					}
					if p.Rank() == 1 {
						err := b.bad(ctx, c)
						_, abort := errors.AsType[*coll.AbortError](err)
						assert.ErrorIs(t, err, b.want)
						assert.False(t, abort, "its own reason: %v", err)
					} else if err := b.ok(ctx, c); err != nil {
						aborted(t, err, 1, b.want)
					}
					// Every way on is closed.
					x := []int32{1}
					later := []error{
						coll.AllReduce(ctx, c, coll.Sum, x, x), coll.AllReduce(ctx, other, coll.Sum, x, x),
						coll.Barrier(ctx, c.Team()), coll.Sync(ctx, c.Team()),
						coll.Send(ctx, c, 0, 0, x),
					}
					_, err = coll.New(ctx, p.Team(), small())
					for k, err := range append(later, err) {
						if assert.ErrorIs(t, err, b.want, "later call %d", k) && p.Rank() != 1 {
							aborted(t, err, 1, b.want)
						}
					}
					if i%4 != 0 {
						return nil
					}
					team, err := p.Team().Split(ctx, 0, p.Rank())
					if err != nil {
						return err
					}
					again, err := coll.New(ctx, team, small())
					if err != nil {
						return err
					}
					err = coll.AllReduce(ctx, again, coll.Sum, x, x)
					assert.Equal(t, int32(3), x[0])
					return errors.Join(err, c.Free(ctx), other.Free(ctx), again.Free(ctx))
				})
			})
		}
	}
}

// aborted checks that an error tells that a member ended the call, and why.
func aborted(t *testing.T, err error, by int, why error) {
	t.Helper()
	a, ok := errors.AsType[*coll.AbortError](err)
	if assert.True(t, ok, "%v", err) {
		assert.Equal(t, by, a.PE, "%v", err)
		assert.ErrorIs(t, err, why)
	}
}

// The same of started calls: the bad one is refused at once, those that were
// started before complete, and the others' end.
func TestBadArgumentOfStartedCall(t *testing.T) {
	for _, l := range everyLane(t) {
		t.Run(l.name, func(t *testing.T) {
			world(t, l, 3, func(ctx context.Context, p *pe.PE) error {
				c, err := coll.New(ctx, p.Team(), small())
				if err != nil {
					return err
				}
				x, y := make([]float64, 500), make([]float64, 500)
				first, err := coll.StartAllReduce(c, coll.Max, y, x)
				if err != nil {
					return err
				}
				root := 0
				if p.Rank() == 2 {
					root = 3
				}
				second, err := coll.StartBroadcast(c, root, x)
				if p.Rank() == 2 {
					assert.ErrorIs(t, err, pe.ErrPeer)
					assert.Nil(t, second)
				} else if err != nil {
					return err
				}
				assert.NoError(t, first.Wait(ctx), "started before")
				if p.Rank() != 2 {
					// They may be through before they hear of it.
					if err := second.Wait(ctx); err != nil {
						aborted(t, err, 2, pe.ErrPeer)
					}
				}
				third, err := coll.StartSync(c)
				if err == nil {
					err = third.Wait(ctx)
				}
				assert.ErrorIs(t, err, pe.ErrPeer)
				return nil
			})
		})
	}
}

// What members must have alike and do not is ErrMismatch that names it, and no
// member hangs.
func TestDisagreement(t *testing.T) {
	f := func(n int) []float32 { return make([]float32, n) }
	type call = func(ctx context.Context, c *coll.Comm) error
	for _, k := range []struct {
		name, field string
		one, others call
	}{
		{"call", "call",
			func(ctx context.Context, c *coll.Comm) error { return coll.FCollect(ctx, c, f(3), f(1)) },
			func(ctx context.Context, c *coll.Comm) error { return coll.AllReduce(ctx, c, coll.Sum, f(1), f(1)) }},
		{"operation", "operation",
			func(ctx context.Context, c *coll.Comm) error { return coll.AllReduce(ctx, c, coll.Max, f(1), f(1)) },
			func(ctx context.Context, c *coll.Comm) error { return coll.AllReduce(ctx, c, coll.Sum, f(1), f(1)) }},
		{"type", "type",
			func(ctx context.Context, c *coll.Comm) error {
				return coll.AllReduce(ctx, c, coll.Sum, make([]int32, 1), make([]int32, 1))
			},
			func(ctx context.Context, c *coll.Comm) error { return coll.AllReduce(ctx, c, coll.Sum, f(1), f(1)) }},
		{"count", "count",
			func(ctx context.Context, c *coll.Comm) error { return coll.AllReduce(ctx, c, coll.Sum, f(2), f(2)) },
			func(ctx context.Context, c *coll.Comm) error { return coll.AllReduce(ctx, c, coll.Sum, f(1), f(1)) }},
		{"none and some", "count",
			func(ctx context.Context, c *coll.Comm) error { return coll.AllToAll(ctx, c, f(0), f(0)) },
			func(ctx context.Context, c *coll.Comm) error { return coll.AllToAll(ctx, c, f(300), f(300)) }},
		{"short and long", "count",
			func(ctx context.Context, c *coll.Comm) error {
				return coll.AllReduce(ctx, c, coll.Sum, f(100000), f(100000))
			},
			func(ctx context.Context, c *coll.Comm) error { return coll.AllReduce(ctx, c, coll.Sum, f(1), f(1)) }},
		{"scans of different ways", "count",
			func(ctx context.Context, c *coll.Comm) error {
				return coll.Scan(ctx, c, coll.Sum, f(100000), f(100000))
			},
			func(ctx context.Context, c *coll.Comm) error { return coll.Scan(ctx, c, coll.Sum, f(1), f(1)) }},
		{"root", "root",
			func(ctx context.Context, c *coll.Comm) error { return coll.Gather(ctx, c, 1, f(3), f(1)) },
			func(ctx context.Context, c *coll.Comm) error { return coll.Gather(ctx, c, 0, f(3), f(1)) }},
		{"element", "type",
			func(ctx context.Context, c *coll.Comm) error {
				return coll.AllToAll(ctx, c, make([]int64, 3), make([]int64, 3))
			},
			func(ctx context.Context, c *coll.Comm) error { return coll.AllToAll(ctx, c, f(6), f(6)) }},
	} {
		for _, l := range everyLane(t)[:2] {
			t.Run(l.name+"/"+k.name, func(t *testing.T) {
				world(t, l, 3, func(ctx context.Context, p *pe.PE) error {
					c, err := coll.New(ctx, p.Team(), small())
					if err != nil {
						return err
					}
					do := k.others
					if p.Rank() == 1 {
						do = k.one
					}
					err = do(ctx, c)
					for i := 0; i < 100 && err == nil; i++ {
						// It needed nothing of those who disagree. A later call does.
						err = do(ctx, c)
					}
					m, ok := errors.AsType[*pe.MismatchError](err)
					if assert.True(t, ok, "rank %d: %v", p.Rank(), err) {
						assert.Equal(t, k.field, m.Field, "rank %d: %v", p.Rank(), err)
					}
					return nil
				})
			})
		}
	}
}

// A member that does not come ends the others' call at their deadline; one that
// is cancelled ends everybody's.
func TestDeadlineAndCancel(t *testing.T) {
	for _, l := range everyLane(t) {
		t.Run(l.name, func(t *testing.T) {
			world(t, l, 3, func(ctx context.Context, p *pe.PE) error {
				c, err := coll.New(ctx, p.Team(), small())
				if err != nil {
					return err
				}
				x := []int16{1}
				if p.Rank() == 0 {
					_, err := p.Team().Gather(ctx, "late", nil)
					assert.ErrorIs(t, coll.AllReduce(ctx, c, coll.Sum, x, x), pe.ErrTimeout)
					return err
				}
				short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
				defer cancel()
				assert.ErrorIs(t, coll.AllReduce(short, c, coll.Sum, x, x), pe.ErrTimeout)
				_, err = p.Team().Gather(ctx, "late", nil)
				return err
			})
			world(t, l, 3, func(ctx context.Context, p *pe.PE) error {
				c, err := coll.New(ctx, p.Team(), small())
				if err != nil {
					return err
				}
				mine, cancel := context.WithCancel(ctx)
				defer cancel()
				if p.Rank() == 2 {
					time.AfterFunc(20*time.Millisecond, cancel)
				}
				if p.Rank() != 0 {
					err = coll.Barrier(mine, c.Team())
					assert.ErrorIs(t, err, context.Canceled, "rank %d", p.Rank())
				}
				_, err = p.Team().Gather(ctx, "late", nil)
				return err
			})
		})
	}
}

// After a call was aborted nothing of it reaches anybody's buffers: the members
// that were in it have seen each other out.
func TestNoLatePut(t *testing.T) {
	for _, l := range everyLane(t) {
		t.Run(l.name, func(t *testing.T) {
			l.cfg.HeapSize = 32 << 20
			for round := range 8 {
				world(t, l, 4, func(ctx context.Context, p *pe.PE) error {
					c, err := coll.New(ctx, p.Team(), coll.Config{SlotBytes: 4096, Eager: 64})
					if err != nil {
						return err
					}
					const n = 1 << 20
					mem, err := pe.Calloc[byte](ctx, p, 4*n)
					if err != nil {
						return err
					}
					src := bytes.Repeat([]byte{byte(p.Rank() + 1)}, 4*n)
					dst := mem.Local()
					short, cancel := context.WithCancel(ctx)
					defer cancel()
					if p.Rank() == round%4 {
						time.AfterFunc(time.Duration(round)*100*time.Microsecond, cancel)
					}
					err = coll.AllToAll(short, c, dst, src)
					then := bytes.Clone(dst)
					if _, err := p.Team().Gather(ctx, "after", nil); err != nil {
						return err
					}
					time.Sleep(5 * time.Millisecond)
					if err != nil && !bytes.Equal(then, dst) {
						t.Errorf("rank %d: something came after %v", p.Rank(), err)
					}
					return nil
				})
			}
		})
	}
}

func TestNilComm(t *testing.T) {
	ctx := context.Background()
	var c *coll.Comm
	x := []int32{1}
	_, rerr := coll.Recv(ctx, c, 0, 0, x)
	for i, err := range []error{
		coll.AllReduce(ctx, c, coll.Sum, x, x), coll.Broadcast(ctx, c, 0, x), coll.Scan(ctx, c, coll.Sum, x, x),
		coll.Send(ctx, c, 0, 0, x), rerr, coll.Barrier(ctx, nil), coll.Sync(ctx, nil), c.Free(ctx),
		coll.Collect(ctx, c, x, x, nil), coll.AllToAllS(ctx, c, x, x, 1, 1, 0),
	} {
		require.ErrorIs(t, err, pe.ErrConfig, "%d", i)
	}
	for i, start := range []func() (*coll.Pending, error){
		func() (*coll.Pending, error) { return coll.StartAllReduce(c, coll.Sum, x, x) },
		func() (*coll.Pending, error) { return coll.StartScan(c, coll.Sum, x, x) },
		func() (*coll.Pending, error) { return coll.StartBroadcast(c, 0, x) },
		func() (*coll.Pending, error) { return coll.StartCollect(c, x, x, nil) },
		func() (*coll.Pending, error) { return coll.StartAllToAllS(c, x, x, 1, 1, 0) },
		func() (*coll.Pending, error) { return coll.StartSync(c) },
		func() (*coll.Pending, error) { return coll.StartBarrier(c) },
		func() (*coll.Pending, error) { return coll.StartSend(c, 0, 0, x) },
		func() (*coll.Pending, error) { return coll.StartRecv(c, 0, 0, x) },
	} {
		p, err := start()
		require.ErrorIs(t, err, pe.ErrConfig, "%d", i)
		require.ErrorIs(t, p.Wait(ctx), pe.ErrBadRef)
		_, err = p.Test()
		require.ErrorIs(t, err, pe.ErrBadRef)
	}
	_, err := coll.New(ctx, nil, coll.Config{})
	require.ErrorIs(t, err, pe.ErrConfig)
}
