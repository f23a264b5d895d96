package rma

import (
	"context"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/pe"
)

// Quiet returns when every earlier operation of the context is complete at its
// target, gets included, whatever goroutine issued it. It is a full memory
// barrier even when nothing was queued. If an operation failed since the last
// Quiet, its error is returned.
func Quiet(ctx context.Context, c *pe.Context) error {
	if c == nil {
		return opErr(c, "rma: quiet", -1, heap.Ref{}, -1, c.Refusal())
	}
	c.MemoryBarrier()
	g := c.Group()
	if g.Pending() == 0 {
		if err := g.TakeFailure(); err != nil {
			return opErr(c, "rma: quiet", -1, heap.Ref{}, -1, err)
		}
		return nil
	}
	return quietSlow(ctx, c)
}

// quietSlow waits, lane by lane, for what was queued when it began: a steady
// stream of later operations does not hold it up.
func quietSlow(ctx context.Context, c *pe.Context) error {
	for i := range c.Size() {
		l := c.Lane(i)
		if l == nil || l.Pending() == 0 {
			continue
		}
		t := l.LastQueued()
		err := c.Wait(ctx, false, none, func() bool { return l.Pending() == 0 || l.QueuedAcked() >= t })
		if err != nil {
			return opErr(c, "rma: quiet", i, heap.Ref{}, -1, timeout(err, "operations", []int{i}, t, l.QueuedAcked()))
		}
	}
	if err := c.Group().TakeFailure(); err != nil {
		return opErr(c, "rma: quiet", -1, heap.Ref{}, -1, err)
	}
	return nil
}

// Fence makes later operations of every lane take effect after earlier ones. The
// lanes of this runtime are ordered, so it returns at once; it orders this PE's
// inline stores where the processor does not.
func Fence(c *pe.Context) error {
	if c == nil {
		return opErr(c, "rma: fence", -1, heap.Ref{}, -1, c.Refusal())
	}
	storeBarrier(c)
	return nil
}

// Wait returns when one operation is complete, with its error if it failed: the
// only wait for one operation.
func Wait(ctx context.Context, c *pe.Context, t Ticket) error {
	if err := owns(c, t); err != nil {
		return opErr(c, "rma: wait", t.PE(), heap.Ref{}, -1, err)
	}
	if err := await(ctx, c, t); err != nil {
		e := opErr(c, "rma: wait", t.PE(), heap.Ref{}, -1, timeout(err, "ticket", nil, t.Seq(), 0))
		if oe, ok := e.(*errs.OpError); ok {
			oe.Seq = t.Seq()
		}
		return e
	}
	return nil
}

// Test reports whether an operation is complete, with its error if it failed. It
// drives the world's progress when it is not.
func Test(c *pe.Context, t Ticket) (bool, error) {
	if err := owns(c, t); err != nil {
		return false, opErr(c, "rma: test", t.PE(), heap.Ref{}, -1, err)
	}
	if !t.Done() {
		c.Progress()
	}
	if !t.Done() {
		return false, nil
	}
	if err := t.Err(); err != nil {
		return true, opErr(c, "rma: test", t.PE(), heap.Ref{}, -1, err)
	}
	return true, nil
}

func owns(c *pe.Context, t Ticket) error {
	if c == nil {
		return c.Refusal()
	}
	if !t.Of(c.Group()) {
		return errs.ErrBadRef
	}
	return nil
}

// Issued counts the operations begun in the lane to a PE.
func Issued(c *pe.Context, target int) (uint64, error) {
	return laneCount(c, "rma: issued", target, (*channel.Lane).Issued)
}

// Acked counts the operations complete in the lane to a PE: a contiguous
// frontier that passes over failed ones.
func Acked(c *pe.Context, target int) (uint64, error) {
	return laneCount(c, "rma: acked", target, (*channel.Lane).Acked)
}

func laneCount(c *pe.Context, op string, target int, f func(*channel.Lane) uint64) (uint64, error) {
	if l := c.Lane(target); l != nil {
		return f(l), nil
	}
	if target < 0 || target >= c.Size() {
		_, err := c.LaneTo(target)
		return 0, opErr(c, op, target, heap.Ref{}, -1, err)
	}
	return 0, nil
}

// ReadCounter counts the operations of the context completed so far, summed over
// PEs: a total, never a frontier.
func ReadCounter(c *pe.Context) uint64 {
	var n uint64
	for i := range c.Size() {
		if l := c.Lane(i); l != nil {
			n += l.Acked()
		}
	}
	return n
}

// WaitCounter returns when ReadCounter reaches n.
func WaitCounter(ctx context.Context, c *pe.Context, n uint64) error {
	if err := c.Wait(ctx, true, none, func() bool { return ReadCounter(c) >= n }); err != nil {
		return opErr(c, "rma: wait counter", -1, heap.Ref{}, -1, timeout(err, "counter", nil, n, ReadCounter(c)))
	}
	return nil
}
