package rma

import (
	"unsafe"

	"goshmem/heap"
)

// bytesOf views a slice of numbers as its bytes.
func bytesOf[T heap.Elem](s []T) []byte {
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(t)))
}

// load8 is the first eight bytes as the machine has them.
func load8(b []byte) uint64 { return *(*uint64)(unsafe.Pointer(unsafe.SliceData(b))) }
