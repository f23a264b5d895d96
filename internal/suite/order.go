package suite

import (
	"sync/atomic"

	"goshmem/amo"
	"goshmem/rma"
)

func orderCases() []Case {
	return []Case{
		{Name: "signal behind queued puts", PEs: 1, Heap: 8 << 20, Run: signalBehindQueued},
		{Name: "amo and value behind queued put", Heap: 4 << 20, Run: wordBehindQueued},
		{Name: "put behind queued put", Heap: 4 << 20, Run: putBehindQueued},
		{Name: "fence", Heap: 1 << 20, Run: fence},
		{Name: "quiet covers everything", Heap: 8 << 20, Run: quietCovers},
		{Name: "quiet of other goroutines", Heap: 4 << 20, Run: quietOthers},
		{Name: "many goroutines", Heap: 2 << 20, Run: manyGoroutines},
		{Name: "tickets", Heap: 2 << 20, Run: tickets},
		{Name: "held queue", PEs: 1, Heap: 2 << 20, Run: heldQueue},
	}
}

// Large non-blocking puts are queued, a small put with a signal would be done
// at once: it must not overtake.
func signalBehindQueued(e *Env) {
	const big = 1 << 20
	ref := e.Mem(4*big + 64)
	own := e.Bytes(ref, 4*big+64)
	sig := e.Signals(1).At(0)
	to, from := e.Next(1), e.Next(-1)
	sizes := []int{256 << 10, 300<<10 + 1, big}
	src := make([][]byte, len(sizes))
	for i := range src {
		src[i] = make([]byte, sizes[i])
	}
	tail := make([]byte, 64)
	for round := range Times(30) {
		for i, s := range src {
			fill(s, round+e.Rank()+i, 0)
			_, err := rma.PutMemNBI(e.C, ref.Add(uint64(i*big)), s, to)
			e.OK(err)
		}
		fill(tail, round+e.Rank(), 0)
		v := uint64(round + 1)
		switch round % 4 {
		case 0:
			e.OK(rma.PutMemSignal(e.C, ref.Add(3*big), tail, sig, rma.SignalSet, v, to))
		case 1:
			_, err := rma.PutMemSignalNBI(e.C, ref.Add(3*big), tail, sig, rma.SignalSet, v, to)
			e.OK(err)
		case 2:
			e.OK(rma.PutMem(e.C, ref.Add(3*big), tail, to))
			e.OK(rma.Signal(e.C, sig, rma.SignalSet, v, to))
		case 3:
			e.OK(rma.PutMemNotify(e.C, ref.Add(3*big), tail, 2, to))
		}
		if round%4 == 3 {
			e.OK(rma.WaitNotify(e.Ctx, e.C, 2, from, 1))
		} else {
			e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.GE, v))
		}
		for i, size := range sizes {
			e.check(own[i*big:][:size], round+from+i, 0, "queued put before a signal")
		}
		e.check(own[3*big:][:64], round+from, 0, "put with a signal")
		e.OK(rma.Quiet(e.Ctx, e.C))
		e.Barrier()
	}
}

// AMOs and values are in the lane's order too.
func wordBehindQueued(e *Env) {
	const size = 1 << 20
	ref := e.Mem(size)
	words := Calloc[uint64](e, 2)
	own := e.Bytes(ref, size)
	src := make([]byte, size)
	to, from := e.Next(1), e.Next(-1)
	for round := range Times(20) {
		fill(src, round+e.Rank(), 0)
		_, err := rma.PutMemNBI(e.C, ref, src, to)
		e.OK(err)
		switch round % 3 {
		case 0:
			e.OK(amo.Set(e.C, words.At(1), uint64(round+1), to))
		case 1:
			old, err := amo.FetchInc(e.C, words.At(1), to)
			e.OK(err)
			e.Equal(uint64(round), old)
		case 2:
			e.OK(rma.PutValue(e.C, words.At(1), uint64(round+1), to))
		}
		e.OK(rma.WaitUntil(e.Ctx, e.C, words.At(1), rma.EQ, uint64(round+1)))
		e.check(own, round+from, 0, "queued put before a word")
		e.OK(rma.Quiet(e.Ctx, e.C))
		e.Barrier()
	}
}

// The later of two puts to one place wins, whichever is queued.
func putBehindQueued(e *Env) {
	const size = 512 << 10
	ref := e.Mem(size)
	big, small := make([]byte, size), make([]byte, 8)
	to := e.Next(1)
	for round := range Times(20) {
		fill(big, round, 0)
		fill(small, round+100, 0)
		at := uint64(round * 8)
		if round%2 == 0 {
			_, err := rma.PutMemNBI(e.C, ref, big, to)
			e.OK(err)
			e.OK(rma.PutMem(e.C, ref.Add(at), small, to))
		} else {
			e.OK(rma.PutMem(e.C, ref.Add(at), small, to))
			_, err := rma.PutMemNBI(e.C, ref, big, to)
			e.OK(err)
		}
		e.OK(rma.Quiet(e.Ctx, e.C))
		e.Barrier()
		own := e.Bytes(ref, size)
		if round%2 == 0 {
			e.check(own[at:at+8], round+100, 0, "later put")
			e.check(own[:at], round, 0, "earlier put")
		} else {
			e.check(own, round, 0, "later put")
		}
		e.Barrier()
	}
}

// A put, a fence, and a word behind them.
func fence(e *Env) {
	ref := e.Mem(1000)
	flag := Calloc[int32](e, 2)
	own := e.Bytes(ref, 1000)
	src := make([]byte, 1000)
	to, from := e.Next(1), e.Next(-1)
	for round := range Times(200) {
		fill(src, round+e.Rank(), 0)
		_, err := rma.PutMemNBI(e.C, ref, src, to)
		e.OK(err)
		e.OK(rma.Fence(e.C))
		e.OK(rma.PutValue(e.C, flag.At(1), int32(round+1), to))
		e.OK(rma.WaitUntil(e.Ctx, e.C, flag.At(1), rma.GE, int32(round+1)))
		e.check(own, round+from, 0, "put before a fence")
		e.OK(rma.Quiet(e.Ctx, e.C))
		e.Barrier()
	}
}

// Quiet covers puts, gets, strided forms, batches and AMOs, to every PE.
func quietCovers(e *Env) {
	const size = 256 << 10
	n := e.Size()
	ref := e.Mem(size * 2)
	// What others get from here does not change: the first half. Puts go to the
	// second, cut by source.
	fill(e.Bytes(ref, size), e.Rank(), 0)
	counts := Calloc[uint64](e, n)
	e.Barrier()
	src, got := make([]byte, size/n), make([][]byte, n)
	old := make([]uint64, n)
	for round := range Times(16) {
		fill(src, round+e.Rank(), 0)
		at := ref.Add(uint64(size + e.Rank()*(size/n)))
		for i := range n {
			got[i] = make([]byte, size)
			_, err := rma.PutMemNBI(e.C, at, src, i)
			e.OK(err)
			_, err = rma.GetMemNBI(e.C, got[i], ref, i)
			e.OK(err)
			_, err = amo.FetchIncNBI(e.C, &old[i], counts.At(e.Rank()), i)
			e.OK(err)
			_, err = rma.PutBatch(e.C, []rma.BatchItem{{Dst: at, Src: []byte{byte(round), 77}}}, i)
			e.OK(err)
		}
		e.OK(rma.Quiet(e.Ctx, e.C))
		for i := range n {
			e.check(got[i], i, 0, "get before quiet")
			e.Equal(uint64(round), old[i])
		}
		back := make([]byte, size/n)
		for i := range n {
			e.OK(rma.GetMem(e.C, back, at, i))
			e.Equal([]byte{byte(round), 77}, back[:2])
			e.check(back[2:], round+e.Rank(), 2, "put before quiet")
		}
	}
	e.Barrier()
}

// Quiet covers what other goroutines issued before it was called.
func quietOthers(e *Env) {
	const workers, size = 4, 256 << 10
	ref := e.Mem(workers * size)
	own := e.Bytes(ref, workers*size)
	src := make([][]byte, workers)
	for i := range src {
		src[i] = make([]byte, size)
	}
	for round := range Times(16) {
		e.Go(workers, func(w int) {
			fill(src[w], round+w+e.Rank(), 0)
			_, err := rma.PutMemNBI(e.C, ref.Add(uint64(w*size)), src[w], e.Next(1))
			e.OK(err)
		})
		e.OK(rma.Quiet(e.Ctx, e.C))
		e.Barrier()
		for w := range workers {
			e.check(own[w*size:][:size], round+w+e.Next(-1), 0, "put of another goroutine")
		}
		e.Barrier()
	}
}

// Many goroutines share a context: nothing is lost, and each one's operations
// stay in order.
func manyGoroutines(e *Env) {
	const workers, room = 8, 4 << 10
	rounds := Times(60)
	ref := e.Mem(workers * room)
	own := e.Bytes(ref, workers*room)
	there, back := e.Signals(workers), e.Signals(workers)
	to, from := e.Next(1), e.Next(-1)
	var total atomic.Uint64
	e.Go(workers, func(w int) {
		src := make([]byte, room)
		for round := range rounds {
			size := (round*97 + w*13) % room
			fill(src[:size], round+w+e.Rank(), 0)
			at := ref.Add(uint64(w * room))
			if round%2 == 0 {
				e.OK(rma.PutMem(e.C, at, src[:size], to))
				e.OK(rma.Signal(e.C, there.At(w), rma.SignalAdd, 1, to))
			} else {
				_, err := rma.PutMemSignalNBI(e.C, at, src[:size], there.At(w), rma.SignalAdd, 1, to)
				e.OK(err)
			}
			e.OK(rma.WaitSignal(e.Ctx, e.C, there.At(w), rma.EQ, uint64(round+1)))
			e.check(own[w*room:][:size], round+w+from, 0, "put of one of many goroutines")
			total.Add(1)
			// Tell that the place may be written again, and wait to be told.
			e.OK(rma.Signal(e.C, back.At(w), rma.SignalAdd, 1, from))
			e.OK(rma.WaitSignal(e.Ctx, e.C, back.At(w), rma.GE, uint64(round+1)))
			e.OK(rma.Quiet(e.Ctx, e.C))
		}
	})
	e.Equal(uint64(workers*rounds), total.Load())
	e.Barrier()
}
