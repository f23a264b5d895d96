package rma

import (
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/memcopy"
	"goshmem/internal/raceflag"
	"goshmem/pe"
)

// PutMem copies src to dst on PE target and returns when src is reusable. The
// bytes are visible there after Quiet, after Fence and a later operation, or
// when a signal ordered behind them is seen.
func PutMem(c *pe.Context, dst heap.Ref, src []byte, target int) error {
	n := uintptr(len(src))
	if l := c.Lane(target); l != nil && l.Enter() {
		if p := l.Addr(dst, uint64(n)); p != nil {
			s := unsafe.Pointer(unsafe.SliceData(src))
			if n == 8 && aligned8(p, s) {
				raceflag.Release(p)
				*(*uint64)(p) = *(*uint64)(s)
				l.Leave()
				return nil
			}
			if !overlap(p, s, n) {
				memcopy.Copy(p, s, n)
				l.Leave()
				return nil
			}
		}
		l.Undo()
	}
	_, err := putSlow(c, "rma: put", dst, src, target, blocking)
	return err
}

// PutMemNBI is PutMem that may return before src is reusable: after Quiet, or
// when the ticket is complete.
func PutMemNBI(c *pe.Context, dst heap.Ref, src []byte, target int) (Ticket, error) {
	return putNBI(c, dst, src, target, nonblocking)
}

func putNBI(c *pe.Context, dst heap.Ref, src []byte, target int, m mode) (Ticket, error) {
	n := uintptr(len(src))
	if l := c.Lane(target); l != nil && int(n) < c.InlineMax() && l.Enter() {
		if p := l.Addr(dst, uint64(n)); p != nil {
			s := unsafe.Pointer(unsafe.SliceData(src))
			if n == 8 && aligned8(p, s) {
				raceflag.Release(p)
				*(*uint64)(p) = *(*uint64)(s)
				l.Leave()
				return Ticket{}, nil
			}
			if !overlap(p, s, n) {
				memcopy.Copy(p, s, n)
				l.Leave()
				return Ticket{}, nil
			}
		}
		l.Undo()
	}
	return putSlow(c, "rma: put nbi", dst, src, target, m)
}

// TryPutMemNBI is PutMemNBI that returns ErrWouldBlock where that would wait for
// room. Progress hooks use it.
func TryPutMemNBI(c *pe.Context, dst heap.Ref, src []byte, target int) (Ticket, error) {
	return putNBI(c, dst, src, target, try)
}

// Put copies src to the beginning of dst on PE target; see PutMem. ErrRange if
// src is longer than dst.
func Put[T heap.Elem](c *pe.Context, dst heap.Array[T], src []T, target int) error {
	if len(src) > dst.Len() {
		return arrayErr(c, "rma: put", dst, len(src), target)
	}
	return PutMem(c, dst.Ref(), bytesOf(src), target)
}

// PutNBI is Put that may return before src is reusable; see PutMemNBI.
func PutNBI[T heap.Elem](c *pe.Context, dst heap.Array[T], src []T, target int) (Ticket, error) {
	if len(src) > dst.Len() {
		return Ticket{}, arrayErr(c, "rma: put nbi", dst, len(src), target)
	}
	return PutMemNBI(c, dst.Ref(), bytesOf(src), target)
}

// putSlow is everything but the straight way: first use of a lane, errors, a
// lane with operations pending, and the ring.
func putSlow(c *pe.Context, op string, dst heap.Ref, src []byte, target int, m mode) (Ticket, error) {
	fail := func(err error) (Ticket, error) {
		return Ticket{}, opErr(c, op, target, dst, int64(len(src)), err)
	}
	l, err := lane(c, target)
	if err != nil {
		return fail(err)
	}
	n := uint64(len(src))
	if err := l.Check(dst, n); err != nil {
		return fail(err)
	}
	s := unsafe.Pointer(unsafe.SliceData(src))
	p := l.Mapped(dst)
	if p != nil && overlap(p, s, uintptr(n)) {
		return fail(errs.ErrAlias)
	}
	if p != nil && (m == blocking || int(n) < c.InlineMax()) && inline(c, l, m) {
		memcopy.Copy(p, s, uintptr(n))
		l.Leave()
		return Ticket{}, nil
	}
	d := channel.Desc{Op: channel.OpPut, Flags: channel.FlagLocalPtr, DstRegion: dst.Region(), DstOff: dst.Offset(), Size: n}
	t, err := queue(c, l, &d, s, m)
	if err != nil {
		return fail(err)
	}
	return t, nil
}

// inline enters the lane if it is, or can be made, free; then Leave must follow.
func inline(c *pe.Context, l *channel.Lane, m mode) bool {
	return l.Enter() || m != try && c.Settle(l) && l.Enter()
}

func arrayErr[T heap.Elem](c *pe.Context, op string, a heap.Array[T], n, target int) error {
	size := int64(n) * heap.ElemSize[T]()
	switch {
	case a.Ref().OutOfRange():
		return opErr(c, op, target, a.Ref(), size, errs.ErrRange)
	case !a.Ref().Valid():
		return opErr(c, op, target, a.Ref(), size, errs.ErrBadRef)
	}
	return opErr(c, op, target, a.Ref(), size, &heap.RangeError{Len: uint64(size), Size: uint64(a.Bytes())})
}
