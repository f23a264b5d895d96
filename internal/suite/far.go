package suite

import (
	"goshmem/amo"
	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// FarOffsets goes through the operations at both sides of every 4 GiB border of
// a sparse heap of that size, and at its end.
func FarOffsets(e *Env, size int64) {
	ref, err := e.P.AllocMem(e.Ctx, size, 0)
	e.OK(err)
	to, from := e.Next(1), e.Next(-1)
	src := make([]byte, 300<<10)
	got := make([]byte, len(src))
	points := []int64{0, size - int64(len(src))}
	for at := int64(4 << 30); at < size; at += 4 << 30 {
		points = append(points, at, at-int64(len(src))/2, at-8, at-int64(len(src)))
	}
	for i, at := range points {
		at := min(at, size-int64(len(src)))
		dst := ref.Add(uint64(at))
		own := e.Bytes(dst, len(src))
		fill(src, i+e.Rank(), 0)
		if i%2 == 0 {
			e.OK(rma.PutMem(e.C, dst, src, to))
		} else {
			_, err := rma.PutMemNBI(e.C, dst, src, to)
			e.OK(err)
		}
		e.OK(rma.Notify(e.C, 0, to))
		e.OK(rma.WaitNotify(e.Ctx, e.C, 0, from, 1))
		e.check(own, i+from, 0, "far put")
		e.OK(rma.GetMem(e.C, got, dst, to))
		e.check(got, i+e.Rank(), 0, "far get")
		e.OK(rma.Quiet(e.Ctx, e.C))
		e.Barrier()

		at8 := ref.Add(uint64(at+7) &^ 7)
		word := heap.MakePtr[uint64](at8)
		clear(e.Bytes(at8, 128))
		e.Barrier()
		e.OK(amo.Add(e.C, word, 3, to))
		e.OK(rma.PutValue(e.C, word.Add(1), 4, to))
		e.OK(rma.WaitUntil(e.Ctx, e.C, word, rma.EQ, 3))
		e.OK(rma.WaitUntil(e.Ctx, e.C, word.Add(1), rma.EQ, 4))
		e.Barrier()
		sig := heap.MakeSignal(heap.MakeRef(at8.World(), heap.RegionHeap, (at8.Offset()+127)&^63))
		if sig.Ref().Offset()+heap.SignalSize <= uint64(size) {
			e.OK(rma.PutMemSignal(e.C, at8, src[:8], sig, rma.SignalSet, uint64(i+1), to))
			e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.EQ, uint64(i+1)))
		}
		e.OK(rma.Quiet(e.Ctx, e.C))
		e.Barrier()
		clear(e.Bytes(dst, len(src)))
		clear(e.Bytes(at8, 192))
		e.Barrier()
	}
	// A stride over the border, element by element of gigabytes.
	words, err := pe.ArrayAt[uint64](e.P, ref, int(size/8))
	e.OK(err)
	stride := int(1<<30/8) + 1
	n := int(size/8-1)/stride + 1
	vals := make([]uint64, n)
	for i := range vals {
		vals[i] = uint64(e.Rank()*100 + i + 1)
	}
	e.OK(rma.IPut(e.C, words, vals, stride, 1, n, to))
	e.Barrier()
	for i := range vals {
		e.Equal(uint64(from*100+i+1), words.Local()[i*stride])
	}
	back := make([]uint64, n)
	e.OK(rma.IGet(e.C, back, words, 1, stride, n, to))
	e.Equal(vals, back)
	e.Is(rma.IPut(e.C, words, vals, stride, 1, n+1, to), pe.ErrRange)
	// One byte further is too far, wherever the sum wraps.
	for _, bad := range []uint64{uint64(size), uint64(size) - 7, 1 << 63, ^uint64(0), ^uint64(0) - 7} {
		e.Is(rma.PutMem(e.C, heap.MakeRef(ref.World(), heap.RegionHeap, bad), src[:8], to), pe.ErrRange)
	}
	e.Barrier()
}
