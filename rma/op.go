package rma

import (
	"context"
	"errors"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/pe"
)

// Ticket names one operation for Wait. The zero Ticket is complete.
type Ticket = channel.Ticket

// SignalOp is what an operation does to a signal.
type SignalOp uint8

// The signal operations. A signal is set-only or add-only between collective
// resets; builds with the tag goshmem_debug check it.
const (
	SignalSet = SignalOp(channel.SigSet)
	SignalAdd = SignalOp(channel.SigAdd)
)

// mode says how an operation may proceed when it cannot at once.
type mode uint8

const (
	blocking    mode = iota // done when the call returns
	nonblocking             // queued when the call returns; waits for room
	try                     // as nonblocking, but ErrWouldBlock instead of waiting
)

// queue puts an operation that cannot be done inline into the ring. remote is
// the reference on the target that was checked by the caller, ptr the Go-side
// memory. A blocking operation waits until it is complete, a put until its source
// is reusable.
func queue(c *pe.Context, l *channel.Lane, d *channel.Desc, ptr unsafe.Pointer, m mode) (Ticket, error) {
	if m == try {
		return c.TrySubmit(l, d, ptr)
	}
	if m == blocking {
		d.Flags |= channel.FlagAwaited
	}
	t, err := c.Submit(context.Background(), l, d, ptr)
	if err != nil || m == nonblocking {
		return t, err
	}
	if d.Op == channel.OpPut && d.Size <= l.Copies() {
		c.Hand(l)
		return t, awaitSource(c, t, d.Size)
	}
	return t, await(context.Background(), c, t)
}

// awaitSource waits until the source of a queued put is reusable; a failure after
// that is Quiet's to tell.
func awaitSource(c *pe.Context, t Ticket, n uint64) error {
	if !t.Reusable(n) {
		if err := c.Wait(context.Background(), false, none, func() bool { return t.Reusable(n) }); err != nil {
			return err
		}
	}
	return t.Err()
}

// await waits for one queued operation and gives its error.
func await(ctx context.Context, c *pe.Context, t Ticket) error {
	if !t.Done() {
		// The lane's own loss ends the operation, which ends the wait: From names
		// nobody, so that the loss of others does not.
		if err := c.Wait(ctx, false, none, t.Done); err != nil {
			return err
		}
	}
	return t.Err()
}

// none as the PEs a wait depends on: this PE alone.
var none = []int{}

// lane is c.Lane that makes the lane on first use and refuses closed ones.
func lane(c *pe.Context, target int) (*channel.Lane, error) {
	l, err := c.LaneTo(target)
	if err != nil {
		return nil, err
	}
	return l, l.Err()
}

// opErr dresses an error with the operation.
func opErr(c *pe.Context, op string, target int, at heap.Ref, size int64, err error) error {
	if err == errs.ErrWouldBlock {
		return err // no failure: a hook asks again and again, and nothing is allocated for it
	}
	var oe *errs.OpError
	if errors.As(err, &oe) && oe.Op == op {
		return err
	}
	return c.OpError(op, target, at, size, err)
}

// overlap reports whether two ranges share bytes without being the same; a copy
// between them would depend on its order.
func overlap(a, b unsafe.Pointer, n uintptr) bool {
	x, y := uintptr(a), uintptr(b)
	return x != y && (x-y < n || y-x < n)
}
