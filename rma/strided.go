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

// IPut copies n elements of src, srcStride elements apart, to dst on PE target,
// dstStride elements apart. Strides are in elements, at least 1. It
// returns when src is reusable.
func IPut[T heap.Elem](c *pe.Context, dst heap.Array[T], src []T, dstStride, srcStride, n, target int) error {
	_, err := strided(c, "rma: iput", true, dst, src, dstStride, srcStride, n, target, blocking)
	return err
}

// IPutNBI is IPut that may return before src is reusable.
func IPutNBI[T heap.Elem](c *pe.Context, dst heap.Array[T], src []T, dstStride, srcStride, n, target int) (Ticket, error) {
	return strided(c, "rma: iput nbi", true, dst, src, dstStride, srcStride, n, target, nonblocking)
}

// IGet copies n elements of src on PE target, srcStride elements apart, to dst,
// dstStride elements apart, and returns with the data there.
func IGet[T heap.Elem](c *pe.Context, dst []T, src heap.Array[T], dstStride, srcStride, n, target int) error {
	_, err := strided(c, "rma: iget", false, src, dst, dstStride, srcStride, n, target, blocking)
	return err
}

// IGetNBI is IGet that may return before the data is there.
func IGetNBI[T heap.Elem](c *pe.Context, dst []T, src heap.Array[T], dstStride, srcStride, n, target int) (Ticket, error) {
	return strided(c, "rma: iget nbi", false, src, dst, dstStride, srcStride, n, target, nonblocking)
}

func strided[T heap.Elem](c *pe.Context, op string, put bool, remote heap.Array[T], local []T, dstStride, srcStride, n, target int, m mode) (Ticket, error) {
	var t T
	size := unsafe.Sizeof(t)
	bytes := int64(n) * int64(size)
	fail := func(err error) (Ticket, error) {
		return Ticket{}, opErr(c, op, target, remote.Ref(), max(bytes, -1), err)
	}
	switch {
	case dstStride < 1 || srcStride < 1:
		return fail(fmt.Errorf("strides %d and %d: %w", dstStride, srcStride, errs.ErrRange))
	case n < 0:
		return fail(fmt.Errorf("%d elements: %w", n, errs.ErrRange))
	}
	there, here := dstStride, srcStride
	if !put {
		there, here = here, there
	}
	l, err := lane(c, target)
	if err != nil {
		return fail(err)
	}
	span := func(stride int) uint64 {
		s, ok := channel.StridedExtent(uint64(n), uint64(stride), elemOf(size))
		if !ok {
			return 1 << 63 // beyond every region
		}
		return s
	}
	if span(there) > uint64(remote.Bytes()) {
		if r := remote.Ref(); !r.Valid() && !r.OutOfRange() {
			return fail(errs.ErrBadRef)
		}
		return fail(&heap.RangeError{Len: span(there), Size: uint64(remote.Bytes())})
	}
	if err := l.Check(remote.Ref(), span(there)); err != nil {
		return fail(err)
	}
	if have := uint64(len(local)) * uint64(size); span(here) > have {
		return fail(fmt.Errorf("local slice: %w", &heap.RangeError{Len: span(here), Size: have}))
	}
	ptr := unsafe.Pointer(unsafe.SliceData(local))
	p := l.Mapped(remote.Ref())
	if p != nil && n > 0 && crosses(p, span(there), ptr, span(here)) {
		return fail(errs.ErrAlias)
	}
	if p != nil && (m == blocking || int(bytes) < c.InlineMax()) && inline(c, l, m) {
		if put {
			memcopy.Strided(p, ptr, uintptr(n), uintptr(dstStride), uintptr(srcStride), size)
		} else {
			memcopy.Strided(ptr, p, uintptr(n), uintptr(dstStride), uintptr(srcStride), size)
		}
		l.Leave()
		return Ticket{}, nil
	}
	d := channel.Desc{
		Op: channel.OpIPut, Flags: channel.FlagLocalPtr, Type: elemOf(size), Size: uint64(n),
		DstRegion: remote.Ref().Region(), DstOff: remote.Ref().Offset(),
		SigOff: uint64(dstStride), SigVal: uint64(srcStride),
	}
	if !put {
		d.Op = channel.OpIGet
		d.DstRegion, d.DstOff = 0, 0
		d.SrcRegion, d.SrcOff = remote.Ref().Region(), remote.Ref().Offset()
	}
	tk, err := queue(c, l, &d, ptr, m)
	if err != nil {
		return fail(err)
	}
	return tk, nil
}

// crosses reports whether two extents share bytes.
func crosses(a unsafe.Pointer, n uint64, b unsafe.Pointer, m uint64) bool {
	x, y := uint64(uintptr(a)), uint64(uintptr(b))
	return x < y+m && y < x+n
}

func elemOf(size uintptr) channel.Elem {
	switch size {
	case 1:
		return channel.Elem8
	case 2:
		return channel.Elem16
	case 4:
		return channel.Elem32
	case 8:
		return channel.Elem64
	}
	return channel.Elem128
}
