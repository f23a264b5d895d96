package suite

import (
	"bytes"
	"slices"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/rma"
)

func strided(e *Env) {
	stridedOf[uint8](e)
	stridedOf[int16](e)
	stridedOf[float32](e)
	stridedOf[uint64](e)
	stridedOf[complex128](e)
	stridedLarge(e)
}

func stridedOf[T heap.Elem](e *Env) {
	const room = 100
	a := Calloc[T](e, room)
	to, from := e.Next(1), e.Next(-1)
	for _, c := range []struct{ ds, ss, n int }{
		{1, 1, 50}, {1, 3, 20}, {4, 1, 20}, {2, 5, 13}, {99, 1, 2}, {100, 100, 1}, {7, 7, 0}, {1 << 40, 1 << 40, 0}, {1 << 40, 1, 1},
	} {
		for nbi := range 2 {
			// What a PE puts depends on its rank, so that the wrong source shows.
			src := func(rank int) []T { return numbers[T](room, rank*11+c.n) }
			clear(a.Local())
			e.Barrier()
			if nbi == 0 {
				e.OK(rma.IPut(e.C, a, src(e.Rank()), c.ds, c.ss, c.n, to))
			} else {
				t, err := rma.IPutNBI(e.C, a, src(e.Rank()), c.ds, c.ss, c.n, to)
				e.OK(err)
				e.OK(rma.Wait(e.Ctx, e.C, t))
			}
			e.Barrier()
			want := make([]T, room)
			scatter(want, src(from), c.ds, c.ss, c.n)
			e.Equal(want, slices.Clone(a.Local()))
			e.Barrier()

			copy(a.Local(), src(e.Rank()))
			e.Barrier()
			got := make([]T, room)
			if nbi == 0 {
				e.OK(rma.IGet(e.C, got, a, c.ds, c.ss, c.n, to))
			} else {
				_, err := rma.IGetNBI(e.C, got, a, c.ds, c.ss, c.n, to)
				e.OK(err)
				e.OK(rma.Quiet(e.Ctx, e.C))
			}
			clear(want)
			scatter(want, src(to), c.ds, c.ss, c.n)
			e.Equal(want, got)
			e.Barrier()
		}
	}
	e.OK(e.P.Free(e.Ctx, a.Ref()))
}

func scatter[T any](dst, src []T, ds, ss, n int) {
	for i := range n {
		dst[i*ds] = src[i*ss]
	}
}

// Large enough to be queued on every path, with a signal behind it.
func stridedLarge(e *Env) {
	n := 100_000
	if emulated {
		n /= 32 // a request an element there, and queued whatever their number
	}
	a := Calloc[uint32](e, 3*n)
	sig := e.Signals(1).At(0)
	to, from := e.Next(1), e.Next(-1)
	src := make([]uint32, 2*n)
	for i := range src {
		src[i] = uint32(e.Rank()<<24 + i)
	}
	t, err := rma.IPutNBI(e.C, a, src, 3, 2, n, to)
	e.OK(err)
	e.OK(rma.Signal(e.C, sig, rma.SignalSet, 1, to))
	e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.EQ, 1))
	for i, v := range a.Local() {
		want := uint32(0)
		if i%3 == 0 {
			want = uint32(from<<24 + i/3*2)
		}
		if v != want {
			e.Fatalf("element %d is %#x, want %#x", i, v, want)
		}
	}
	e.OK(rma.Wait(e.Ctx, e.C, t))
	e.Barrier()
	e.OK(e.P.Free(e.Ctx, a.Ref()))
}

func batch(e *Env) {
	const room = 512 << 10
	ref := e.Mem(room)
	sig := e.Signals(1).At(0)
	to, from := e.Next(1), e.Next(-1)

	// An empty one completes at once.
	t, err := rma.PutBatch(e.C, nil, to)
	e.OK(err)
	e.True(t.Done(), "an empty batch is not complete")
	t, err = rma.PutBatch(e.C, []rma.BatchItem{}, to)
	e.OK(err)
	e.OK(rma.Wait(e.Ctx, e.C, t))

	plan := [][]int{{0}, {0, 0, 0}, {8}, {1, 2, 3, 0, 5, 64, 100}, {4096, 1, 4095}, {300 << 10, 7, 100 << 10}, make([]int, 300)}
	for i := range plan[len(plan)-1] {
		plan[len(plan)-1][i] = i
	}
	for round, sizes := range plan {
		items := func(rank int) (all []rma.BatchItem) {
			at := uint64(3)
			for i, size := range sizes {
				src := make([]byte, size)
				fill(src, rank+i, round)
				all = append(all, rma.BatchItem{Dst: ref.Add(at), Src: src})
				at += uint64(size) + 1
			}
			return all
		}
		// The last item overwrites the first: they take effect in order.
		last := func(all []rma.BatchItem) []rma.BatchItem {
			return append(all, rma.BatchItem{Dst: all[0].Dst, Src: []byte{byte(round), 0xff}})
		}
		if round%2 == 0 {
			_, err = rma.PutBatch(e.C, last(items(e.Rank())), to)
			e.OK(err)
		} else {
			all := last(items(e.Rank()))
			e.Retry(func() error {
				_, err := rma.TryPutBatch(e.C, all, to)
				return err
			})
		}
		e.OK(rma.Signal(e.C, sig, rma.SignalSet, uint64(round+1), to))
		e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.EQ, uint64(round+1)))
		want := make([]byte, room)
		for _, it := range last(items(from)) {
			copy(want[it.Dst.Offset()-ref.Offset():], it.Src)
		}
		used := 0
		for _, it := range last(items(from)) {
			used = max(used, int(it.Dst.Offset()-ref.Offset())+len(it.Src))
		}
		own := e.Bytes(ref, room)
		if got := own[:used]; !bytes.Equal(want[:used], got) {
			i := 0
			for want[i] == got[i] {
				i++
			}
			e.Fatalf("batch %d: byte %d of %d is %#x, want %#x", round, i, used, got[i], want[i])
		}
		clear(own)
		e.OK(rma.Quiet(e.Ctx, e.C))
		e.Barrier()
	}
	_ = channel.BatchItem(rma.BatchItem{}) // one type under two names
}
