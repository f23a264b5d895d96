package coll

import (
	"context"
	"errors"
	"sync/atomic"

	"goshmem/amo"
	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// barrierIndex is the built-in word of each source that barriers count in.
const barrierIndex = 7

// Barrier returns when every member has called it and every operation that any
// of them issued before, on any context, is complete and visible. A full memory
// barrier. If such an operation of this PE failed, Barrier returns its error, once
// the members have met all the same. Barriers of several goroutines of a PE take
// turns.
func Barrier(ctx context.Context, t *pe.Team) error {
	if t == nil {
		return wrap("coll: barrier", pe.ErrConfig)
	}
	b, err := barrierOf(t)
	if err != nil {
		return wrap("coll: barrier", err)
	}
	failed, bad := quiet(ctx, t.PE())
	if err = b.run(ctx, bad, "barrier"); err == nil {
		err = failed
	}
	return wrap("coll: barrier", err)
}

// quiet completes this PE's operations. failed is the first that failed; bad why
// they are not complete.
func quiet(ctx context.Context, p *pe.PE) (failed, bad error) {
	for {
		err := p.Quiet(ctx) // tells one failure at a time
		switch {
		case err == nil:
			return failed, nil
		case errors.Is(err, pe.ErrTimeout) || errors.Is(err, context.Canceled) || errors.Is(err, pe.ErrClosed):
			return failed, err
		case failed == nil:
			failed = err
		}
	}
}

// Sync returns when every member has called it. Unlike Barrier it completes no
// operations; what inline stores did before is visible.
func Sync(ctx context.Context, t *pe.Team) error {
	if t == nil {
		return wrap("coll: sync", pe.ErrConfig)
	}
	b, err := barrierOf(t)
	if err == nil {
		err = b.run(ctx, nil, "sync")
	}
	return wrap("coll: sync", err)
}

// barrier is a team's state: a barrier of control only, in one of two ways.
// Where every member has a core: dissemination (Hensgen, Finkel and Manber,
// 1988), in ceil(log2 n) rounds each member notifies the one 2^k further and is
// notified by the one 2^k before. Where they share cores, each round would cost a
// turn of the scheduler: members count themselves in one word and the last to
// arrive releases the others.
type barrier struct {
	_       [apartBytes]byte
	c       *pe.Context
	health  *health
	busy    atomic.Bool
	gaveUp  atomic.Pointer[error] // why a call ended before it was its turn
	release heap.Cells            // grows by 1 with each central barrier, by abortUnit when a member aborts
	central bool
	epoch   uint64
	words   []*atomic.Uint64 // of dissemination: what round k waits for
	awaited heap.Cells
	cond    func() bool
	left    func(member int) error
	source  int   // of dissemination: who is waited for
	err     error // why it could not be made
	_       [apartBytes]byte
}

type barrierKey struct{}

func barrierOf(t *pe.Team) (*barrier, error) {
	h := healthOf(t) // Attach does not nest
	b := t.Attach(barrierKey{}, func() any { return newBarrier(t, h) }).(*barrier)
	return b, b.err
}

func newBarrier(t *pe.Team, h *health) *barrier {
	c := t.CollContext()
	b := &barrier{c: c, health: h, central: t.PE().World().Oversubscribed()}
	b.cond, b.left = b.over, b.without
	if b.release, b.err = c.SignalCells(c.ReleaseWord()); b.err != nil {
		return b
	}
	n := c.Size()
	for d := 1; d < n; d *= 2 {
		w, err := c.OwnWord((c.Rank()-d+n)%n, barrierIndex)
		if err != nil {
			b.err = err
			return b
		}
		b.words = append(b.words, w)
	}
	return b
}

// run is one barrier; bad is what failed here before it. A member that fails
// tells the others. Goroutines of one PE take turns; if one gives up before its turn,
// the next call fails: the members would not mean the same one any more.
func (b *barrier) run(ctx context.Context, bad error, name string) error {
	if !b.busy.CompareAndSwap(false, true) {
		if err := b.turn(ctx); err != nil {
			b.gaveUp.CompareAndSwap(nil, &err)
			b.abandon(name)
			return err
		}
	}
	err := b.one(ctx, bad, name)
	b.busy.Store(false)
	b.abandon(name)
	return err
}

// abandon fails the next barrier, which a goroutine that gave up before its turn would
// have come to: the other members are in it, or will be. Where another goroutine has
// the turn, it comes here behind its own.
func (b *barrier) abandon(name string) {
	if b.gaveUp.Load() == nil || b.health.failed() != nil || !b.busy.CompareAndSwap(false, true) {
		return
	}
	_ = b.one(context.Background(), nil, name)
	b.busy.Store(false)
}

// one is a barrier of whoever has the turn.
func (b *barrier) one(ctx context.Context, bad error, name string) error {
	c := b.c
	if err := b.gaveUp.Load(); err != nil && bad == nil {
		bad = *err
	}
	if !c.Use() {
		return &pe.ClosedError{PE: c.PE().Rank()}
	}
	defer c.Unuse()
	if err := b.health.failed(); err != nil {
		return err
	}
	b.epoch++
	err := bad
	if err == nil {
		if b.central {
			err = b.count(ctx)
		} else {
			err = b.disseminate(ctx)
		}
	}
	if err == nil {
		c.MemoryBarrier()
		return nil
	}
	if b.aborted() {
		return verdictOf(c, b.health)
	}
	err = b.health.fail(err, encodeReason(c.PE().Rank(), name, err))
	b.tell()
	return err
}

// turn waits until no other goroutine of this PE is in a barrier of the team.
func (b *barrier) turn(ctx context.Context) error {
	mine := false // a wait may ask again
	err := b.c.Wait(ctx, true, []int{}, func() bool {
		mine = mine || b.busy.CompareAndSwap(false, true)
		return mine
	})
	if mine {
		return nil
	}
	return err
}

func (b *barrier) disseminate(ctx context.Context) error {
	n, k := b.c.Size(), 0
	for d := 1; d < n; d *= 2 {
		to := b.c.Rank() + d
		if to >= n {
			to -= n
		}
		if err := rma.Notify(b.c, barrierIndex, to); err != nil {
			return err
		}
		// A source is met in one round only, so its word counts barriers.
		b.awaited, b.source = heap.OneCell(b.words[k]), (b.c.Rank()-d+n)%n
		if err := b.wait(ctx); err != nil {
			return err
		}
		k++
	}
	return nil
}

// count is the central form. The release word grows by one each barrier; its
// writer is the last to arrive, whoever that is.
func (b *barrier) count(ctx context.Context) error {
	c, n := b.c, b.c.Size()
	if n == 1 {
		return nil
	}
	arrived, err := amo.FetchAdd(c, c.BarrierWord(), 1, 0)
	if err != nil {
		return err
	}
	if arrived != b.epoch*uint64(n)-1 {
		b.awaited = b.release
		return b.wait(ctx)
	}
	for to := 1; to < n; to++ {
		if to == c.Rank() {
			continue
		}
		if err := rma.Signal(c, c.ReleaseWord(), rma.SignalAdd, 1, to); err != nil {
			return err
		}
	}
	if c.Rank() != 0 {
		// Member 0, whose word counts, may leave once it is released: by then the
		// others are, or they would take it for one that never came.
		if c.Group().Pending() != 0 {
			if err := rma.Quiet(ctx, c); err != nil {
				return err
			}
		}
		if err := rma.Signal(c, c.ReleaseWord(), rma.SignalAdd, 1, 0); err != nil {
			return err
		}
	}
	return rma.Signal(c, c.ReleaseWord(), rma.SignalAdd, 1, c.Rank()) // itself last
}

// rests is how many turns of the scheduler a barrier waits before it waits as
// everybody does.
const rests = 64

// wait waits until awaited counts this barrier, or a member aborts.
func (b *barrier) wait(ctx context.Context) error {
	if !b.central {
		for range spins * spinStep {
			if b.arrived() {
				return nil
			}
		}
	}
	// Where members share cores a look is worth a turn of the scheduler: the
	// first of them are taken with nothing else in between.
	for i := 0; b.central && i < rests && !b.c.Busy(); i++ {
		if b.arrived() {
			return nil
		}
		b.c.Rest()
	}
	if err := b.c.WaitMembers(ctx, b.cond, b.left); err != nil || b.arrived() {
		return b.late(err)
	}
	return errAborted
}

// without says whether this barrier can be, now that a member has left: only if
// the member had come to it before.
func (b *barrier) without(member int) error {
	switch {
	case b.central && member != 0:
		come, err := amo.Fetch(b.c, b.c.BarrierWord(), 0)
		if err != nil || come >= b.epoch*uint64(b.c.Size()) {
			return err // all have come: the release is on its way
		}
	case !b.central && member != b.source:
		return nil // whoever waits for it will tell
	}
	rank, _ := b.c.Team().WorldRank(member)
	return &pe.ClosedError{PE: rank}
}

// errAborted stands for what a member said.
var errAborted = errors.New("aborted")

func (b *barrier) arrived() bool { return b.awaited.Load()&(abortUnit-1) >= b.epoch }

func (b *barrier) aborted() bool {
	return b.release.Load() >= abortUnit && concerns(b.c, place(0, b.epoch))
}

func (b *barrier) over() bool { return b.arrived() || b.aborted() }

// tell raises the abort at every member. A barrier moves no data, so nobody's
// answer is awaited.
func (b *barrier) tell() {
	for i := range b.c.Size() {
		for _, s := range tellingOf(b.c, place(0, b.epoch), b.health.reason()) {
			if rma.Signal(b.c, s.sig, rma.SignalAdd, s.v, i) != nil {
				break // it is lost: it does not matter
			}
		}
	}
}

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &pe.OpError{Op: op, PE: -1, Size: -1, Err: err}
}
