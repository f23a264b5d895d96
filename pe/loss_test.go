package pe_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/amo"
	"goshmem/coll"
	"goshmem/heap"
	"goshmem/internal/suite"
	"goshmem/pe"
	"goshmem/rma"
)

// lossWorld runs fn on every PE of a world whose last one fails as soon as the
// others have got there.
func lossWorld(t *testing.T, n int, fn func(e *suite.Env, sigs heap.Signals, words heap.Array[uint64])) {
	t.Helper()
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			cfg := small(n, path)
			err := pe.Run(t.Context(), cfg, func(p *pe.PE) error {
				return suite.Body(t.Context(), p, cfg, func(e *suite.Env) {
					sigs := e.Signals(4)
					words := suite.Calloc[uint64](e, 4)
					if e.Rank() == n-1 {
						for i := range n - 1 {
							e.OK(rma.WaitNotify(e.Ctx, e.C, 5, i, 1))
						}
						e.OK(errQuit)
					}
					e.OK(rma.Notify(e.C, 5, n-1))
					fn(e, sigs, words)
				})
			})
			require.ErrorIs(t, err, errQuit)
			require.NotErrorIs(t, err, pe.ErrTimeout)
		})
	}
}

// isLost checks that an error names the PE that failed, and why.
func isLost(e *suite.Env, err error, victim int) {
	e.Is(err, pe.ErrPeerLost)
	var lost *pe.PeerLostError
	e.True(errors.As(err, &lost), "no PeerLostError")
	e.Equal(victim, lost.PE)
	var oe *pe.OpError
	e.True(errors.As(err, &oe) && oe.Op != "", "no OpError")
}

// A wait for all ends when one is lost; one that names others does not. After
// the loss was acknowledged, later waits go on.
func TestLossAndFrom(t *testing.T) {
	const n, victim = 4, 3
	lossWorld(t, n, func(e *suite.Env, sigs heap.Signals, words heap.Array[uint64]) {
		to, from := (e.Rank()+1)%victim, (e.Rank()+victim-1)%victim
		ends := []func() error{
			func() error { return rma.WaitSignal(e.Ctx, e.C, sigs.At(0), rma.EQ, 1) },
			func() error { return rma.WaitSignal(e.Ctx, e.C, sigs.At(0), rma.EQ, 1, rma.From(to, victim)) },
			func() error { return rma.WaitAll(e.Ctx, e.C, sigs, nil, rma.EQ, 1) },
			func() error { _, err := rma.WaitAny(e.Ctx, e.C, sigs, nil, 0, rma.EQ, 1); return err },
			func() error { _, err := rma.WaitSome(e.Ctx, e.C, sigs, nil, nil, rma.EQ, 1); return err },
			func() error { return rma.WaitUntil(e.Ctx, e.C, words.At(0), rma.EQ, 1) },
			func() error { return rma.WaitSignals(e.Ctx, e.C, 1) },
			func() error { return rma.WaitNotify(e.Ctx, e.C, 1, victim, 1) },
			func() error { return coll.Barrier(e.Ctx, e.P.Team()) },
			func() error { _, err := e.P.AllocMem(e.Ctx, 64, 0); return err },
			func() error { _, err := e.P.Team().Split(e.Ctx, 0, 0); return err },
			func() error { _, err := e.P.Team().NewContext(e.Ctx); return err },
		}
		for _, end := range ends {
			isLost(e, end(), victim)
		}
		e.Equal([]int{victim}, e.P.Lost())
		// Named ones are still there.
		e.OK(rma.Signal(e.C, sigs.At(0), rma.SignalSet, 1, to))
		e.OK(rma.WaitSignal(e.Ctx, e.C, sigs.At(0), rma.EQ, 1, rma.From(from)))
		e.OK(rma.Notify(e.C, 0, to))
		e.OK(rma.WaitSignals(e.Ctx, e.C, 1, rma.From(from)))

		// Operations on the lost one fail.
		for _, err := range []error{
			rma.PutMem(e.C, words.Ref(), make([]byte, 8), victim),
			rma.GetMem(e.C, make([]byte, 8), words.Ref(), victim),
			rma.Signal(e.C, sigs.At(0), rma.SignalSet, 1, victim),
			rma.PutMemSignal(e.C, words.Ref(), make([]byte, 8), sigs.At(0), rma.SignalSet, 1, victim),
			rma.PutValue(e.C, words.At(0), 1, victim),
			amo.Add(e.C, words.At(0), 1, victim),
			rma.Notify(e.C, 0, victim),
		} {
			isLost(e, err, victim)
		}
		e.OK(rma.Quiet(e.Ctx, e.C))

		// Once all of the living have acknowledged it, they go on by themselves.
		e.OK(e.P.AckLost(victim))
		e.OK(e.P.AckLost(victim)) // as often as one likes
		e.OK(rma.Signal(e.C, sigs.At(1), rma.SignalSet, 1, to))
		e.OK(rma.WaitSignal(e.Ctx, e.C, sigs.At(1), rma.EQ, 1))
		for i := range victim {
			if i != e.Rank() {
				e.OK(rma.Notify(e.C, 2, i))
			}
		}
		e.OK(rma.WaitSignals(e.Ctx, e.C, 1, rma.Index(2)))
		ref, err := e.P.AllocMem(e.Ctx, 4096, 0)
		e.OK(err)
		e.OK(rma.PutMemNotify(e.C, ref, make([]byte, 100), 3, to))
		e.OK(rma.WaitNotify(e.Ctx, e.C, 3, from, 1))
		e.OK(e.P.Free(e.Ctx, ref))
		// A team of the living works; the old one's collectives do not.
		team, err := e.P.Team().Split(e.Ctx, 0, 0)
		e.OK(err)
		e.Equal([]int{0, 1, 2}, team.Members())
		for range 3 {
			e.OK(coll.Barrier(e.Ctx, team))
		}
		e.Is(coll.Barrier(e.Ctx, e.P.Team()), pe.ErrPeerLost)
		c, err := team.NewContext(e.Ctx)
		e.OK(err)
		e.OK(rma.Notify(c, 0, (c.Rank()+1)%3))
		e.OK(rma.WaitSignals(e.Ctx, c, 1, rma.From((c.Rank()+2)%3)))
		e.OK(c.Free(e.Ctx))
		// Who names the lost one still waits in vain.
		isLost(e, rma.WaitNotify(e.Ctx, e.C, 0, victim, 1), victim)
		isLost(e, rma.WaitSignal(e.Ctx, e.C, sigs.At(2), rma.EQ, 1, rma.From(victim)), victim)
		// Everybody stays until all are through.
		e.OK(coll.Barrier(e.Ctx, team))
	})
}

// What holds already wins over the loss.
func TestLossDoesNotUndo(t *testing.T) {
	lossWorld(t, 2, func(e *suite.Env, sigs heap.Signals, words heap.Array[uint64]) {
		isLost(e, rma.WaitSignals(e.Ctx, e.C, 1), 1)
		e.OK(rma.Signal(e.C, sigs.At(0), rma.SignalSet, 4, 0))
		e.OK(rma.WaitSignal(e.Ctx, e.C, sigs.At(0), rma.EQ, 4))
		e.OK(rma.PutValue(e.C, words.At(0), 7, 0))
		e.OK(rma.WaitUntil(e.Ctx, e.C, words.At(0), rma.EQ, 7))
		e.OK(rma.WaitSignals(e.Ctx, e.C, 0))
	})
}

func TestAckLostRefuses(t *testing.T) {
	var left *pe.PE
	lossWorld(t, 2, func(e *suite.Env, _ heap.Signals, _ heap.Array[uint64]) {
		e.Is(e.P.AckLost(0), pe.ErrConfig)
		e.Is(e.P.AckLost(-1), pe.ErrPeer)
		e.Is(e.P.AckLost(2), pe.ErrPeer)
		isLost(e, rma.WaitSignals(e.Ctx, e.C, 1), 1)
		left = e.P
	})
	require.ErrorIs(t, left.AckLost(1), pe.ErrClosed)
}

// Requests that are queued for a PE when it is lost fail, and their waiters hear
// of it; those for others go on.
func TestLossOfQueued(t *testing.T) {
	const n, victim = 3, 2
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			cfg := small(n, path)
			cfg.RingCapacity = 8
			err := pe.Run(t.Context(), cfg, func(p *pe.PE) error {
				return suite.Body(t.Context(), p, cfg, func(e *suite.Env) {
					ref := e.Mem(512 << 10)
					switch e.Rank() {
					case 0:
						src := make([]byte, 300<<10)
						release := e.Hold()
						bad, err := rma.PutMemNBI(e.C, ref, src, victim)
						e.OK(err)
						good, err := rma.PutMemNBI(e.C, ref, src, 1)
						e.OK(err)
						late, err := rma.GetMemNBI(e.C, make([]byte, 300<<10), ref, victim)
						e.OK(err)
						for len(e.P.Lost()) == 0 {
							e.OK(e.Ctx.Err())
						}
						release()
						isLost(e, rma.Wait(e.Ctx, e.C, bad), victim)
						isLost(e, rma.Wait(e.Ctx, e.C, late), victim)
						_, err = rma.Test(e.C, bad)
						isLost(e, err, victim)
						e.OK(rma.Wait(e.Ctx, e.C, good))
						isLost(e, rma.Quiet(e.Ctx, e.C), victim) // told once
						e.OK(rma.Quiet(e.Ctx, e.C))
						issued, err := rma.Issued(e.C, victim)
						e.OK(err)
						acked, err := rma.Acked(e.C, victim)
						e.OK(err)
						e.Equal(issued, acked) // the frontier passes over failed ones
					case victim:
						for {
							issued := uint64(0)
							for _, l := range e.P.World().Stats().Lanes {
								if l.PE == 0 && l.Peer == victim {
									issued += l.Issued
								}
							}
							if issued >= 2 {
								break
							}
							e.OK(e.Ctx.Err())
						}
						e.OK(errQuit)
					}
				})
			})
			require.ErrorIs(t, err, errQuit)
		})
	}
}

// When all the others have left in order, nobody can signal any more.
func TestEverybodyElseLeft(t *testing.T) {
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			cfg := small(3, path)
			err := pe.Run(t.Context(), cfg, func(p *pe.PE) error {
				return suite.Body(t.Context(), p, cfg, func(e *suite.Env) {
					sigs := e.Signals(2)
					if e.Rank() > 0 {
						if e.Rank() == 1 {
							e.OK(rma.Signal(e.C, sigs.At(0), rma.SignalSet, 1, 0))
						}
						return
					}
					closed := func(err error, who ...int) {
						e.Is(err, pe.ErrClosed)
						var ce *pe.ClosedError
						e.True(errors.As(err, &ce) && slices.Contains(who, ce.PE), "who left: "+err.Error())
					}
					closed(rma.WaitNotify(e.Ctx, e.C, 0, 2, 1), 2)
					closed(rma.WaitSignal(e.Ctx, e.C, sigs.At(1), rma.EQ, 1, rma.From(1)), 1)
					closed(rma.WaitSignal(e.Ctx, e.C, sigs.At(1), rma.EQ, 1), 1, 2)
					closed(rma.WaitSignals(e.Ctx, e.C, 1), 1, 2)
					closed(coll.Barrier(e.Ctx, e.P.Team()), 1, 2)
					_, err := e.P.AllocMem(e.Ctx, 64, 0)
					closed(err, 1, 2)
					// What came before stays; memory of those that left is there.
					e.OK(rma.WaitSignal(e.Ctx, e.C, sigs.At(0), rma.EQ, 1))
					e.OK(rma.Signal(e.C, sigs.At(0), rma.SignalSet, 2, 1))
					e.OK(rma.Quiet(e.Ctx, e.C))
				})
			})
			require.NoError(t, err)
		})
	}
}
