package heap

import (
	"math"
	"unsafe"
)

// Array is a symmetric array of n elements: the same offset on every PE, and
// this PE's own copy as a slice. The zero Array has no elements and an address
// that every operation refuses (ErrBadRef).
type Array[T Elem] struct {
	ref   Ref
	local unsafe.Pointer // own copy; nil if the CPU cannot reach it
	n     int
}

// ElemSize is the size of one element in bytes.
func ElemSize[T Elem]() int64 {
	var t T
	return int64(unsafe.Sizeof(t))
}

// MakeArray types n elements at ref; local is where this PE's own copy of them
// lies, nil where the CPU cannot reach it. The caller vouches for local: it must
// hold n elements for as long as the array is used. A negative n, or an end past
// the offsets there are, gives an array without elements whose address every
// operation refuses with ErrRange.
//
// Users get theirs from allocations; this is for allocators and tests.
func MakeArray[T Elem](ref Ref, n int, local unsafe.Pointer) Array[T] {
	size := ElemSize[T]()
	if n < 0 || int64(n) > math.MaxInt64/size || ref.OutOfRange() ||
		ref.off > math.MaxInt64-uint64(int64(n)*size) {
		return Array[T]{ref: ref.asBad()}
	}
	return Array[T]{ref: ref, local: local, n: n}
}

// Local is this PE's own copy of the elements, nil if the CPU cannot reach it.
// It aliases the symmetric memory: other PEs write into it.
func (a Array[T]) Local() []T {
	if a.local == nil {
		return nil
	}
	return unsafe.Slice((*T)(a.local), a.n)
}

// Slice is the part [i, j). Out of range it is an array without elements whose
// address every operation refuses with ErrRange.
func (a Array[T]) Slice(i, j int) Array[T] {
	if uint(i) > uint(j) || uint(j) > uint(a.n) {
		return Array[T]{ref: a.ref.asBad()}
	}
	d := uint64(i) * uint64(ElemSize[T]())
	// No step where nothing is left: one past the end may belong to another
	// object of the Go heap.
	if a.local != nil && i < j {
		a.local = unsafe.Add(a.local, d)
	}
	a.ref.off += d
	a.n = j - i
	return a
}
