package pe_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"goshmem/amo"
	"goshmem/coll"
	"goshmem/heap"
	"goshmem/internal/faultlab"
	"goshmem/pe"
	"goshmem/rma"
)

// traffic is every kind of operation on every peer, from a goroutine each, until
// stop or an error. Errors of the kinds allowed end it quietly.
type traffic struct {
	pe     *pe.PE
	box    heap.Ref
	sigs   heap.Signals
	words  heap.Array[uint64]
	rounds atomic.Int64
	ended  atomic.Bool // one of the goroutines has
	group  errgroup.Group
}

func newTraffic(ctx context.Context, p *pe.PE) (*traffic, error) {
	s, err := newSleepSite(ctx, p)
	if err != nil {
		return nil, err
	}
	box, err := p.AllocMem(ctx, int64(trafficStride*p.Size()), 0)
	if err != nil {
		return nil, err
	}
	return &traffic{pe: p, box: box, sigs: s.sigs, words: s.words}, coll.Sync(ctx, p.Team())
}

// trafficStride is the room of one source PE. Its goroutines write to parts of
// their own: what is put without a signal must not meet.
const trafficStride = 512 << 10

func (tr *traffic) start(ctx context.Context, allowed ...error) {
	c := tr.pe.Context()
	src, dst := make([]byte, 3000), make([]byte, 3000)
	large := make([]byte, 300<<10)
	part := func(i int) heap.Ref { return tr.box.Add(uint64(trafficStride*c.Rank() + 4<<10*i)) }
	own := tr.words.At(2 + c.Rank())
	work := []func(to int, round uint64) error{
		func(to int, _ uint64) error { return rma.PutMem(c, part(0), src, to) },
		func(to int, _ uint64) error { _, err := rma.PutMemNBI(c, part(16), large, to); return err },
		func(to int, _ uint64) error {
			return rma.PutMemSignal(c, part(1), src, tr.sigs.At(0), rma.SignalAdd, 1, to)
		},
		func(to int, _ uint64) error { return rma.GetMem(c, dst, part(2), to) },
		func(to int, _ uint64) error { _, err := amo.FetchAdd(c, tr.words.At(1), 1, to); return err },
		func(to int, r uint64) error { return rma.PutValue(c, own, r, to) },
		func(to int, _ uint64) error {
			if err := rma.Notify(c, 3, to); err != nil {
				return err
			}
			return rma.WaitSignals(ctx, c, 1, rma.From(to), rma.Index(3))
		},
		func(to int, _ uint64) error {
			if _, err := rma.PutMemNBI(c, part(3), src, to); err != nil {
				return err
			}
			return rma.Quiet(ctx, c)
		},
	}
	for i, op := range work {
		tr.group.Go(func() error {
			defer tr.ended.Store(true)
			for round := uint64(1); ; round++ {
				for to := range c.Size() {
					if err := op(to, round); err != nil {
						for _, a := range allowed {
							if errors.Is(err, a) {
								return nil
							}
						}
						return fmt.Errorf("operation %d on pe %d: %w", i, to, err)
					}
				}
				tr.rounds.Add(1)
			}
		})
	}
	// One that waits for ever.
	tr.group.Go(func() error {
		err := rma.WaitSignal(ctx, c, tr.sigs.At(1), rma.GE, 1)
		for _, a := range allowed {
			if errors.Is(err, a) {
				return nil
			}
		}
		return fmt.Errorf("the wait: %w", err)
	})
}

// underway waits for some rounds, or for the end of it.
func (tr *traffic) underway(ctx context.Context) {
	for tr.rounds.Load() < 100 && !tr.ended.Load() && ctx.Err() == nil {
		time.Sleep(100 * time.Microsecond)
	}
}

// closeArgs says how a process closes.
type closeArgs struct {
	Path         string
	CloseTimeout time.Duration
	Early        int // who leaves early
}

func (a closeArgs) config(c *faultlab.Child) pe.Config {
	return pe.Config{
		Rank: c.Rank, Size: c.Size, Rendezvous: c.Rendezvous,
		HeapSize: 4 << 20, Contexts: 8, Path: a.Path, RingCapacity: 16, CloseTimeout: a.CloseTimeout,
	}
}

// trafficRole closes, when told, in the midst of traffic.
func trafficRole(ctx context.Context, c *faultlab.Child, a closeArgs) error {
	p, err := pe.Join(ctx, a.config(c))
	if err != nil {
		return err
	}
	tr, err := newTraffic(ctx, p)
	if err != nil {
		return err
	}
	tr.start(ctx, pe.ErrClosed)
	tr.underway(ctx)
	c.Report("underway", nil)
	if _, err := c.Await("close"); err != nil {
		return err
	}
	c.Report("closed", faultlab.Describe(p.Close(ctx)))
	return tr.group.Wait()
}

// Every PE in turn closes first while all operate on all; then the others.
func TestCloseDuringTraffic(t *testing.T) {
	bothPaths(t, func(t *testing.T, path string) {
		for first := range 3 {
			t.Run(fmt.Sprintf("rank %d first", first), func(t *testing.T) {
				j := faultlab.Start(t, faultlab.Spec{
					Role: "traffic", N: 3, Args: closeArgs{Path: path, CloseTimeout: 200 * time.Millisecond},
				})
				j.Expect("underway")
				j.Procs[first].Say("close")
				if first != 0 {
					// The one that holds the hub stays until all have left.
					if f := j.Procs[first].ExpectFailure("closed"); f != nil {
						require.True(t, f.Has("ErrTimeout"), "%v", f) // it has little time to drain
					}
				}
				for _, p := range j.Procs {
					if p.Rank != first {
						p.Say("close")
					}
				}
				j.WaitAll()
			})
		}
	})
}

// The same in one process: the world ends in traffic, in each way that Run has.
func TestRunEndsDuringTraffic(t *testing.T) {
	bothPaths(t, func(t *testing.T, path string) {
		cfg := pe.Config{Size: 3, HeapSize: 4 << 20, Contexts: 8, Path: path, RingCapacity: 16}
		t.Run("a PE fails", func(t *testing.T) {
			ctx, failure := testContext(t), errors.New("as told")
			err := pe.Run(ctx, cfg, func(p *pe.PE) error {
				tr, err := newTraffic(ctx, p)
				if err != nil {
					return err
				}
				// The first to fail is PE 1; those that end over it are lost too.
				tr.start(ctx, pe.ErrPeerLost, pe.ErrClosed)
				tr.underway(ctx)
				if p.Rank() == 1 {
					return failure
				}
				return tr.group.Wait()
			})
			require.ErrorIs(t, err, failure)
		})
		t.Run("cancelled", func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(testContext(t))
			cause := errors.New("as told")
			err := pe.Run(ctx, cfg, func(p *pe.PE) error {
				tr, err := newTraffic(ctx, p)
				if err != nil {
					return err
				}
				tr.start(ctx, context.Canceled, pe.ErrClosed)
				tr.underway(ctx)
				if p.Rank() == 1 {
					cancel(cause)
				}
				return tr.group.Wait()
			})
			require.NoError(t, err)
		})
		t.Run("PEs close", func(t *testing.T) {
			ctx := testContext(t)
			require.NoError(t, pe.Run(ctx, cfg, func(p *pe.PE) error {
				tr, err := newTraffic(ctx, p)
				if err != nil {
					return err
				}
				tr.start(ctx, pe.ErrClosed)
				tr.underway(ctx)
				if err := p.Close(ctx); err != nil {
					return err
				}
				return tr.group.Wait()
			}))
		})
		t.Run("bodies return", func(t *testing.T) {
			ctx := testContext(t)
			var all errgroup.Group
			require.NoError(t, pe.Run(ctx, cfg, func(p *pe.PE) error {
				tr, err := newTraffic(ctx, p)
				if err != nil {
					return err
				}
				tr.start(ctx, pe.ErrClosed)
				all.Go(tr.group.Wait)
				tr.underway(ctx)
				return nil
			}))
			require.NoError(t, all.Wait())
		})
	})
}

const pendingOps = 500

// What is queued when a PE closes is completed before it has left.
func pendingSender(p *pe.PE, box heap.Ref, sig heap.Signal) error {
	c := p.Context()
	for i := range pendingOps {
		b := make([]byte, 64)
		for k := range b {
			b[k] = byte(i)
		}
		if _, err := rma.PutMemNBI(c, box.Add(uint64(64*i)), b, 1); err != nil {
			return err
		}
	}
	return rma.Signal(c, sig, rma.SignalSet, pendingOps, 1)
}

func pendingReceiver(ctx context.Context, p *pe.PE, box heap.Ref, sig heap.Signal) error {
	if err := rma.WaitSignal(ctx, p.Context(), sig, rma.EQ, pendingOps, rma.From(0)); err != nil {
		return err
	}
	got, err := p.LocalBytes(box, 64*pendingOps)
	if err != nil {
		return err
	}
	for i, b := range got {
		if b != byte(i/64) {
			return fmt.Errorf("byte %d is %d", i, b)
		}
	}
	return nil
}

func pendingBody(ctx context.Context, p *pe.PE) error {
	s, err := newSleepSite(ctx, p)
	if err != nil {
		return err
	}
	if p.Rank() == 0 {
		return pendingSender(p, s.box, s.sigs.At(0))
	}
	return pendingReceiver(ctx, p, s.box, s.sigs.At(0))
}

func pendingRole(ctx context.Context, c *faultlab.Child, a closeArgs) error {
	p, err := pe.Join(ctx, a.config(c))
	if err != nil {
		return err
	}
	if err := pendingBody(ctx, p); err != nil {
		return err
	}
	return p.Close(ctx)
}

func TestCloseCompletesPending(t *testing.T) {
	t.Run("processes", func(t *testing.T) {
		faultlab.Start(t, faultlab.Spec{
			Role: "pending", N: 2, Args: closeArgs{Path: "proxy", CloseTimeout: time.Minute},
		}).WaitAll()
	})
	t.Run("one process", func(t *testing.T) {
		ctx := testContext(t)
		cfg := pe.Config{Size: 2, HeapSize: 1 << 20, Contexts: 8, Path: "proxy", RingCapacity: 16}
		require.NoError(t, pe.Run(ctx, cfg, func(p *pe.PE) error { return pendingBody(ctx, p) }))
	})
}

// A Close that may not wait completes what is queued or fails it: every ticket
// tells which, and tells the truth.
func TestCloseAtOnceFailsPending(t *testing.T) {
	ctx := testContext(t)
	now, cancel := context.WithCancel(ctx)
	cancel()
	cfg := pe.Config{Size: 2, HeapSize: 8 << 20, Contexts: 8, Path: "proxy", RingCapacity: 1024, Backlog: 1024}
	err := pe.Run(ctx, cfg, func(p *pe.PE) error {
		box, err := p.CallocMem(ctx, 4<<20, 0)
		if err != nil {
			return err
		}
		sigs, err := p.AllocSignals(ctx, 1)
		if err != nil {
			return err
		}
		c, size := p.Context(), 4<<20/pendingOps&^7
		if p.Rank() != 0 {
			err := rma.WaitSignal(ctx, c, sigs.At(0), rma.GE, 1, rma.From(0))
			if errors.Is(err, pe.ErrClosed) {
				return nil
			}
			return err
		}
		tickets := make([]rma.Ticket, pendingOps)
		src := make([]byte, size)
		src[0] = 1
		for i := range tickets {
			if tickets[i], err = rma.PutMemNBI(c, box.Add(uint64(i*size)), src, 1); err != nil {
				return err
			}
		}
		if err := p.Close(now); err != nil && !errors.Is(err, pe.ErrTimeout) && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("close: %w", err)
		}
		done := 0
		for i, tk := range tickets {
			if !tk.Done() {
				return fmt.Errorf("operation %d of %d is still pending", i, len(tickets))
			}
			switch err := tk.Err(); {
			case err == nil:
				done++
			case !errors.Is(err, pe.ErrClosed):
				return fmt.Errorf("operation %d: %w", i, err)
			}
		}
		t.Logf("%d of %d completed", done, len(tickets))
		return nil
	})
	if err != nil { // Run tells what Close said
		require.ErrorIs(t, err, context.Canceled)
	}
}

// earlyRole: one PE leaves, the others go on with each other.
func earlyRole(ctx context.Context, c *faultlab.Child, a closeArgs) error {
	p, err := pe.Join(ctx, a.config(c))
	if err != nil {
		return err
	}
	s, err := newSite(ctx, c, p)
	if err != nil {
		return err
	}
	if err := coll.Sync(ctx, p.Team()); err != nil {
		return err
	}
	if c.Rank == a.Early {
		return p.Close(ctx)
	}
	// It has left when a wait for it says so.
	err = rma.WaitSignal(ctx, p.Context(), s.sigs.At(p.Size()), rma.GE, 1, rma.From(a.Early))
	if e, ok := errors.AsType[*pe.ClosedError](err); !ok || e.PE != a.Early {
		return fmt.Errorf("a wait for who has left: %w", err)
	}
	stay := livingOf(p.Size(), a.Early)
	for i, opts := range []func(int) []rma.WaitOption{named, unnamed} {
		if err := hop(ctx, s, stay, 1+50*i, 50, opts); err != nil {
			return err
		}
	}
	if _, err := p.AllocMem(ctx, 64, 0); !errors.Is(err, pe.ErrClosed) {
		return fmt.Errorf("alloc without everybody: %w", err)
	}
	if err := coll.Barrier(ctx, p.Team()); !errors.Is(err, pe.ErrClosed) {
		return fmt.Errorf("barrier without everybody: %w", err)
	}
	if err := p.AckLost(a.Early); !errors.Is(err, pe.ErrConfig) {
		return fmt.Errorf("who has left is not lost: %w", err)
	}
	if len(p.Lost()) != 0 {
		return fmt.Errorf("lost: %v", p.Lost())
	}
	// The others leave too: then nobody is left who could signal.
	if c.Rank == stay[0] {
		err := rma.WaitSignal(ctx, p.Context(), s.sigs.At(p.Size()), rma.GE, 1)
		if !errors.Is(err, pe.ErrClosed) {
			return fmt.Errorf("a wait with nobody left: %w", err)
		}
	}
	return p.Close(ctx)
}

func TestLeaveEarly(t *testing.T) {
	bothPaths(t, func(t *testing.T, path string) {
		for early := range 3 {
			t.Run(fmt.Sprintf("rank %d", early), func(t *testing.T) {
				faultlab.Start(t, faultlab.Spec{
					Role: "early", N: 3, Args: closeArgs{Path: path, CloseTimeout: 100 * time.Millisecond, Early: early},
				}).WaitAll()
			})
		}
	})
}

// afterClose calls what a PE has, now closed: all of it refuses, nothing is
// touched.
func afterClose(ctx context.Context, p *pe.PE, box heap.Ref, sigs heap.Signals) error {
	c := p.Context()
	last := p.Size() - 1
	word := heap.MakePtr[uint64](box)
	errs := map[string]error{
		"put":          rma.PutMem(c, box, make([]byte, 64), last),
		"put to self":  rma.PutMem(c, box, make([]byte, 8), p.Rank()),
		"get":          rma.GetMem(c, make([]byte, 64), box, last),
		"put signal":   rma.PutMemSignal(c, box, make([]byte, 64), sigs.At(0), rma.SignalSet, 1, last),
		"signal":       rma.Signal(c, sigs.At(0), rma.SignalSet, 1, last),
		"put value":    rma.PutValue(c, word, 1, last),
		"amo":          amo.Add(c, word, 1, last),
		"notify":       rma.Notify(c, 0, last),
		"wait":         rma.WaitSignal(ctx, c, sigs.At(0), rma.GE, 1<<40),
		"wait until":   rma.WaitUntil(ctx, c, word, rma.EQ, 1<<40),
		"wait signals": rma.WaitSignals(ctx, c, 1<<40),
		"sync":         coll.Sync(ctx, p.Team()),
		"barrier":      coll.Barrier(ctx, p.Team()),
		"free":         p.Free(ctx, box),
		"gather":       gather(ctx, p),
	}
	_, errs["nbi"] = rma.PutMemNBI(c, box, make([]byte, 64), last)
	_, errs["fetch"] = amo.FetchAdd(c, word, 1, last)
	_, errs["get value"] = rma.GetValue(c, word, last)
	_, errs["read signal"] = rma.ReadSignal(c, sigs.At(0))
	_, errs["test signal"] = rma.TestSignal(c, sigs.At(0), rma.EQ, 0)
	_, errs["wait any"] = rma.WaitAny(ctx, c, sigs, nil, 0, rma.GE, 1<<40)
	_, errs["alloc"] = p.AllocMem(ctx, 64, 0)
	_, errs["calloc"] = p.CallocMem(ctx, 64, 0)
	_, errs["alloc signals"] = p.AllocSignals(ctx, 1)
	_, errs["typed alloc"] = pe.Calloc[int32](ctx, p, 10)
	_, errs["local bytes"] = p.LocalBytes(box, 8)
	_, errs["new context"] = p.Team().NewContext(ctx)
	_, errs["split"] = p.Team().Split(ctx, 0, 0)
	if p.Size() == 1 { // a barrier of one has nothing to do
		delete(errs, "sync")
		delete(errs, "barrier")
		delete(errs, "wait signals") // from nobody
	}
	for what, err := range errs {
		if !errors.Is(err, pe.ErrClosed) && !errors.Is(err, pe.ErrPeerLost) {
			return fmt.Errorf("%s after close: %w", what, err)
		}
	}
	for _, lost := range p.Lost() {
		if err := p.AckLost(lost); !errors.Is(err, pe.ErrClosed) {
			return fmt.Errorf("ack lost after close: %w", err)
		}
	}
	// These do not fail, and touch nothing.
	p.Heap()
	c.Progress()
	return p.Close(ctx)
}

func TestAfterClose(t *testing.T) {
	ctx := testContext(t)
	t.Run("a world of one", func(t *testing.T) {
		p, err := pe.Join(ctx, pe.Config{HeapSize: 64 << 10})
		require.NoError(t, err)
		box, err := p.AllocMem(ctx, 256, 0)
		require.NoError(t, err)
		sigs, err := p.AllocSignals(ctx, 2)
		require.NoError(t, err)
		require.NoError(t, p.Close(ctx))
		require.NoError(t, afterClose(ctx, p, box, sigs))
	})
	t.Run("PEs of one process", func(t *testing.T) {
		var pes [2]*pe.PE
		var box heap.Ref
		var sigs heap.Signals
		require.NoError(t, pe.Run(ctx, pe.Config{Size: 2, HeapSize: 64 << 10}, func(p *pe.PE) error {
			b, err := p.AllocMem(ctx, 256, 0)
			if err != nil {
				return err
			}
			s, err := p.AllocSignals(ctx, 2)
			if p.Rank() == 0 {
				box, sigs = b, s
			}
			pes[p.Rank()] = p
			return err
		}))
		for _, p := range pes {
			require.NoError(t, afterClose(ctx, p, box, sigs))
		}
	})
}
