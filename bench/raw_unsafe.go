package bench

import (
	"unsafe"

	"goshmem/heap"
	"goshmem/pe"
)

// The floors work on the peers' memory without the runtime: by its address.

// rawBytes are n bytes of a PE's memory as mapped here, nil where they are not.
// ref comes from an allocation of at least n bytes.
func rawBytes(c *pe.Context, ref heap.Ref, n int64, target int) ([]byte, error) {
	l, err := c.LaneTo(target)
	if err != nil {
		return nil, err
	}
	if err := l.Check(ref, uint64(n)); err != nil {
		return nil, err
	}
	p := l.Mapped(ref)
	if p == nil {
		return nil, nil
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// rawWord is an aligned word of a PE's memory as mapped here, nil where it is not.
func rawWord(c *pe.Context, ref heap.Ref, target int) (*uint64, error) {
	b, err := rawBytes(c, ref, 8, target)
	if err != nil || b == nil {
		return nil, err
	}
	return (*uint64)(unsafe.Pointer(unsafe.SliceData(b))), nil
}

// first is the address of a slice's memory.
func first(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
