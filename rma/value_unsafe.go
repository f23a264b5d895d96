package rma

import (
	"sync/atomic"
	"unsafe"

	"goshmem/heap"
	"goshmem/internal/memcopy"
	"goshmem/pe"
)

// storeValue stores one aligned element by one access, as a locked instruction
// or followed by one, so that a look at the target's armed word may follow.
func storeValue[T heap.Elem](c *pe.Context, p unsafe.Pointer, v T) {
	switch unsafe.Sizeof(v) {
	case 8:
		atomic.StoreUint64((*uint64)(p), *(*uint64)(unsafe.Pointer(&v)))
		return
	case 4:
		atomic.StoreUint32((*uint32)(p), *(*uint32)(unsafe.Pointer(&v)))
		return
	case 2, 1:
		memcopy.Word(p, unsafe.Pointer(&v), unsafe.Sizeof(v))
	default:
		*(*T)(p) = v
	}
	c.MemoryBarrier()
}

// loadValue loads one aligned element by one access.
func loadValue[T heap.Elem](p unsafe.Pointer) (v T) {
	switch unsafe.Sizeof(v) {
	case 8:
		*(*uint64)(unsafe.Pointer(&v)) = atomic.LoadUint64((*uint64)(p))
	case 4:
		*(*uint32)(unsafe.Pointer(&v)) = atomic.LoadUint32((*uint32)(p))
	case 2, 1:
		memcopy.Word(unsafe.Pointer(&v), p, unsafe.Sizeof(v))
	default:
		v = *(*T)(p)
	}
	return v
}

// valueBits is the element at p of 4 or 8 bytes, as bits.
func valueBits(p unsafe.Pointer, size uintptr) uint64 {
	if size == 4 {
		return uint64(*(*uint32)(p))
	}
	return *(*uint64)(p)
}
