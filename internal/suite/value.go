package suite

import (
	"goshmem/heap"
	"goshmem/rma"
)

func values(e *Env) {
	valueOf[int8](e)
	valueOf[int16](e)
	valueOf[int32](e)
	valueOf[int64](e)
	valueOf[int](e)
	valueOf[uint8](e)
	valueOf[uint16](e)
	valueOf[uint32](e)
	valueOf[uint64](e)
	valueOf[uint](e)
	valueOf[float32](e)
	valueOf[float64](e)
	valueOf[complex64](e)
	valueOf[complex128](e)
}

func valueOf[T heap.Elem](e *Env) {
	a := Calloc[T](e, 9)
	to, from := e.Next(1), e.Next(-1)
	for i := range a.Len() {
		e.OK(rma.PutValue(e.C, a.At(i), number[T](i+e.Rank()+1), to))
	}
	// A get sees the puts before it.
	for i := range a.Len() {
		v, err := rma.GetValue(e.C, a.At(i), to)
		e.OK(err)
		e.Equal(number[T](i+e.Rank()+1), v)
	}
	e.Barrier()
	for i, v := range a.Local() {
		e.Equal(number[T](i+from+1), v)
	}
	e.Barrier()
	e.OK(e.P.Free(e.Ctx, a.Ref()))
}

// An aligned value of 1, 2, 4 or 8 bytes is written and read in one access:
// a reader finds one value or the other, never a part of each.
func valueTearing(e *Env) {
	tearing[uint8](e)
	tearing[uint16](e)
	tearing[uint32](e)
	tearing[uint64](e)
	tearing[float64](e)
}

func tearing[T heap.Elem](e *Env) {
	var zero T
	ones := allOnes[T]()
	a := Calloc[T](e, 3)
	word := a.At(1)
	if e.Rank() == 0 {
		// The owner reads its own word while others write it.
		for range Times(20_000) {
			v, err := rma.GetValue(e.C, word, 0)
			e.OK(err)
			if v != zero && v != ones && v == v {
				e.Fatalf("a value of %d B is torn: %v", heap.ElemSize[T](), v)
			}
		}
		e.Barrier()
		return
	}
	for i := range Times(5_000) {
		v := zero
		if (i+e.Rank())%2 == 0 {
			v = ones
		}
		e.OK(rma.PutValue(e.C, word, v, 0))
		v, err := rma.GetValue(e.C, word, 0)
		e.OK(err)
		if v != zero && v != ones && v == v {
			e.Fatalf("a value of %d B is torn: %v", heap.ElemSize[T](), v)
		}
	}
	e.Barrier()
}

// allOnes is the value whose bits are all set (a NaN of a float).
func allOnes[T heap.Elem]() T {
	var t T
	switch p := any(&t).(type) {
	case *uint8:
		*p = ^*p
	case *uint16:
		*p = ^*p
	case *uint32:
		*p = ^*p
	case *uint64:
		*p = ^*p
	case *float64:
		*p = -1.7976931348623157e308
	}
	return t
}
