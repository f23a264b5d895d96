package rma

import (
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/pe"
)

// PutValue stores one element (OpenSHMEM's P). The store is single-copy atomic
// for aligned elements of 1, 2, 4 and 8 bytes, and one of 4 or 8 bytes wakes a
// target that waits for the word.
func PutValue[T heap.Elem](c *pe.Context, dst heap.Ptr[T], v T, target int) error {
	if l := c.Lane(target); l != nil && l.Enter() {
		if p := l.Addr(dst.Ref(), uint64(unsafe.Sizeof(v))); p != nil && uintptr(p)&(align[T]()-1) == 0 {
			storeValue(c, p, v)
			l.Knock()
			l.Leave()
			return nil
		}
		l.Undo()
	}
	return putValueSlow(c, dst, v, target)
}

// GetValue loads one element (OpenSHMEM's G); atomic as PutValue.
func GetValue[T heap.Elem](c *pe.Context, src heap.Ptr[T], target int) (T, error) {
	if l := c.Lane(target); l != nil && l.Enter() {
		var t T
		if p := l.Addr(src.Ref(), uint64(unsafe.Sizeof(t))); p != nil && uintptr(p)&(align[T]()-1) == 0 {
			v := loadValue[T](p)
			l.Leave()
			return v, nil
		}
		l.Undo()
	}
	return getValueSlow(c, src, target)
}

// valueLane validates an element on a PE and gives its lane.
func valueLane[T heap.Elem](c *pe.Context, at heap.Ptr[T], target int) (*channel.Lane, error) {
	var t T
	l, err := lane(c, target)
	if err != nil {
		return nil, err
	}
	if err := l.Check(at.Ref(), uint64(unsafe.Sizeof(t))); err != nil {
		return nil, err
	}
	if at.Ref().Offset()%uint64(align[T]()) != 0 {
		return nil, errs.ErrAlign
	}
	return l, nil
}

func putValueSlow[T heap.Elem](c *pe.Context, dst heap.Ptr[T], v T, target int) error {
	const op = "rma: put value"
	size := unsafe.Sizeof(v)
	l, err := valueLane(c, dst, target)
	if err != nil {
		return opErr(c, op, target, dst.Ref(), int64(size), err)
	}
	if p := l.Mapped(dst.Ref()); p != nil && inline(c, l, blocking) {
		storeValue(c, p, v)
		l.Knock()
		l.Leave()
		return nil
	}
	d := channel.Desc{
		Op: channel.OpPut, Flags: channel.FlagLocalPtr, Size: uint64(size),
		DstRegion: dst.Ref().Region(), DstOff: dst.Ref().Offset(),
	}
	buf := new(T)
	*buf = v
	ptr := unsafe.Pointer(buf)
	if size == 4 || size == 8 {
		// An atomic set is the one queued store that wakes the target.
		d.Op, d.Flags, d.Type, d.SigVal = channel.OpAMOSet, 0, elemOf(size), valueBits(ptr, size)
		ptr = nil
	}
	if _, err := queue(c, l, &d, ptr, blocking); err != nil {
		return opErr(c, op, target, dst.Ref(), int64(size), err)
	}
	return nil
}

func getValueSlow[T heap.Elem](c *pe.Context, src heap.Ptr[T], target int) (T, error) {
	const op = "rma: get value"
	var none T
	size := unsafe.Sizeof(none)
	l, err := valueLane(c, src, target)
	if err != nil {
		return none, opErr(c, op, target, src.Ref(), int64(size), err)
	}
	if p := l.Mapped(src.Ref()); p != nil && inline(c, l, blocking) {
		v := loadValue[T](p)
		l.Leave()
		return v, nil
	}
	d := channel.Desc{
		Op: channel.OpGet, Flags: channel.FlagLocalPtr, Size: uint64(size),
		SrcRegion: src.Ref().Region(), SrcOff: src.Ref().Offset(),
	}
	buf := new(T)
	if _, err := queue(c, l, &d, unsafe.Pointer(buf), blocking); err != nil {
		return none, opErr(c, op, target, src.Ref(), int64(size), err)
	}
	return *buf, nil
}

// align is the alignment that makes one element one access: its size, 8 bytes
// for the 16-byte complex128, which is never atomic.
func align[T heap.Elem]() uintptr {
	var v T
	return min(unsafe.Sizeof(v), 8)
}
