package suite

import (
	"goshmem/amo"
	"goshmem/heap"
	"goshmem/rma"
)

// AMO is the cases of package amo.
func AMO() []Case {
	return []Case{
		{Name: "integers", Run: func(e *Env) {
			integers[int32](e)
			integers[int64](e)
			integers[int](e)
			integers[uint32](e)
			integers[uint64](e)
			integers[uint](e)
			type mine uint32
			integers[mine](e)
		}},
		{Name: "floats", Run: func(e *Env) {
			floats[float32](e)
			floats[float64](e)
		}},
		{Name: "nbi", Run: func(e *Env) {
			nbi[int32](e)
			nbi[uint64](e)
		}},
		{Name: "wrap around", Run: wrapAround},
		{Name: "none is lost", Run: noneLost},
		{Name: "floats lose none", Run: floatsLoseNone},
		{Name: "ring of locks", Run: lockRing},
		{Name: "neighbours stay", Run: neighbours},
	}
}

// amoInt and amoNumber are what an AMO works on and a heap holds.
type amoInt interface {
	amo.Integer
	heap.Elem
}

type amoNumber interface {
	amo.Number
	heap.Elem
}

// integers goes through every operation, alone on a word.
func integers[T amoInt](e *Env) {
	a := Calloc[T](e, 3)
	w, to := a.At(1), e.Next(1)
	value := func(want T) {
		v, err := amo.Fetch(e.C, w, to)
		e.OK(err)
		e.Equal(want, v)
	}
	old := func(want T) func(got T, err error) {
		return func(got T, err error) {
			e.OK(err)
			e.Equal(want, got)
		}
	}
	value(0)
	e.OK(amo.Set(e.C, w, 12, to))
	value(12)
	e.OK(amo.Add(e.C, w, 5, to))
	value(17)
	e.OK(amo.Inc(e.C, w, to))
	value(18)
	old(18)(amo.FetchAdd(e.C, w, 2, to))
	old(20)(amo.FetchInc(e.C, w, to))
	old(21)(amo.Swap(e.C, w, 100, to))
	old(100)(amo.CompareSwap(e.C, w, 99, 1, to)) // does not compare
	value(100)
	old(100)(amo.CompareSwap(e.C, w, 100, 0b1100, to))
	value(0b1100)
	e.OK(amo.Or(e.C, w, 0b0011, to))
	value(0b1111)
	e.OK(amo.And(e.C, w, 0b1010, to))
	value(0b1010)
	e.OK(amo.Xor(e.C, w, 0b0110, to))
	value(0b1100)
	old(0b1100)(amo.FetchOr(e.C, w, 0b0001, to))
	old(0b1101)(amo.FetchAnd(e.C, w, 0b0101, to))
	old(0b0101)(amo.FetchXor(e.C, w, 0b1111, to))
	value(0b1010)
	var zero T
	minus := zero - 1 // -1, or the largest
	e.OK(amo.Set(e.C, w, minus, to))
	value(minus)
	old(minus)(amo.FetchInc(e.C, w, to))
	value(0)
	old(0)(amo.FetchAdd(e.C, w, minus, to))
	old(minus)(amo.CompareSwap(e.C, w, minus, 7, to))
	value(7)
	e.Barrier()
	e.Equal([]T{0, 7, 0}, append([]T(nil), a.Local()...))
	e.Barrier()
	e.OK(e.P.Free(e.Ctx, a.Ref()))
}

func floats[T interface {
	~float32 | ~float64
	amoNumber
}](e *Env) {
	a := Calloc[T](e, 3)
	w, to := a.At(1), e.Next(1)
	e.OK(amo.Set(e.C, w, 1.5, to))
	v, err := amo.FetchAdd(e.C, w, 0.25, to)
	e.OK(err)
	e.Equal(T(1.5), v)
	e.OK(amo.Add(e.C, w, -2, to))
	v, err = amo.Fetch(e.C, w, to)
	e.OK(err)
	e.Equal(T(-0.25), v)
	v, err = amo.Swap(e.C, w, 1e30, to)
	e.OK(err)
	e.Equal(T(-0.25), v)
	var got T
	t, err := amo.FetchAddNBI(e.C, &got, w, 1, to)
	e.OK(err)
	e.OK(rma.Wait(e.Ctx, e.C, t))
	e.Equal(T(1e30), got)
	t, err = amo.SwapNBI(e.C, &got, w, 3, to)
	e.OK(err)
	e.OK(rma.Wait(e.Ctx, e.C, t))
	t, err = amo.FetchNBI(e.C, &got, w, to)
	e.OK(err)
	e.OK(rma.Wait(e.Ctx, e.C, t))
	e.Equal(T(3), got)
	e.Barrier()
	e.Equal([]T{0, 3, 0}, append([]T(nil), a.Local()...))
	e.Barrier()
	e.OK(e.P.Free(e.Ctx, a.Ref()))
}

// nbi issues every non-blocking form at once: they take effect in order.
func nbi[T amoInt](e *Env) {
	a := Calloc[T](e, 1)
	w, to := a.At(0), e.Next(1)
	for range Times(16) {
		got := make([]T, 9)
		try := func(_ rma.Ticket, err error) { e.OK(err) }
		e.OK(amo.Set(e.C, w, 5, to))
		try(amo.FetchAddNBI(e.C, &got[0], w, 5, to))
		try(amo.FetchIncNBI(e.C, &got[1], w, to))
		try(amo.SwapNBI(e.C, &got[2], w, 0b1100, to))
		try(amo.CompareSwapNBI(e.C, &got[3], w, 1, 2, to))
		try(amo.CompareSwapNBI(e.C, &got[4], w, 0b1100, 0b0110, to))
		try(amo.FetchAndNBI(e.C, &got[5], w, 0b0010, to))
		try(amo.FetchOrNBI(e.C, &got[6], w, 0b1000, to))
		try(amo.FetchXorNBI(e.C, &got[7], w, 0b1111, to))
		t, err := amo.FetchNBI(e.C, &got[8], w, to)
		e.OK(err)
		e.OK(rma.Wait(e.Ctx, e.C, t))
		e.Equal([]T{5, 10, 11, 0b1100, 0b1100, 0b0110, 0b0010, 0b1010, 0b0101}, got)
		e.Retry(func() error { return amo.TryAdd(e.C, w, 1, to) })
		e.Retry(func() error {
			_, err := amo.TryFetchAddNBI(e.C, &got[0], w, 1, to)
			return err
		})
		e.OK(rma.Quiet(e.Ctx, e.C))
		e.Equal(T(0b0110), got[0])
	}
	e.Barrier()
	e.Equal(T(7), a.Local()[0])
	e.Barrier()
	e.OK(e.P.Free(e.Ctx, a.Ref()))
}

func wrapAround(e *Env) {
	a := Calloc[int32](e, 1)
	to := e.Next(1)
	e.OK(amo.Set(e.C, a.At(0), 1<<31-1, to))
	v, err := amo.FetchInc(e.C, a.At(0), to)
	e.OK(err)
	e.Equal(int32(1<<31-1), v)
	v, err = amo.Fetch(e.C, a.At(0), to)
	e.OK(err)
	e.Equal(int32(-1<<31), v)
}

// Adds of all PEs, by fetching and non-fetching forms of several goroutines and
// the owner, all count: 100,000 of them.
func noneLost(e *Env) {
	const workers = 2
	each := Times(100_000) / (workers * e.Size())
	a := Calloc[uint64](e, 2)
	b := Calloc[uint32](e, 1)
	e.Go(workers, func(w int) {
		var got uint64
		for i := range each {
			target := 0
			switch i % 5 {
			case 0:
				_, err := amo.FetchAdd(e.C, a.At(1), 3, target)
				e.OK(err)
			case 1:
				e.OK(amo.Add(e.C, a.At(1), 3, target))
			case 2:
				e.OK(amo.Add(e.C, a.At(1), 2, target))
				e.OK(amo.Inc(e.C, a.At(1), target))
			case 3:
				_, err := amo.FetchAddNBI(e.C, &got, a.At(1), 3, target)
				e.OK(err)
				e.OK(rma.Quiet(e.Ctx, e.C))
			case 4:
				for {
					old, err := amo.Fetch(e.C, a.At(1), target)
					e.OK(err)
					seen, err := amo.CompareSwap(e.C, a.At(1), old, old+3, target)
					e.OK(err)
					if seen == old {
						break
					}
				}
			}
			e.OK(amo.Add(e.C, b.At(0), 1, target))
		}
	})
	e.OK(rma.Quiet(e.Ctx, e.C))
	e.Barrier()
	total := uint64(workers * e.Size() * each)
	v, err := amo.Fetch(e.C, a.At(1), 0)
	e.OK(err)
	e.Equal(3*total, v)
	n, err := amo.Fetch(e.C, b.At(0), 0)
	e.OK(err)
	e.Equal(uint32(total), n)
}

func floatsLoseNone(e *Env) {
	each := Times(4000)
	a, b := Calloc[float64](e, 1), Calloc[float32](e, 1)
	for range each {
		e.OK(amo.Add(e.C, a.At(0), 0.5, 0))
		e.OK(amo.Add(e.C, b.At(0), 1, 0))
	}
	e.OK(rma.Quiet(e.Ctx, e.C))
	e.Barrier()
	v, err := amo.Fetch(e.C, a.At(0), 0)
	e.OK(err)
	e.Equal(0.5*float64(each*e.Size()), v)
	w, err := amo.Fetch(e.C, b.At(0), 0)
	e.OK(err)
	e.Equal(float32(each*e.Size()), w)
}

// A lock by compare-swap at PE 0 guards plain memory there.
func lockRing(e *Env) {
	rounds := Times(40)
	lock := Calloc[int64](e, 1)
	data := Calloc[int64](e, 4)
	me := int64(e.Rank() + 1)
	buf := make([]int64, 4)
	for range rounds {
		for {
			old, err := amo.CompareSwap(e.C, lock.At(0), 0, me, 0)
			e.OK(err)
			if old == 0 {
				break
			}
			e.True(old != me, "the lock is mine already")
			e.nap()
		}
		e.OK(rma.Get(e.C, buf, data, 0))
		for i := range buf {
			buf[i]++
		}
		e.OK(rma.Put(e.C, data, buf, 0))
		// The lane orders the put before the release.
		old, err := amo.Swap(e.C, lock.At(0), 0, 0)
		e.OK(err)
		e.Equal(me, old)
	}
	e.Barrier()
	e.OK(rma.Get(e.C, buf, data, 0))
	want := int64(rounds * e.Size())
	e.Equal([]int64{want, want, want, want}, buf)
}

// An operation on a word of four bytes leaves its neighbours alone.
func neighbours(e *Env) {
	a := Calloc[uint32](e, 4)
	to := e.Next(1)
	e.Go(4, func(i int) {
		for range 200 {
			e.OK(amo.Add(e.C, a.At(i), ^uint32(0), to))
		}
	})
	e.OK(rma.Quiet(e.Ctx, e.C))
	e.Barrier()
	for _, v := range a.Local() {
		e.Equal(^uint32(199), v)
	}
}
