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

// aligned8 reports whether both are words of eight bytes: then they overlap
// only where they are the same.
func aligned8(a, b unsafe.Pointer) bool { return (uintptr(a)|uintptr(b))&7 == 0 }
