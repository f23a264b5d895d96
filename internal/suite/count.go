package suite

import (
	"errors"
	"sync"
	"time"

	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

func countCases() []Case {
	return []Case{
		{Name: "counters", Heap: 2 << 20, Run: counters},
		{Name: "wait counter", Heap: 2 << 20, Run: waitCounter},
		{Name: "two contexts", Heap: 2 << 20, Run: twoContexts},
	}
}

func counters(e *Env) {
	const room = 256 << 10
	// Every PE has a place of its own at each.
	ref := e.Mem(e.Size() * room).Add(uint64(e.Rank() * room))
	words := Calloc[uint32](e, e.Size()).Slice(e.Rank(), e.Rank()+1)
	sig := e.Signals(1).At(0)
	c, err := e.P.Team().NewContext(e.Ctx)
	e.OK(err)
	src, got := make([]byte, room), make([]byte, 5)
	read := func(target int) (issued, acked uint64) {
		issued, err := rma.Issued(c, target)
		e.OK(err)
		acked, err = rma.Acked(c, target)
		e.OK(err)
		e.True(acked <= issued, "more complete than begun")
		return issued, acked
	}
	for i := range e.Size() {
		issued, acked := read(i)
		e.Equal([2]uint64{}, [2]uint64{issued, acked})
	}
	e.Equal(uint64(0), rma.ReadCounter(c))
	ops := []func(target int) error{
		func(t int) error { return rma.PutMem(c, ref, src[:5], t) },
		func(t int) error { _, err := rma.PutMemNBI(c, ref, src[:5], t); return err },
		func(t int) error { _, err := rma.PutMemNBI(c, ref, src, t); return err },
		func(t int) error { return rma.GetMem(c, got, ref, t) },
		func(t int) error { return rma.Signal(c, sig, rma.SignalAdd, 1, t) },
		func(t int) error { return rma.PutMemSignal(c, ref, src[:9], sig, rma.SignalAdd, 1, t) },
		func(t int) error { return rma.PutValue(c, words.At(0), 3, t) },
		func(t int) error { _, err := rma.GetValue(c, words.At(0), t); return err },
		func(t int) error { return rma.IPut(c, words, []uint32{4}, 1, 1, 1, t) },
		func(t int) error { return rma.Notify(c, 0, t) },
		func(t int) error { _, err := rma.PutBatch(c, []rma.BatchItem{{Dst: ref, Src: src[:1]}}, t); return err },
	}
	total := uint64(0)
	for k, op := range ops {
		for target := range e.Size() {
			before, _ := read(target)
			e.OK(op(target))
			after, _ := read(target)
			if after != before+1 {
				e.Fatalf("operation %d counts as %d", k, after-before)
			}
			total++
		}
	}
	e.OK(rma.Quiet(e.Ctx, c))
	for target := range e.Size() {
		issued, acked := read(target)
		e.Equal(uint64(len(ops)), issued)
		e.Equal(issued, acked)
	}
	e.Equal(total, rma.ReadCounter(c))
	e.OK(rma.WaitCounter(e.Ctx, c, total))
	e.OK(rma.WaitCounter(e.Ctx, c, 0))

	// What is refused is not counted.
	e.Is(rma.PutMem(c, ref.Add(1<<40), src[:8], 0), pe.ErrRange)
	e.Is(rma.PutMem(c, heap.Ref{}, src[:8], 0), pe.ErrBadRef)
	_, err = rma.PutMemNBI(c, ref, src, e.Size())
	e.Is(err, pe.ErrPeer)
	e.Is(rma.Signal(c, sig, 9, 1, 0), pe.ErrConfig)
	e.Equal(total, rma.ReadCounter(c))
	issued, _ := read(0)
	e.Equal(uint64(len(ops)), issued)

	// Nobody's counters but the context's own.
	e.OK(rma.PutMem(e.C, ref, src[:5], 0))
	e.Equal(total, rma.ReadCounter(c))
	for _, target := range []int{-1, e.Size(), 1 << 40} {
		_, err := rma.Issued(c, target)
		e.Is(err, pe.ErrPeer)
		_, err = rma.Acked(c, target)
		e.Is(err, pe.ErrPeer)
	}
	e.OK(c.Free(e.Ctx))
}

func waitCounter(e *Env) {
	ref := e.Mem(e.Size() * 256 << 10).Add(uint64(e.Rank() * 256 << 10))
	src := make([]byte, 256<<10)
	const n = 40
	var wg sync.WaitGroup
	start := rma.ReadCounter(e.C)
	var werr error
	wg.Go(func() { werr = rma.WaitCounter(e.Ctx, e.C, start+n) })
	for i := range n {
		size := 100
		if i%8 == 0 {
			size = len(src)
		}
		_, err := rma.PutMemNBI(e.C, ref, src[:size], e.Next(i))
		e.OK(err)
	}
	wg.Wait()
	e.OK(werr)
	e.True(rma.ReadCounter(e.C) >= start+n, "waited for less")
	ctx, cancel := e.Brief()
	defer cancel()
	err := rma.WaitCounter(ctx, e.C, start+1000)
	e.Is(err, pe.ErrTimeout)
	var to *pe.TimeoutError
	e.True(errors.As(err, &to), "no TimeoutError")
	e.Equal(start+1000, to.Want)
	e.Equal(start+n, to.Have)
	e.OK(rma.Quiet(e.Ctx, e.C))
	e.Barrier()
}

// Two contexts have lanes and built-in words of their own.
func twoContexts(e *Env) {
	a, err := e.P.Team().NewContext(e.Ctx)
	e.OK(err)
	b, err := e.P.Team().NewContext(e.Ctx)
	e.OK(err)
	ref := e.Mem(1 << 20)
	to, from := e.Next(1), e.Next(-1)
	src := make([]byte, 512<<10)
	for round := range 5 {
		fill(src, round+e.Rank(), 0)
		_, err := rma.PutMemNBI(a, ref, src, to)
		e.OK(err)
		e.OK(rma.PutMem(b, ref.Add(512<<10), src[:100], to))
		for range round + 1 {
			e.OK(rma.Notify(a, 0, to))
		}
		e.OK(rma.Notify(b, 0, to))
		e.OK(rma.WaitNotify(e.Ctx, b, 0, from, 1))
		e.check(e.Bytes(ref.Add(512<<10), 100), round+from, 0, "context b")
		e.OK(rma.WaitNotify(e.Ctx, a, 0, from, uint64(round+1)))
		e.check(e.Bytes(ref, 512<<10), round+from, 0, "context a")
		ctx, cancel := e.Brief()
		e.Is(rma.WaitNotify(ctx, b, 0, from, 1), pe.ErrTimeout)
		cancel()
		e.OK(rma.Quiet(e.Ctx, a))
		e.Barrier()
	}
	e.OK(a.Free(e.Ctx))
	// The other goes on.
	e.OK(rma.Notify(b, 0, to))
	e.OK(rma.WaitNotify(e.Ctx, b, 0, from, 1))
	e.Is(rma.Notify(a, 0, to), pe.ErrClosed)
	e.OK(b.Free(e.Ctx))
}

// nap is long enough for a waiter elsewhere to go to sleep; nothing depends on
// whether it does.
func (e *Env) nap() { time.Sleep(time.Millisecond) }
