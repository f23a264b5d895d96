package suite

import (
	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

func signalCases() []Case {
	return []Case{
		{Name: "put signal", Heap: 4 << 20, Run: putSignal},
		{Name: "put signal typed", Run: putSignalTyped},
		{Name: "signals of many", Run: signalsOfMany},
		{Name: "notify", Run: notify},
		{Name: "notify indices", Run: notifyIndices},
		{Name: "notify two waits", PEs: 2, Run: notifyTwoWaits},
		{Name: "notify from some", PEs: 3, Run: notifyFromSome},
	}
}

// Every way to put with a signal; whoever sees the signal sees the payload.
func putSignal(e *Env) {
	const room = 3<<20 + 128
	ref := e.Mem(room)
	sigs := e.Signals(2)
	to, from := e.Next(1), e.Next(-1)
	src := make([]byte, room)
	ways := []func(dst heap.Ref, src []byte, sig heap.Signal, op rma.SignalOp, v uint64){
		func(dst heap.Ref, src []byte, sig heap.Signal, op rma.SignalOp, v uint64) {
			e.OK(rma.PutMemSignal(e.C, dst, src, sig, op, v, to))
			clear(src)
		},
		func(dst heap.Ref, src []byte, sig heap.Signal, op rma.SignalOp, v uint64) {
			t, err := rma.PutMemSignalNBI(e.C, dst, src, sig, op, v, to)
			e.OK(err)
			e.OK(rma.Wait(e.Ctx, e.C, t))
			clear(src)
		},
		func(dst heap.Ref, src []byte, sig heap.Signal, op rma.SignalOp, v uint64) {
			e.Retry(func() error {
				_, err := rma.TryPutMemSignalNBI(e.C, dst, src, sig, op, v, to)
				return err
			})
			e.OK(rma.Quiet(e.Ctx, e.C))
			clear(src)
		},
	}
	var sum uint64
	round := 0
	for _, size := range append(append([]int{}, smallSizes...), 256<<10, 3<<20+5) {
		for _, way := range ways {
			for _, op := range []rma.SignalOp{rma.SignalSet, rma.SignalAdd} {
				round++
				s := src[round%3 : round%3+size]
				at := round % 5 * 7
				fill(s, round+e.Rank(), 0)
				sig, v := sigs.At(0), uint64(round)<<40
				want := v
				if op == rma.SignalAdd {
					sig, v = sigs.At(1), uint64(size)+1
					sum += v
					want = sum
				}
				way(ref.Add(uint64(at)), s, sig, op, v)
				e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.EQ, want))
				e.check(e.Bytes(ref, room)[at:at+size], round+from, 0, "put signal")
				e.Barrier()
			}
		}
	}
	// A zero-length put with a signal is a signal.
	e.OK(rma.PutMemSignal(e.C, ref, nil, sigs.At(0), rma.SignalSet, 1, to))
	e.OK(rma.WaitSignal(e.Ctx, e.C, sigs.At(0), rma.EQ, 1))
	e.OK(rma.PutMemSignal(e.C, ref.Add(room), nil, sigs.At(1), rma.SignalAdd, 5, to))
	e.OK(rma.WaitSignal(e.Ctx, e.C, sigs.At(1), rma.EQ, sum+5))
}

func putSignalTyped(e *Env) {
	a := Calloc[float64](e, 50)
	sig := e.Signals(1).At(0)
	to, from := e.Next(1), e.Next(-1)
	e.OK(rma.PutSignal(e.C, a.Slice(10, 20), numbers[float64](10, e.Rank()), sig, rma.SignalSet, 7, to))
	e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.EQ, 7))
	e.Equal(numbers[float64](10, from), append([]float64(nil), a.Local()[10:20]...))
	e.Barrier()
	_, err := rma.PutSignalNBI(e.C, a, numbers[float64](3, 40+e.Rank()), sig, rma.SignalSet, 8, to)
	e.OK(err)
	e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.GT, 7))
	e.Equal(numbers[float64](3, 40+from), append([]float64(nil), a.Local()[:3]...))
	e.OK(rma.Quiet(e.Ctx, e.C))
	e.Barrier()
}

// Adds of all PEs, from several goroutines each, meet in one signal.
func signalsOfMany(e *Env) {
	const each, rounds, workers = 50, 3, 4
	sigs := e.Signals(1)
	target := 0
	for round := range uint64(rounds) {
		e.Go(workers, func(w int) {
			for range each {
				e.OK(rma.Signal(e.C, sigs.At(0), rma.SignalAdd, uint64(w+1), target))
			}
		})
		if e.Rank() == target {
			want := (round + 1) * uint64(e.Size()) * each * (1 + 2 + 3 + 4)
			e.OK(rma.WaitSignal(e.Ctx, e.C, sigs.At(0), rma.GE, want))
			v, err := rma.ReadSignal(e.C, sigs.At(0))
			e.OK(err)
			e.Equal(want, v)
		}
		e.Barrier()
	}
}

// Notifications are consumed: each wait waits for further ones, and the words
// only grow.
func notify(e *Env) {
	ref := e.Mem(e.Size() * 64)
	own := e.Bytes(ref, e.Size()*64)
	for round := range 20 {
		n := uint64(round%3 + 1)
		for i := range e.Size() {
			for k := range n {
				if k == n-1 {
					e.OK(rma.PutMemNotify(e.C, ref.Add(uint64(e.Rank()*64)), []byte{byte(round), byte(e.Rank())}, 0, e.Next(i)))
				} else {
					e.OK(rma.Notify(e.C, 0, e.Next(i)))
				}
			}
		}
		if e.Size() > 1 {
			e.OK(rma.WaitSignals(e.Ctx, e.C, n))
		}
		e.OK(rma.WaitSignals(e.Ctx, e.C, n, rma.From(e.Rank()))) // own ones too
		for from := range e.Size() {
			e.Equal([]byte{byte(round), byte(from)}, append([]byte(nil), own[from*64:from*64+2]...))
		}
		e.Barrier()
	}
	// Nothing is left over.
	ctx, cancel := e.Brief()
	defer cancel()
	e.Is(rma.WaitNotify(ctx, e.C, 0, e.Next(1), 1), pe.ErrTimeout)
	e.OK(rma.WaitSignals(e.Ctx, e.C, 0))
	// A wait that failed consumed nothing.
	e.Barrier()
	e.OK(rma.Notify(e.C, 0, e.Next(-1)))
	e.OK(rma.WaitNotify(e.Ctx, e.C, 0, e.Next(1), 1))
}

// The eight words of a source do not know of each other.
func notifyIndices(e *Env) {
	to, from := e.Next(1), e.Next(-1)
	for i := range 7 { // the last is for barriers, on the collectives' context
		for range i + 1 {
			e.OK(rma.Notify(e.C, i, to))
		}
	}
	for i := 6; i >= 0; i-- {
		for range i {
			e.OK(rma.WaitSignals(e.Ctx, e.C, 1, rma.From(from), rma.Index(i)))
		}
		e.OK(rma.WaitNotify(e.Ctx, e.C, i, from, 1))
		ctx, cancel := e.Brief()
		e.Is(rma.WaitSignals(ctx, e.C, 1, rma.From(from), rma.Index(i)), pe.ErrTimeout)
		cancel()
	}
	e.OK(rma.Notify(e.C, 7, to))
	e.OK(rma.WaitNotify(e.Ctx, e.C, 7, from, 1))
}

// Two waits at once take different notifications.
func notifyTwoWaits(e *Env) {
	const waits, each = 4, 25
	if e.Rank() == 1 {
		for range waits * each {
			e.OK(rma.Notify(e.C, 3, 0))
		}
		e.OK(rma.WaitNotify(e.Ctx, e.C, 0, 0, 1)) // and not one more
		e.OK(rma.Notify(e.C, 3, 0))
		return
	}
	if e.Rank() != 0 {
		return
	}
	e.Go(waits, func(int) {
		for range each {
			e.OK(rma.WaitNotify(e.Ctx, e.C, 3, 1, 1))
		}
	})
	ctx, cancel := e.Brief()
	defer cancel()
	e.Is(rma.WaitNotify(ctx, e.C, 3, 1, 1), pe.ErrTimeout)
	e.OK(rma.Notify(e.C, 0, 1))
	e.OK(rma.WaitNotify(e.Ctx, e.C, 3, 1, 1))
}

// From narrows the wait to some sources; the others' stay for later.
func notifyFromSome(e *Env) {
	last := e.Size() - 1
	if e.Rank() != 0 {
		if e.Rank() != last {
			e.OK(rma.Notify(e.C, 1, 0))
		}
		e.OK(rma.WaitNotify(e.Ctx, e.C, 1, 0, 1))
		e.OK(rma.Notify(e.C, 1, 0))
		return
	}
	var some []int
	for i := 1; i < last; i++ {
		some = append(some, i)
	}
	e.OK(rma.WaitSignals(e.Ctx, e.C, 1, rma.Index(1), rma.From(some...)))
	for i := 1; i <= last; i++ {
		e.OK(rma.Notify(e.C, 1, i))
	}
	// One more of each, and the first of the last PE.
	e.OK(rma.WaitSignals(e.Ctx, e.C, 1, rma.Index(1)))
}
