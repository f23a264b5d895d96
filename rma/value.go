package rma

import (
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/pe"
)

// PutValue stores one element (OpenSHMEM's P). The store is single-copy atomic
// for aligned elements of 1, 2, 4 and 8 bytes, and wakes a target that waits for
// the word.
func PutValue[T heap.Elem](c *pe.Context, dst heap.Ptr[T], v T, target int) error {
	if l := c.Lane(target); l != nil && l.Enter() {
		if p := l.Addr(dst.Ref(), uint64(unsafe.Sizeof(v))); p != nil && uintptr(p)&(align[T]()-1) == 0 {
			*(*T)(p) = v
			l.Leave() // a locked instruction: the store is out before armed is read
			l.Knock()
			return nil
		}
		l.Leave()
	}
	return putValueSlow(c, dst, v, target)
}

// GetValue loads one element (OpenSHMEM's G); atomic as PutValue.
func GetValue[T heap.Elem](c *pe.Context, src heap.Ptr[T], target int) (T, error) {
	var v T
	if l := c.Lane(target); l != nil && l.Enter() {
		if p := l.Addr(src.Ref(), uint64(unsafe.Sizeof(v))); p != nil && uintptr(p)&(align[T]()-1) == 0 {
			v = *(*T)(p)
			l.Leave()
			return v, nil
		}
		l.Leave()
	}
	if src.Ref().Offset()%uint64(align[T]()) != 0 {
		return v, opErr(c, "rma: get value", target, src.Ref(), int64(unsafe.Sizeof(v)), errs.ErrAlign)
	}
	buf := new(T)
	_, err := getSlow(c, "rma: get value", unsafe.Slice((*byte)(unsafe.Pointer(buf)), unsafe.Sizeof(v)), src.Ref(), target, blocking)
	return *buf, err
}

// putValueSlow goes through the slow path of put, then wakes the target as the
// straight way does.
func putValueSlow[T heap.Elem](c *pe.Context, dst heap.Ptr[T], v T, target int) error {
	const op = "rma: put value"
	size := unsafe.Sizeof(v)
	if dst.Ref().Offset()%uint64(align[T]()) != 0 {
		return opErr(c, op, target, dst.Ref(), int64(size), errs.ErrAlign)
	}
	if l, err := lane(c, target); err == nil && !l.Config().Inline && (size == 4 || size == 8) {
		// An atomic set is the one queued store that wakes the target.
		if err := l.Check(dst.Ref(), uint64(size)); err != nil {
			return opErr(c, op, target, dst.Ref(), int64(size), err)
		}
		d := channel.Desc{
			Op: channel.OpAMOSet, Type: elem(size), Size: uint64(size),
			DstRegion: dst.Ref().Region(), DstOff: dst.Ref().Offset(), SigVal: bitsOf(unsafe.Pointer(&v), size),
		}
		if _, err := queue(c, l, &d, nil, blocking); err != nil {
			return opErr(c, op, target, dst.Ref(), int64(size), err)
		}
		return nil
	}
	buf := new(T)
	*buf = v
	if _, err := putSlow(c, op, dst.Ref(), unsafe.Slice((*byte)(unsafe.Pointer(buf)), size), target, blocking); err != nil {
		return err
	}
	if l := c.Lane(target); l != nil && l.Config().Bell != nil {
		l.Config().Bell.Check()
	}
	return nil
}

// align is the alignment that makes one element one access: its size, 8 bytes
// for the 16-byte complex128, which is never atomic.
func align[T heap.Elem]() uintptr {
	var v T
	return min(unsafe.Sizeof(v), 8)
}

func elem(size uintptr) channel.Elem {
	if size == 4 {
		return channel.Elem32
	}
	return channel.Elem64
}

func bitsOf(p unsafe.Pointer, size uintptr) uint64 {
	if size == 4 {
		return uint64(*(*uint32)(p))
	}
	return *(*uint64)(p)
}
