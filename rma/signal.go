package rma

import (
	"fmt"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/memcopy"
	"goshmem/pe"
)

// PutMemSignal copies src to dst on PE target, then sets sig there to v or adds
// v to it. Whoever sees the signal sees this payload and every earlier put and
// signal of the lane. src is reusable on return. A zero-length src makes it a
// Signal; dst must be valid all the same.
func PutMemSignal(c *pe.Context, dst heap.Ref, src []byte, sig heap.Signal, op SignalOp, v uint64, target int) error {
	_, err := putSignal(c, "rma: put signal", dst, src, sig.Ref(), op, v, target, blocking)
	return err
}

// PutMemSignalNBI is PutMemSignal that may return before src is reusable: after
// Quiet, or when the ticket is complete.
func PutMemSignalNBI(c *pe.Context, dst heap.Ref, src []byte, sig heap.Signal, op SignalOp, v uint64, target int) (Ticket, error) {
	return putSignal(c, "rma: put signal nbi", dst, src, sig.Ref(), op, v, target, nonblocking)
}

// TryPutMemSignalNBI is PutMemSignalNBI that returns ErrWouldBlock where that
// would wait for room. Progress hooks use it.
func TryPutMemSignalNBI(c *pe.Context, dst heap.Ref, src []byte, sig heap.Signal, op SignalOp, v uint64, target int) (Ticket, error) {
	return putSignal(c, "rma: put signal nbi", dst, src, sig.Ref(), op, v, target, try)
}

// PutSignal is PutMemSignal of elements; ErrRange if src is longer than dst.
func PutSignal[T heap.Elem](c *pe.Context, dst heap.Array[T], src []T, sig heap.Signal, op SignalOp, v uint64, target int) error {
	if len(src) > dst.Len() {
		return arrayErr(c, "rma: put signal", dst, len(src), target)
	}
	return PutMemSignal(c, dst.Ref(), bytesOf(src), sig, op, v, target)
}

// PutSignalNBI is PutMemSignalNBI of elements.
func PutSignalNBI[T heap.Elem](c *pe.Context, dst heap.Array[T], src []T, sig heap.Signal, op SignalOp, v uint64, target int) (Ticket, error) {
	if len(src) > dst.Len() {
		return Ticket{}, arrayErr(c, "rma: put signal nbi", dst, len(src), target)
	}
	return PutMemSignalNBI(c, dst.Ref(), bytesOf(src), sig, op, v, target)
}

// Signal sets sig on PE target to v or adds v to it, behind every earlier
// operation of the lane.
func Signal(c *pe.Context, sig heap.Signal, op SignalOp, v uint64, target int) error {
	return signal(c, "rma: signal", sig.Ref(), op, v, target, nonblocking)
}

// TrySignal is Signal that returns ErrWouldBlock where that would wait for room.
func TrySignal(c *pe.Context, sig heap.Signal, op SignalOp, v uint64, target int) error {
	return signal(c, "rma: signal", sig.Ref(), op, v, target, try)
}

// Notify adds 1 to one of the context's built-in words at PE target, which has
// eight (index 0 to 7) for each source PE; behind every earlier operation of the
// lane. WaitSignals waits for it.
func Notify(c *pe.Context, index, target int) error {
	w, err := c.BuiltinWord(index)
	if err != nil {
		return opErr(c, "rma: notify", target, w, 0, err)
	}
	return signal(c, "rma: notify", w, SignalAdd, 1, target, nonblocking)
}

// PutMemNotify is PutMemSignal on a built-in word: it adds 1 there.
func PutMemNotify(c *pe.Context, dst heap.Ref, src []byte, index, target int) error {
	w, err := c.BuiltinWord(index)
	if err != nil {
		return opErr(c, "rma: put notify", target, w, int64(len(src)), err)
	}
	_, err = putSignal(c, "rma: put notify", dst, src, w, SignalAdd, 1, target, blocking)
	return err
}

// apply changes a signal's cell inside Enter and Leave; a locked instruction.
func apply(cell unsafe.Pointer, op SignalOp, v uint64) {
	channel.ApplySignal(cell, channel.SigOp(op), v)
}

func putSignal(c *pe.Context, name string, dst heap.Ref, src []byte, sig heap.Ref, op SignalOp, v uint64, target int, m mode) (Ticket, error) {
	n := uintptr(len(src))
	if l := c.Lane(target); l != nil && (m == blocking || int(n) < c.InlineMax()) && l.Enter() {
		p, s := l.Addr(dst, uint64(n)), l.Addr(sig, heap.SignalSize)
		from := unsafe.Pointer(unsafe.SliceData(src))
		if p != nil && s != nil && uintptr(s)&7 == 0 && op-1 < 2 && !overlap(p, from, n) && modeOK(sig, s, op) {
			if n == 8 && aligned8(p, from) {
				*(*uint64)(p) = *(*uint64)(from)
			} else {
				memcopy.Copy(p, from, n)
			}
			apply(s, op, v)
			l.Knock()
			l.Leave()
			return Ticket{}, nil
		}
		l.Undo()
	}
	return putSignalSlow(c, name, dst, src, sig, op, v, target, m)
}

func putSignalSlow(c *pe.Context, name string, dst heap.Ref, src []byte, sig heap.Ref, op SignalOp, v uint64, target int, m mode) (Ticket, error) {
	fail := func(at heap.Ref, err error) (Ticket, error) {
		return Ticket{}, opErr(c, name, target, at, int64(len(src)), err)
	}
	l, err := lane(c, target)
	if err != nil {
		return fail(dst, err)
	}
	n := uint64(len(src))
	if err := l.Check(dst, n); err != nil {
		return fail(dst, err)
	}
	if err := checkSignal(l, sig, op); err != nil {
		return fail(sig, err)
	}
	from := unsafe.Pointer(unsafe.SliceData(src))
	p, s := l.Mapped(dst), l.Mapped(sig)
	if p != nil && overlap(p, from, uintptr(n)) {
		return fail(dst, errs.ErrAlias)
	}
	if p != nil && s != nil && (m == blocking || int(n) < c.InlineMax()) && inline(c, l, m) {
		memcopy.Copy(p, from, uintptr(n))
		apply(s, op, v)
		l.Knock()
		l.Leave()
		return Ticket{}, nil
	}
	d := channel.Desc{
		Op: channel.OpPut, Flags: channel.FlagLocalPtr, DstRegion: dst.Region(), DstOff: dst.Offset(), Size: n,
		SigOp: channel.SigOp(op), SigOff: sig.Offset(), SigVal: v,
	}
	if sig.Region() == heap.RegionRuntime {
		d.Flags |= channel.FlagSigRuntime
	}
	t, err := queue(c, l, &d, from, m)
	if err != nil {
		return fail(dst, err)
	}
	return t, nil
}

func signal(c *pe.Context, name string, sig heap.Ref, op SignalOp, v uint64, target int, m mode) error {
	if l := c.Lane(target); l != nil && l.Enter() {
		if s := l.Addr(sig, heap.SignalSize); s != nil && uintptr(s)&7 == 0 && op-1 < 2 && modeOK(sig, s, op) {
			apply(s, op, v)
			l.Knock()
			l.Leave()
			return nil
		}
		l.Undo()
	}
	l, err := lane(c, target)
	if err == nil {
		err = checkSignal(l, sig, op)
	}
	if err != nil {
		return opErr(c, name, target, sig, 0, err)
	}
	if s := l.Mapped(sig); s != nil && inline(c, l, m) {
		apply(s, op, v)
		l.Knock()
		l.Leave()
		return nil
	}
	d := channel.Desc{Op: channel.OpSignal, SigOp: channel.SigOp(op), SigOff: sig.Offset(), SigVal: v}
	if sig.Region() == heap.RegionRuntime {
		d.Flags |= channel.FlagSigRuntime
	}
	if _, err := queue(c, l, &d, nil, m); err != nil {
		return opErr(c, name, target, sig, 0, err)
	}
	return nil
}

// checkSignal validates a signal reference on the lane's peer.
func checkSignal(l *channel.Lane, sig heap.Ref, op SignalOp) error {
	if op != SignalSet && op != SignalAdd {
		return fmt.Errorf("signal operation %d is neither SignalSet nor SignalAdd: %w", op, errs.ErrConfig)
	}
	if err := l.Check(sig, heap.SignalSize); err != nil {
		return err
	}
	if sig.Offset()%8 != 0 {
		return errs.ErrAlign
	}
	if s := l.Mapped(sig); s != nil && !modeOK(sig, s, op) {
		return fmt.Errorf("a signal that was set is added to, or the other way round: %w", errs.ErrConfig)
	}
	return nil
}
