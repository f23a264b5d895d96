package rma

import (
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/memcopy"
	"goshmem/pe"
)

// GetMem copies len(dst) bytes at src on PE target to dst and returns with the
// data there. It sees all earlier puts and AMOs of its lane.
func GetMem(c *pe.Context, dst []byte, src heap.Ref, target int) error {
	n := uintptr(len(dst))
	if l := c.Lane(target); l != nil && l.Enter() {
		if p := l.Addr(src, uint64(n)); p != nil {
			d := unsafe.Pointer(unsafe.SliceData(dst))
			if n == 8 && aligned8(p, d) {
				*(*uint64)(d) = *(*uint64)(p)
				l.Leave()
				return nil
			}
			if !overlap(d, p, n) {
				memcopy.Copy(d, p, n)
				l.Leave()
				return nil
			}
		}
		l.Undo()
	}
	_, err := getSlow(c, "rma: get", dst, src, target, blocking)
	return err
}

// GetMemNBI is GetMem that may return before the data is there: it is after
// Quiet, or when the ticket is complete. dst must not be touched until then.
func GetMemNBI(c *pe.Context, dst []byte, src heap.Ref, target int) (Ticket, error) {
	n := uintptr(len(dst))
	if l := c.Lane(target); l != nil && int(n) < c.InlineMax() && l.Enter() {
		p := l.Addr(src, uint64(n))
		d := unsafe.Pointer(unsafe.SliceData(dst))
		if p != nil && !overlap(d, p, n) {
			memcopy.Copy(d, p, n)
			l.Leave()
			return Ticket{}, nil
		}
		l.Undo()
	}
	return getSlow(c, "rma: get nbi", dst, src, target, nonblocking)
}

// TryGetMemNBI is GetMemNBI that returns ErrWouldBlock where that would wait for
// room. Progress hooks use it.
func TryGetMemNBI(c *pe.Context, dst []byte, src heap.Ref, target int) (Ticket, error) {
	return getSlow(c, "rma: get nbi", dst, src, target, try)
}

// Get copies the first len(dst) elements of src on PE target; see GetMem.
// ErrRange if dst is longer than src.
func Get[T heap.Elem](c *pe.Context, dst []T, src heap.Array[T], target int) error {
	if len(dst) > src.Len() {
		return arrayErr(c, "rma: get", src, len(dst), target)
	}
	return GetMem(c, bytesOf(dst), src.Ref(), target)
}

// GetNBI is Get that may return before the data is there; see GetMemNBI.
func GetNBI[T heap.Elem](c *pe.Context, dst []T, src heap.Array[T], target int) (Ticket, error) {
	if len(dst) > src.Len() {
		return Ticket{}, arrayErr(c, "rma: get nbi", src, len(dst), target)
	}
	return GetMemNBI(c, bytesOf(dst), src.Ref(), target)
}

func getSlow(c *pe.Context, op string, dst []byte, src heap.Ref, target int, m mode) (Ticket, error) {
	fail := func(err error) (Ticket, error) {
		return Ticket{}, opErr(c, op, target, src, int64(len(dst)), err)
	}
	l, err := lane(c, target)
	if err != nil {
		return fail(err)
	}
	n := uint64(len(dst))
	if err := l.Check(src, n); err != nil {
		return fail(err)
	}
	d := unsafe.Pointer(unsafe.SliceData(dst))
	p := l.Mapped(src)
	if p != nil && overlap(d, p, uintptr(n)) {
		return fail(errs.ErrAlias)
	}
	if p != nil && (m == blocking || int(n) < c.InlineMax()) && inline(c, l, m) {
		memcopy.Copy(d, p, uintptr(n))
		l.Leave()
		return Ticket{}, nil
	}
	desc := channel.Desc{Op: channel.OpGet, Flags: channel.FlagLocalPtr, SrcRegion: src.Region(), SrcOff: src.Offset(), Size: n}
	t, err := queue(c, l, &desc, d, m)
	if err != nil {
		return fail(err)
	}
	return t, nil
}
