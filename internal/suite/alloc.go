package suite

import (
	"encoding/binary"
	"errors"
	"slices"
	"unsafe"

	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// PE is the cases of package pe.
func PE() []Case { return slices.Concat(allocCases(), teamCases()) }

func allocCases() []Case {
	return []Case{
		{Name: "alloc is symmetric", Heap: 8 << 20, Run: allocSymmetric},
		{Name: "calloc is zero", Run: callocZero},
		{Name: "alloc exhausted", Run: allocExhausted},
		{Name: "alloc disagreement", PEs: 2, Run: allocDisagreement},
		{Name: "free refuses", Run: freeRefuses},
		{Name: "reset signals", Run: resetSignals},
		{Name: "local bytes", Run: localBytes},
		{Name: "pool", Run: pool},
		{Name: "team alloc", PEs: 3, Run: teamAlloc},
	}
}

// same fails the case unless every member of the team gives the same value.
func (e *Env) same(t *pe.Team, v uint64, what string) {
	all, err := t.Gather(e.Ctx, "same", binary.LittleEndian.AppendUint64(nil, v))
	e.OK(err)
	for i, b := range all {
		if got := binary.LittleEndian.Uint64(b); got != v {
			e.Fatalf("%s: %#x here, %#x at pe %d", what, v, got, i)
		}
	}
}

func allocSymmetric(e *Env) {
	var all []heap.Ref
	for i, c := range []struct{ size, align int64 }{
		{1, 0}, {0, 0}, {64, 64}, {4096, 4096}, {3, 1 << 16}, {100, 2 << 20}, {1 << 20, 128}, {7, 8}, {0, 0},
	} {
		ref, err := e.P.AllocMem(e.Ctx, c.size, c.align)
		e.OK(err)
		e.same(e.P.Team(), ref.Offset(), "offset")
		e.True(!slices.ContainsFunc(all, func(r heap.Ref) bool { return r.Offset() == ref.Offset() }), "two allocations at one place")
		own := e.Bytes(ref, int(c.size))
		at := uintptr(unsafe.Pointer(unsafe.SliceData(own)))
		if c.size > 0 && at%uintptr(max(c.align, 64)) != 0 {
			e.Fatalf("allocation %d is at %#x, want a multiple of %d", i, at, c.align)
		}
		fill(own, i, 0)
		all = append(all, ref)
	}
	size, used := e.P.Heap()
	e.Equal(e.Config.HeapSize, size)
	e.True(used >= 1<<20+4096, "less in use than allocated")
	e.Barrier()
	// Free in another order; the room comes back.
	for i := range all {
		e.OK(e.P.Free(e.Ctx, all[(i*4+2)%len(all)]))
	}
	_, used = e.P.Heap()
	e.Equal(int64(0), used)
	ref, err := e.P.AllocMem(e.Ctx, size, 0)
	e.OK(err)
	e.Equal(uint64(0), ref.Offset())
}

func callocZero(e *Env) {
	for range 3 {
		ref := e.Mem(100_000)
		fill(e.Bytes(ref, 100_000), 3, 0)
		e.OK(e.P.Free(e.Ctx, ref))
		again, err := e.P.CallocMem(e.Ctx, 100_000, 0)
		e.OK(err)
		// Zero on every PE when any returns.
		got := make([]byte, 100_000)
		e.OK(rma.GetMem(e.C, got, again, e.Next(1)))
		e.Equal(make([]byte, 100_000), got)
		e.Barrier()
		a := Calloc[int16](e, 50)
		e.Equal(make([]int16, 50), slices.Clone(a.Local()))
		s := e.Signals(5)
		for i := range s.Len() {
			v, err := rma.ReadSignal(e.C, s.At(i))
			e.OK(err)
			e.Equal(uint64(0), v)
		}
		e.OK(e.P.Free(e.Ctx, again))
	}
}

func allocExhausted(e *Env) {
	size, _ := e.P.Heap()
	_, err := e.P.AllocMem(e.Ctx, size+1, 0)
	e.Is(err, pe.ErrNoMemory)
	var full *heap.NoMemoryError
	e.True(errors.As(err, &full), "no NoMemoryError")
	e.Equal(size+1, full.Asked)
	e.Equal(size, full.Free)
	half, err := e.P.AllocMem(e.Ctx, size/2, 0)
	e.OK(err)
	_, err = e.P.AllocMem(e.Ctx, size/2+1, 0)
	e.Is(err, pe.ErrNoMemory)
	_, err = pe.Alloc[int64](e.Ctx, e.P, 1<<40)
	e.Is(err, pe.ErrNoMemory)
	other, err := e.P.AllocMem(e.Ctx, size/2, 0) // and not a byte was lost
	e.OK(err)
	e.OK(e.P.Free(e.Ctx, half))
	e.OK(e.P.Free(e.Ctx, other))
	for _, c := range []struct {
		size, align int64
		want        error
	}{
		{-1, 0, pe.ErrRange},
		{8, 3, pe.ErrAlign},
		{8, -8, pe.ErrAlign},
		{8, 4 << 20, pe.ErrAlign},
		{1 << 62, 0, pe.ErrNoMemory},
	} {
		_, err := e.P.AllocMem(e.Ctx, c.size, c.align)
		e.Is(err, c.want)
	}
	_, err = pe.Alloc[int64](e.Ctx, e.P, -1)
	e.Is(err, pe.ErrRange)
	_, err = pe.Calloc[complex128](e.Ctx, e.P, 1<<60)
	e.Is(err, pe.ErrRange)
	_, err = e.P.AllocSignals(e.Ctx, -1)
	e.Is(err, pe.ErrRange)
	_, err = e.P.AllocSignals(e.Ctx, 1<<60)
	e.Is(err, pe.ErrRange)
	_, used := e.P.Heap()
	e.Equal(int64(0), used)
}

// PEs that disagree all hear of it, by the field; nothing is allocated or freed,
// and the next call goes well.
func allocDisagreement(e *Env) {
	odd := e.Rank() == e.Size()-1
	pick := func(mine, odds int64) int64 {
		if odd {
			return odds
		}
		return mine
	}
	var mismatch *pe.MismatchError
	field := func(err error) string {
		e.Is(err, pe.ErrMismatch)
		e.True(errors.As(err, &mismatch), "no MismatchError")
		if odd != (mismatch.PE != e.Size()-1) {
			e.Fatalf("pe %d named: %v", mismatch.PE, err)
		}
		return mismatch.Field
	}
	_, err := e.P.AllocMem(e.Ctx, pick(100, 200), 0)
	e.Equal("size", field(err))
	_, err = e.P.AllocMem(e.Ctx, 100, pick(0, 128))
	e.Equal("alignment", field(err))

	a, b := e.Mem(100), e.Mem(100)
	if odd {
		err = e.P.Free(e.Ctx, a)
	} else {
		err = e.P.Free(e.Ctx, b)
	}
	e.Equal("offset", field(err))
	if odd {
		err = e.P.Free(e.Ctx, a)
	} else {
		_, err = e.P.AllocMem(e.Ctx, 5, 0)
	}
	e.Equal("collective call", field(err))

	// One cannot, or asks for nonsense: the others are told, whatever it was.
	one := func(bad, good func() error) {
		err := good
		if odd {
			err = bad
		}
		if err := err(); err == nil {
			e.Fatalf("no error, though pe %d could not", e.Size()-1)
		}
	}
	allocOK := func() error { _, err := e.P.AllocMem(e.Ctx, 64, 0); return err }
	one(func() error { _, err := e.P.AllocMem(e.Ctx, -1, 0); return err }, allocOK)
	one(func() error { _, err := pe.Alloc[int32](e.Ctx, e.P, -1); return err }, allocOK)
	one(func() error { _, err := pe.Alloc[int64](e.Ctx, e.P, 1<<62); return err }, allocOK)
	one(func() error { _, err := e.P.AllocSignals(e.Ctx, -3); return err }, allocOK)
	one(func() error { _, err := e.P.Team().AllocSignals(e.Ctx, -3); return err }, allocOK)
	one(func() error { return e.P.Free(e.Ctx, a.Add(8)) }, func() error { return e.P.Free(e.Ctx, a) })

	_, used := e.P.Heap()
	e.Equal(int64(256), used)
	e.OK(e.P.Free(e.Ctx, a))
	e.OK(e.P.Free(e.Ctx, b))
	e.OK(allocOK())
}

func freeRefuses(e *Env) {
	ref := e.Mem(100)
	for _, bad := range []heap.Ref{
		{},
		ref.Add(8),
		heap.MakeRef(ref.World()+1, heap.RegionHeap, ref.Offset()),  // another world's
		heap.MakeRef(ref.World(), heap.RegionRuntime, ref.Offset()), // not the user's
		heap.MakeRef(ref.World(), 7, ref.Offset()),
	} {
		e.Is(e.P.Free(e.Ctx, bad), pe.ErrBadRef)
	}
	e.Is(e.P.Free(e.Ctx, ref.Add(^uint64(0))), pe.ErrRange)
	e.OK(e.P.Free(e.Ctx, ref))
	e.Is(e.P.Free(e.Ctx, ref), pe.ErrBadRef) // double free
	e.Is(e.P.Free(e.Ctx, ref), pe.ErrBadRef)
	again := e.Mem(100)
	e.Equal(ref, again)
	e.OK(e.P.Free(e.Ctx, again))
}

// Between resets a signal is set-only or add-only; a reset makes it new.
func resetSignals(e *Env) {
	sigs := e.Signals(3)
	to := e.Next(1)
	for round := range uint64(3) {
		op := rma.SignalSet
		if round%2 == 1 {
			op = rma.SignalAdd
		}
		for i := range sigs.Len() {
			e.OK(rma.Signal(e.C, sigs.At(i), op, round+5, to))
		}
		e.OK(rma.WaitAll(e.Ctx, e.C, sigs, nil, rma.EQ, round+5))
		e.OK(e.P.Team().ResetSignals(e.Ctx, sigs))
		for i := range sigs.Len() {
			v, err := rma.ReadSignal(e.C, sigs.At(i))
			e.OK(err)
			e.Equal(uint64(0), v)
		}
		e.Barrier()
	}
	e.Is(e.P.Team().ResetSignals(e.Ctx, heap.Signals{}), pe.ErrBadRef)
}

func localBytes(e *Env) {
	ref := e.Mem(100)
	size, _ := e.P.Heap()
	b, err := e.P.LocalBytes(ref, 100)
	e.OK(err)
	e.Equal(100, len(b))
	for _, c := range []struct {
		ref  heap.Ref
		n    int
		want error
	}{
		{heap.Ref{}, 1, pe.ErrBadRef},
		{heap.MakeRef(ref.World()+1, 0, 0), 1, pe.ErrBadRef},
		{ref, -1, pe.ErrRange},
		{ref, int(size) + 1, pe.ErrRange},
		{ref.Add(uint64(size)), 1, pe.ErrRange},
		{ref.Add(^uint64(0)), 1, pe.ErrRange},
	} {
		_, err := e.P.LocalBytes(c.ref, c.n)
		e.Is(err, c.want)
	}
	_, err = pe.ArrayAt[int64](e.P, ref.Add(4), 1)
	e.Is(err, pe.ErrAlign)
	_, err = pe.ArrayAt[int64](e.P, ref, int(size))
	e.Is(err, pe.ErrRange)
	_, err = pe.ArrayAt[int64](e.P, ref, -1)
	e.Is(err, pe.ErrRange)
	a, err := pe.ArrayAt[int64](e.P, ref.Add(8), 3)
	e.OK(err)
	a.Local()[0] = 0x0102030405060708
	e.Equal(byte(8), b[8])
}

// A sub-allocator needs nobody: what it hands out is a reference like any other.
func pool(e *Env) {
	reserve := e.Mem(64 << 10)
	to, from := e.Next(1), e.Next(-1)
	box := Calloc[uint64](e, 2)
	p, err := heap.NewPool(reserve, 64<<10)
	e.OK(err)
	for i := range e.Rank() { // each PE has its own idea of what is used
		_, err := p.Alloc(int64(100*i), 0)
		e.OK(err)
	}
	ref, err := p.Alloc(256, 256)
	e.OK(err)
	// Tell the one who is to write there, in a message.
	e.OK(rma.PutValue(e.C, box.At(0), ref.Offset()+1, from))
	e.OK(rma.WaitUntil(e.Ctx, e.C, box.At(0), rma.NE, 0))
	v, err := rma.GetValue(e.C, box.At(0), e.Rank())
	e.OK(err)
	src := make([]byte, 256)
	fill(src, e.Rank(), 0)
	e.OK(rma.PutMemNotify(e.C, heap.MakeRef(reserve.World(), heap.RegionHeap, v-1), src, 0, to))
	e.OK(rma.WaitNotify(e.Ctx, e.C, 0, from, 1))
	e.check(e.Bytes(ref, 256), from, 0, "in the pool")
	e.OK(p.Free(ref))
}

// Members of a team allocate among themselves; the others' heaps stay as they
// are, and the next allocation of all finds what is free at all.
func teamAlloc(e *Env) {
	colour := e.Rank() % 2
	team, err := e.P.Team().Split(e.Ctx, colour, 0)
	e.OK(err)
	var refs []heap.Ref
	for i := range 2 + colour {
		ref, err := team.AllocMem(e.Ctx, int64(1000*(colour+1)+i), 0)
		e.OK(err)
		e.same(team, ref.Offset(), "offset")
		fill(e.Bytes(ref, 1000), e.Rank(), 0)
		refs = append(refs, ref)
	}
	all := e.Mem(5000)
	e.same(e.P.Team(), all.Offset(), "offset")
	fill(e.Bytes(all, 5000), 100, 0)
	s, err := team.AllocSignals(e.Ctx, 2)
	e.OK(err)
	c, err := team.NewContext(e.Ctx)
	e.OK(err)
	to := (c.Rank() + 1) % c.Size()
	src := make([]byte, 1000)
	fill(src, c.Rank(), 0)
	e.OK(rma.PutMemSignal(c, refs[0], src, s.At(1), rma.SignalSet, 1, to))
	e.OK(rma.WaitSignal(e.Ctx, c, s.At(1), rma.EQ, 1))
	e.check(e.Bytes(refs[0], 1000), (c.Rank()+c.Size()-1)%c.Size(), 0, "in the team's memory")
	e.check(e.Bytes(refs[1], 1000), e.Rank(), 0, "beside it")
	e.check(e.Bytes(all, 5000), 100, 0, "in everybody's memory")
	zero, err := team.CallocMem(e.Ctx, 3000, 0)
	e.OK(err)
	e.Equal(make([]byte, 3000), slices.Clone(e.Bytes(zero, 3000)))
	for _, r := range append(refs, zero, s.Ref()) {
		e.OK(team.FreeMem(e.Ctx, r))
	}
	e.OK(e.P.Free(e.Ctx, all))
	_, used := e.P.Heap()
	e.Equal(int64(0), used)
	e.OK(c.Free(e.Ctx))
	e.OK(team.Free(e.Ctx))
}
