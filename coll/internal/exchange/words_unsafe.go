package exchange

import (
	"sync/atomic"
	"unsafe"

	"goshmem/heap"
	"goshmem/pe"
)

// wordAt is a word of this PE's own symmetric memory, for polling: whoever steps
// the engine keeps the context in use.
func wordAt(c *pe.Context, r heap.Ref) (*atomic.Uint64, error) {
	p, err := c.LocalWord(r, 8)
	if err != nil {
		return nil, err
	}
	return (*atomic.Uint64)(p), nil
}

// crossing reports whether two buffers share bytes.
func crossing(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}
