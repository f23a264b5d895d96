package suite

import (
	"slices"

	"goshmem/amo"
	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

func waitCases() []Case {
	return []Case{
		{Name: "wait signal comparisons", Run: waitSignalCmp},
		{Name: "wait until", Run: waitUntil},
		{Name: "wait any some all", Run: waitMany},
		{Name: "wait vectors", Run: waitVectors},
		{Name: "wait any is fair", Run: waitAnyFair},
		{Name: "wait sleeps and wakes", PEs: 2, Run: waitSleeps},
	}
}

// cmpTable is a value that does not compare, and one that does.
var cmpTable = []struct {
	cmp     rma.Cmp
	v       uint64
	no, yes uint64
}{
	{rma.EQ, 5, 4, 5},
	{rma.NE, 5, 5, 6},
	{rma.GT, 5, 5, 6},
	{rma.GE, 5, 4, 5},
	{rma.LT, 5, 5, 4},
	{rma.LE, 5, 6, 5},
	{rma.GT, 1 << 63, 1 << 63, 1<<63 + 1}, // unsigned
	{rma.LT, 1 << 63, 1 << 63, 0},
	{rma.GE, ^uint64(0), ^uint64(0) - 1, ^uint64(0)},
}

func waitSignalCmp(e *Env) {
	sig := e.Signals(2).At(1)
	to, from := e.Next(1), e.Next(-1)
	for _, c := range cmpTable {
		e.OK(rma.Signal(e.C, sig, rma.SignalSet, c.no, to))
		e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.EQ, c.no))
		ok, err := rma.TestSignal(e.C, sig, c.cmp, c.v)
		e.OK(err)
		e.True(!ok, "compares though it should not: "+c.cmp.String())
		ctx, cancel := e.Brief()
		e.Is(rma.WaitSignal(ctx, e.C, sig, c.cmp, c.v), pe.ErrTimeout)
		cancel()
		// Only who has seen that it does not compare is sent what does.
		e.OK(rma.Notify(e.C, 0, from))
		e.OK(rma.WaitNotify(e.Ctx, e.C, 0, to, 1))
		e.OK(rma.Signal(e.C, sig, rma.SignalSet, c.yes, to))
		e.OK(rma.WaitSignal(e.Ctx, e.C, sig, c.cmp, c.v, rma.From(from)))
		for range 2 { // absolute: consumes nothing
			e.OK(rma.WaitSignal(e.Ctx, e.C, sig, c.cmp, c.v))
			ok, err = rma.TestSignal(e.C, sig, c.cmp, c.v)
			e.OK(err)
			e.True(ok, "does not compare: "+c.cmp.String())
		}
		v, err := rma.ReadSignal(e.C, sig)
		e.OK(err)
		e.Equal(c.yes, v)
		e.Barrier()
	}
}

func waitUntil(e *Env) {
	untilOf[int32](e)
	untilOf[int64](e)
	untilOf[int](e)
	untilOf[uint32](e)
	untilOf[uint64](e)
	untilOf[uint](e)
	untilSigned(e)
}

// untilOf waits for words changed in every way that there is.
func untilOf[T interface {
	rma.Word
	heap.Elem
	amo.Integer
}](e *Env) {
	a := Calloc[T](e, 3)
	w := a.At(1)
	to := e.Next(1)
	change := []func(v T){
		func(v T) { e.OK(rma.PutValue(e.C, w, v, to)) },
		func(v T) { e.OK(amo.Set(e.C, w, v, to)) },
		func(v T) { e.OK(amo.Add(e.C, w, 1, to)) },
		func(v T) { e.OK(rma.Put(e.C, a.Slice(1, 2), []T{v}, to)) },
		func(v T) { _, err := amo.Swap(e.C, w, v, to); e.OK(err) },
		func(v T) { e.OK(rma.Put(e.C, a, []T{9, v, 9}, to)) },
		func(v T) { _, err := amo.CompareSwap(e.C, w, v-1, v, to); e.OK(err) },
	}
	for i, f := range change {
		v := T(i + 1)
		ok, err := rma.TestUntil(e.C, w, rma.GE, v)
		e.OK(err)
		e.True(!ok, "there before it was written")
		e.Barrier()
		f(v)
		e.OK(rma.WaitUntil(e.Ctx, e.C, w, rma.GE, v))
		e.OK(rma.WaitUntil(e.Ctx, e.C, w, rma.EQ, v, rma.From(e.Next(-1))))
		ok, err = rma.TestUntil(e.C, w, rma.EQ, v)
		e.OK(err)
		e.True(ok, "gone after the wait")
		e.Barrier()
	}
	ctx, cancel := e.Brief()
	defer cancel()
	e.Is(rma.WaitUntil(ctx, e.C, w, rma.LT, T(len(change))), pe.ErrTimeout)
	e.Barrier()
	e.OK(e.P.Free(e.Ctx, a.Ref()))
}

// Words are compared by their type: -1 is less than 0, and 2^32-1 is not.
func untilSigned(e *Env) {
	s, u := Calloc[int32](e, 1), Calloc[uint32](e, 1)
	e.OK(amo.Add(e.C, s.At(0), -1, e.Next(1)))
	e.OK(amo.Add(e.C, u.At(0), ^uint32(0), e.Next(1)))
	e.OK(rma.WaitUntil(e.Ctx, e.C, s.At(0), rma.LT, 0))
	e.OK(rma.WaitUntil(e.Ctx, e.C, u.At(0), rma.GT, 1<<31))
	ok, err := rma.TestUntil(e.C, s.At(0), rma.GT, 0)
	e.OK(err)
	e.True(!ok, "-1 > 0")
	e.Barrier()
}

func waitMany(e *Env) {
	const n = 6
	s := e.Signals(n)
	to := e.Next(1)
	set := func(i int, v uint64) { e.OK(rma.Signal(e.C, s.At(i), rma.SignalSet, v, to)) }
	none := make(rma.Status, n)
	for i := range none {
		none[i] = 1
	}

	// Nothing there yet.
	i, err := rma.TestAny(e.C, s, nil, 0, rma.GE, 1)
	e.OK(err)
	e.Equal(-1, i)
	some, err := rma.TestSome(e.C, s, nil, nil, rma.GE, 1)
	e.OK(err)
	e.Equal(0, len(some))
	all, err := rma.TestAll(e.C, s, nil, rma.GE, 1)
	e.OK(err)
	e.Equal(false, all)
	e.Barrier()

	// One.
	set(4, 1)
	i, err = rma.WaitAny(e.Ctx, e.C, s, nil, 0, rma.GE, 1)
	e.OK(err)
	e.Equal(4, i)
	some, err = rma.WaitSome(e.Ctx, e.C, s, nil, []int{-5}, rma.GE, 1)
	e.OK(err)
	e.Equal([]int{-5, 4}, some) // appended
	e.Barrier()

	// Excluded by its status: as if it were not there.
	status := make(rma.Status, n)
	status[4] = 1
	i, err = rma.TestAny(e.C, s, status, 0, rma.GE, 1)
	e.OK(err)
	e.Equal(-1, i)
	e.Barrier()
	set(1, 1)
	set(2, 1)
	e.OK(rma.WaitAll(e.Ctx, e.C, s.Slice(1, 3), nil, rma.EQ, 1))
	i, err = rma.WaitAny(e.Ctx, e.C, s, status, 1, rma.GE, 1)
	e.OK(err)
	e.Equal(2, i)
	some, err = rma.WaitSome(e.Ctx, e.C, s, status, nil, rma.GE, 1)
	e.OK(err)
	e.Equal([]int{1, 2}, some)
	some, err = rma.TestSome(e.C, s, status, some[:0], rma.GE, 1)
	e.OK(err)
	e.Equal([]int{1, 2}, some)
	ctx, cancel := e.Brief()
	defer cancel()
	e.Is(rma.WaitAll(ctx, e.C, s, nil, rma.GE, 1), pe.ErrTimeout)
	e.Barrier()

	// The rest.
	set(0, 1)
	set(3, 1)
	set(5, 1)
	e.OK(rma.WaitAll(e.Ctx, e.C, s, status, rma.GE, 1))
	e.OK(rma.WaitAll(e.Ctx, e.C, s, nil, rma.GE, 1, rma.From(e.Next(-1))))
	all, err = rma.TestAll(e.C, s, nil, rma.GE, 1)
	e.OK(err)
	e.Equal(true, all)
	e.Barrier()

	// All excluded, or none there: nothing to wait for.
	e.OK(rma.WaitAll(e.Ctx, e.C, s, none, rma.GE, 99))
	i, err = rma.WaitAny(e.Ctx, e.C, s, none, 0, rma.GE, 1)
	e.OK(err)
	e.Equal(-1, i)
	some, err = rma.WaitSome(e.Ctx, e.C, s, none, nil, rma.GE, 1)
	e.OK(err)
	e.Equal(0, len(some))
	empty := s.Slice(3, 3)
	e.OK(rma.WaitAll(e.Ctx, e.C, empty, nil, rma.GE, 1))
	i, err = rma.WaitAny(e.Ctx, e.C, empty, nil, 0, rma.GE, 1)
	e.OK(err)
	e.Equal(-1, i)
	i, err = rma.TestAny(e.C, empty, nil, 0, rma.GE, 1)
	e.OK(err)
	e.Equal(-1, i)
	some, err = rma.WaitSome(e.Ctx, e.C, empty, nil, nil, rma.GE, 1)
	e.OK(err)
	e.Equal(0, len(some))
	all, err = rma.TestAll(e.C, empty, nil, rma.GE, 1)
	e.OK(err)
	e.Equal(true, all)
	e.Barrier()
}

func waitVectors(e *Env) {
	const n = 4
	s := e.Signals(n)
	to := e.Next(1)
	want := []uint64{10, 20, 30, 40}
	for i := range n {
		all, err := rma.TestAllVector(e.C, s, nil, rma.EQ, want)
		e.OK(err)
		e.True(!all, "all, though one was not sent")
		e.Barrier()
		e.OK(rma.Signal(e.C, s.At(i), rma.SignalAdd, want[i], to))
		seen := make(rma.Status, n)
		for k := range i {
			seen[k] = 1
		}
		k, err := rma.WaitAnyVector(e.Ctx, e.C, s, seen, i, rma.EQ, want)
		e.OK(err)
		e.Equal(i, k)
		some, err := rma.WaitSomeVector(e.Ctx, e.C, s, nil, nil, rma.EQ, want)
		e.OK(err)
		e.Equal([]int{0, 1, 2, 3}[:i+1], some)
		k, err = rma.TestAnyVector(e.C, s, nil, i, rma.EQ, want)
		e.OK(err)
		e.Equal(0, k) // behind i there is none yet, so from the beginning
		some, err = rma.TestSomeVector(e.C, s, nil, nil, rma.EQ, want)
		e.OK(err)
		e.Equal(i+1, len(some))
		e.Barrier()
	}
	e.OK(rma.WaitAllVector(e.Ctx, e.C, s, nil, rma.EQ, want))
	for _, err := range []error{
		rma.WaitAllVector(e.Ctx, e.C, s, nil, rma.EQ, want[:3]),
		rma.WaitAllVector(e.Ctx, e.C, s, rma.Status{0}, rma.EQ, want),
	} {
		e.Is(err, pe.ErrConfig)
	}
	e.Barrier()
}

// A caller that passes the last index gets each of those that are there in turn.
func waitAnyFair(e *Env) {
	const n = 5
	s := e.Signals(n)
	for i := range n {
		e.OK(rma.Signal(e.C, s.At(i), rma.SignalSet, 1, e.Next(1)))
	}
	e.OK(rma.WaitAll(e.Ctx, e.C, s, nil, rma.EQ, 1))
	var got []int
	for at := -1; len(got) < n; {
		var err error
		at, err = rma.WaitAny(e.Ctx, e.C, s, nil, at, rma.EQ, 1)
		e.OK(err)
		got = append(got, at)
	}
	slices.Sort(got)
	e.Equal([]int{0, 1, 2, 3, 4}, got)
	e.Barrier()
}

// Waiters that have gone to sleep are woken by each kind of operation.
func waitSleeps(e *Env) {
	sig := e.Signals(1).At(0)
	word := Calloc[uint64](e, 1).At(0)
	if e.Rank() > 1 {
		e.Barrier()
		return
	}
	for round := range uint64(Times(8)) {
		if e.Rank() == 0 {
			e.OK(rma.WaitNotify(e.Ctx, e.C, 0, 1, 1))
			e.nap()
			e.OK(rma.Signal(e.C, sig, rma.SignalAdd, 1, 1))
			e.nap()
			e.OK(rma.PutValue(e.C, word, 2*round+1, 1))
			e.nap()
			e.OK(amo.Add(e.C, word, 1, 1))
			e.nap()
			e.OK(rma.Notify(e.C, 1, 1))
			continue
		}
		e.OK(rma.Notify(e.C, 0, 0))
		e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.GE, round+1))
		e.OK(rma.WaitUntil(e.Ctx, e.C, word, rma.GE, 2*round+1))
		e.OK(rma.WaitUntil(e.Ctx, e.C, word, rma.GE, 2*round+2))
		e.OK(rma.WaitNotify(e.Ctx, e.C, 1, 0, 1))
	}
	e.Barrier()
}
