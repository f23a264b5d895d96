package heap

import "math"

// Elem is what a typed symmetric object may hold: the fixed-size numbers. No
// type here contains a Go pointer, so an object may live outside the Go heap.
type Elem interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int |
		~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint |
		~float32 | ~float64 | ~complex64 | ~complex128
}

// Ptr is the symmetric address of one element. The zero Ptr belongs to no world
// and is refused by every operation (ErrBadRef).
type Ptr[T Elem] struct{ ref Ref }

// MakePtr types a reference. Users get theirs from Array.At; this is for
// transports and for memory laid out by hand.
func MakePtr[T Elem](ref Ref) Ptr[T] { return Ptr[T]{ref} }

// Ref is the address without its type.
func (p Ptr[T]) Ref() Ref { return p.ref }

// Add moves the address by i elements, back if i is negative. An address that
// leaves the offsets there are is refused by every operation with ErrRange; one
// that leaves its own array is not noticed here, only at the end of the region.
func (p Ptr[T]) Add(i int) Ptr[T] {
	return Ptr[T]{p.ref.move(int64(i), ElemSize[T]())}
}

func (p Ptr[T]) String() string { return p.ref.String() }

// move shifts a reference by i elements of size bytes, in either direction.
// Every result past math.MaxInt64 is bad, so that n*size cannot wrap unnoticed:
// i*size is at most 2^63 * 16, checked by division.
func (r Ref) move(i, size int64) Ref {
	if i > math.MaxInt64/size || i < -(math.MaxInt64/size) {
		return r.asBad()
	}
	to := r.off + uint64(i*size)
	if (i >= 0) != (to >= r.off) {
		return r.asBad()
	}
	r.off = to
	return r
}
