package suite

import (
	"context"
	"slices"

	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// RMA is the cases of package rma.
func RMA() []Case {
	return slices.Concat(putCases(), getCases(), signalCases(), orderCases(), waitCases(), countCases(), hookCases())
}

func putCases() []Case {
	return []Case{
		{Name: "put sizes", Heap: 8 << 20, Run: putSizes},
		{Name: "put to all", Run: putToAll},
		{Name: "put typed", Run: putTyped},
		{Name: "iput iget", Heap: 4 << 20, Run: strided},
		{Name: "put batch", Heap: 2 << 20, Run: batch},
		{Name: "put get value", Run: values},
		{Name: "value is one access", PEs: 2, Run: valueTearing},
	}
}

// Sizes in bytes, around the borders of words, lines, pages and pieces.
var (
	smallSizes = []int{0, 1, 7, 8, 9, 63, 64, 4095, 4096}
	largeSizes = []int{256 << 10, 1 << 20, 3<<20 + 5}
)

// guardBytes lie around what is put and must stay.
const guardBytes = 64

// guard is the bytes around a part of a buffer, which must not change.
type guard struct{ before, after []byte }

// newGuard clears the part [at, at+size) of b and marks what lies around it.
func newGuard(b []byte, at, size int) guard {
	clear(b[at : at+size])
	g := guard{before: b[at-guardBytes : at], after: b[at+size : at+size+guardBytes]}
	for i := range guardBytes {
		g.before[i], g.after[i] = 0xee, 0xee
	}
	return g
}

func (g guard) check(e *Env, what string) {
	for i := range guardBytes {
		if g.before[i] != 0xee || g.after[i] != 0xee {
			e.Fatalf("%s touched byte %d before or behind", what, i)
		}
	}
}

// putWays are the ways to put src and know that it has arrived.
var putWays = []struct {
	name string
	put  func(e *Env, dst heap.Ref, src []byte, target int)
}{
	{"put", func(e *Env, dst heap.Ref, src []byte, target int) {
		e.OK(rma.PutMem(e.C, dst, src, target))
		clear(src) // reusable on return
	}},
	{"nbi and quiet", func(e *Env, dst heap.Ref, src []byte, target int) {
		_, err := rma.PutMemNBI(e.C, dst, src, target)
		e.OK(err)
		e.OK(rma.Quiet(e.Ctx, e.C))
		clear(src)
	}},
	{"nbi and ticket", func(e *Env, dst heap.Ref, src []byte, target int) {
		t, err := rma.PutMemNBI(e.C, dst, src, target)
		e.OK(err)
		e.OK(rma.Wait(e.Ctx, e.C, t))
		clear(src)
		done, err := rma.Test(e.C, t)
		e.OK(err)
		e.True(done, "a ticket that was waited for is not complete")
	}},
	{"try", func(e *Env, dst heap.Ref, src []byte, target int) {
		e.Retry(func() error {
			_, err := rma.TryPutMemNBI(e.C, dst, src, target)
			return err
		})
		e.OK(rma.Quiet(e.Ctx, e.C))
		clear(src)
	}},
}

func putSizes(e *Env) {
	most := largeSizes[len(largeSizes)-1] + 64
	ref := e.Mem(most + 2*guardBytes)
	own := e.Bytes(ref, most+2*guardBytes)
	src := make([]byte, most)
	round := 0
	for _, way := range putWays {
		one := func(size, off, skew int) {
			round++
			g := newGuard(own, guardBytes+off, size)
			e.Barrier()
			s := src[skew : skew+size]
			fill(s, round+e.Rank(), 0)
			way.put(e, ref.Add(uint64(guardBytes+off)), s, e.Next(1))
			e.Barrier()
			e.check(own[guardBytes+off:][:size], round+e.Next(-1), 0, way.name)
			g.check(e, way.name)
			e.Barrier()
		}
		for _, size := range smallSizes {
			for _, off := range []int{0, 1, 3, 8, 13} {
				one(size, off, off*5%8)
			}
		}
		for _, size := range largeSizes {
			one(size, 0, 0)
			one(size, 33, 1)
		}
	}
}

// Every PE puts to every PE, itself included, at once.
func putToAll(e *Env) {
	const size = 1000
	n := e.Size()
	ref := e.Mem(n * size)
	src := make([]byte, size)
	for round := range 5 {
		for i := range n {
			fill(src, round+e.Rank(), 0)
			target := e.Next(i)
			e.OK(rma.PutMem(e.C, ref.Add(uint64(e.Rank()*size)), src, target))
		}
		e.OK(rma.Quiet(e.Ctx, e.C))
		e.Barrier()
		own := e.Bytes(ref, n*size)
		for from := range n {
			e.check(own[from*size:][:size], round+from, 0, "put to all")
		}
		e.Barrier()
	}
}

// putTyped puts and gets arrays of every type of element.
func putTyped(e *Env) {
	typed[int8](e)
	typed[int16](e)
	typed[int32](e)
	typed[int64](e)
	typed[int](e)
	typed[uint8](e)
	typed[uint16](e)
	typed[uint32](e)
	typed[uint64](e)
	typed[uint](e)
	typed[float32](e)
	typed[float64](e)
	typed[complex64](e)
	typed[complex128](e)
	type mine int32
	typed[mine](e)
}

// number makes a value of any element type.
func number[T heap.Elem](i int) T {
	var t T
	switch p := any(&t).(type) {
	case *complex64:
		*p = complex(float32(i), -float32(i))
	case *complex128:
		*p = complex(float64(i), -float64(i))
	default:
		// Every other type converts from a small integer by adding ones: the
		// constraint allows no conversion.
		one := T(1)
		for ; i > 0; i-- {
			t += one
		}
	}
	return t
}

func numbers[T heap.Elem](n, from int) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = number[T]((from + i) % 100)
	}
	return s
}

func typed[T heap.Elem](e *Env) {
	const n = 37
	a := Calloc[T](e, n)
	e.Equal(n, len(a.Local()))
	to, from := e.Next(1), e.Next(-1)
	e.OK(rma.Put(e.C, a, numbers[T](n, e.Rank()), to))
	e.Barrier()
	e.Equal(numbers[T](n, from), slices.Clone(a.Local()))
	e.Barrier()

	// A part of it, shorter than the array.
	src := numbers[T](5, 50+e.Rank())
	_, err := rma.PutNBI(e.C, a.Slice(30, n), src, to)
	e.OK(err)
	e.OK(rma.Quiet(e.Ctx, e.C))
	e.Barrier()
	want := append(numbers[T](30, from), numbers[T](5, 50+from)...)
	want = append(want, numbers[T](n, from)[35:]...)
	e.Equal(want, slices.Clone(a.Local()))

	got := make([]T, 8)
	e.OK(rma.Get(e.C, got, a.Slice(28, n), to))
	e.Equal(append(numbers[T](2, 28+e.Rank()), append(numbers[T](5, 50+e.Rank()), number[T]((35+e.Rank())%100))...), got)
	clear(got)
	t, err := rma.GetNBI(e.C, got[:3], a, to)
	e.OK(err)
	e.OK(rma.Wait(e.Ctx, e.C, t))
	e.Equal(append(numbers[T](3, e.Rank()), make([]T, 5)...), got)

	// Nothing at all is legal too.
	e.OK(rma.Put(e.C, a, nil, to))
	e.OK(rma.Get(e.C, nil, a, to))
	e.OK(rma.Put(e.C, a.Slice(n, n), nil, to))
	e.Barrier()
	e.OK(e.P.Free(e.Ctx, a.Ref()))
}

// Retry repeats a Try form until it has room.
func (e *Env) Retry(try func() error) {
	for {
		err := try()
		if err == nil {
			return
		}
		e.Is(err, pe.ErrWouldBlock)
		e.C.Progress()
		if context.Cause(e.Ctx) != nil {
			e.Fatalf("no room until the test ended: %v", err)
		}
	}
}
