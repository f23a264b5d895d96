package coll

import (
	"context"

	"goshmem/amo"
	"goshmem/internal/errs"
	"goshmem/pe"
	"goshmem/rma"
)

// barrierIndex is the built-in word of each source that barriers count in.
const barrierIndex = 7

// Barrier returns when every member has called it and every operation that any
// of them issued before, on any context, is complete and visible. A full memory
// barrier.
func Barrier(ctx context.Context, t *pe.Team) error {
	if err := t.PE().Quiet(ctx); err != nil {
		return wrap("coll: barrier", err)
	}
	return synchronise(ctx, "coll: barrier", t)
}

// Sync returns when every member has called it. Unlike Barrier it completes no
// operations; what inline stores did before is visible.
func Sync(ctx context.Context, t *pe.Team) error { return synchronise(ctx, "coll: sync", t) }

// barrier is a team's state.
type barrier struct {
	central bool
	epoch   uint64
}

type barrierKey struct{}

// synchronise is a barrier of control only, in one of two ways. Where every
// member has a core: dissemination (Hensgen, Finkel and Manber, 1988), in
// ceil(log2 n) rounds each member notifies the one 2^k further and is notified
// by the one 2^k before. Where they share cores, each round would cost a turn of
// the scheduler: members count themselves in one word and the last to arrive
// releases the others.
func synchronise(ctx context.Context, op string, t *pe.Team) error {
	n := t.Size()
	c := t.CollContext()
	if n == 1 {
		c.MemoryBarrier()
		return nil
	}
	b := t.Attach(barrierKey{}, func() any { return &barrier{central: t.PE().World().Oversubscribed()} }).(*barrier)
	if b.central {
		return wrap(op, b.count(ctx, c, n))
	}
	for d := 1; d < n; d *= 2 {
		to, from := c.Rank()+d, c.Rank()-d
		if to >= n {
			to -= n
		}
		if from < 0 {
			from += n
		}
		if err := rma.Notify(c, barrierIndex, to); err != nil {
			return wrap(op, err)
		}
		if err := rma.WaitNotify(ctx, c, barrierIndex, from, 1); err != nil {
			return wrap(op, err)
		}
	}
	return nil
}

// count is the central form. The release word grows by one each barrier; its
// writer is the last to arrive, whoever that is.
func (b *barrier) count(ctx context.Context, c *pe.Context, n int) error {
	b.epoch++
	arrived, err := amo.FetchAdd(c, c.BarrierWord(), 1, 0)
	if err != nil {
		return err
	}
	if arrived != b.epoch*uint64(n)-1 {
		return rma.WaitSignal(ctx, c, c.ReleaseWord(), rma.GE, b.epoch)
	}
	for i := 1; i < n; i++ {
		to := (c.Rank() + i) % n
		if err := rma.Signal(c, c.ReleaseWord(), rma.SignalSet, b.epoch, to); err != nil {
			return err
		}
	}
	return rma.Signal(c, c.ReleaseWord(), rma.SignalSet, b.epoch, c.Rank())
}

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &errs.OpError{Op: op, PE: -1, Size: -1, Err: err}
}
