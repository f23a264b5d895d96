package heap

import "fmt"

// At is the address of element i. Out of range it is an address that every
// operation refuses with ErrRange.
func (a Array[T]) At(i int) Ptr[T] {
	if uint(i) >= uint(a.n) {
		return Ptr[T]{a.ref.asBad()}
	}
	// Cannot wrap: MakeArray saw the last element's address.
	a.ref.off += uint64(i) * uint64(ElemSize[T]())
	return Ptr[T]{a.ref}
}

// Len is the number of elements; 0 for an array that is out of range.
func (a Array[T]) Len() int { return a.n }

// Ref is the address of the first byte.
func (a Array[T]) Ref() Ref { return a.ref }

// Bytes is the length in bytes.
func (a Array[T]) Bytes() int64 { return int64(a.n) * ElemSize[T]() }

// String names the array as errors do: where it starts and how long it is.
func (a Array[T]) String() string {
	return fmt.Sprintf("%s[%d]", a.ref, a.n)
}
