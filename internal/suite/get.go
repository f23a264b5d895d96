package suite

import (
	"fmt"

	"goshmem/heap"
	"goshmem/rma"
)

func getCases() []Case {
	return []Case{
		{Name: "get sizes", Heap: 8 << 20, Run: getSizes},
		{Name: "get sees earlier", Heap: 4 << 20, Run: getSeesEarlier},
	}
}

func getSizes(e *Env) {
	most := largeSizes[len(largeSizes)-1] + 64
	ref := e.Mem(most)
	fill(e.Bytes(ref, most), e.Rank(), 0)
	e.Barrier()
	buf := make([]byte, most+2*guardBytes)
	for i, get := range []func(dst []byte, src heap.Ref, target int){
		func(dst []byte, src heap.Ref, target int) { e.OK(rma.GetMem(e.C, dst, src, target)) },
		func(dst []byte, src heap.Ref, target int) {
			_, err := rma.GetMemNBI(e.C, dst, src, target)
			e.OK(err)
			e.OK(rma.Quiet(e.Ctx, e.C))
		},
		func(dst []byte, src heap.Ref, target int) {
			t, err := rma.GetMemNBI(e.C, dst, src, target)
			e.OK(err)
			e.OK(rma.Wait(e.Ctx, e.C, t))
		},
		func(dst []byte, src heap.Ref, target int) {
			e.Retry(func() error {
				_, err := rma.TryGetMemNBI(e.C, dst, src, target)
				return err
			})
			e.OK(rma.Quiet(e.Ctx, e.C))
		},
	} {
		one := func(size, off, skew, target int) {
			at := guardBytes + skew
			g := newGuard(buf, at, size)
			get(buf[at:at+size], ref.Add(uint64(off)), target)
			e.check(buf[at:at+size], target, off, "get")
			g.check(e, fmt.Sprintf("get %d of %d B at %d", i, size, off))
		}
		for _, size := range smallSizes {
			for _, off := range []int{0, 1, 3, 8, 13} {
				for target := range e.Size() {
					one(size, off, off*5%8, target)
				}
			}
		}
		for _, size := range largeSizes {
			one(size, 0, 0, e.Next(1))
			one(size, 33, 1, e.Next(2))
		}
	}
	e.Barrier()
}

// A get sees every earlier put and signal of its lane, queued ones too.
func getSeesEarlier(e *Env) {
	const size = 512 << 10
	ref := e.Mem(size)
	src := make([]byte, size)
	got := make([]byte, 64)
	target := e.Next(1)
	for round := range Times(20) {
		e.OK(rma.Quiet(e.Ctx, e.C)) // src is in use until then
		fill(src, round+e.Rank(), 0)
		_, err := rma.PutMemNBI(e.C, ref, src, target)
		e.OK(err)
		at := (round * 12345) % (size - len(got))
		if round%2 == 0 {
			e.OK(rma.GetMem(e.C, got, ref.Add(uint64(at)), target))
		} else {
			t, err := rma.GetMemNBI(e.C, got, ref.Add(uint64(at)), target)
			e.OK(err)
			e.OK(rma.Wait(e.Ctx, e.C, t))
		}
		e.check(got, round+e.Rank(), at, "get behind a put")
		v, err := rma.GetValue(e.C, heap.MakePtr[uint8](ref.Add(uint64(at))), target)
		e.OK(err)
		e.Equal(pattern(round+e.Rank(), at), v)
	}
	e.OK(rma.Quiet(e.Ctx, e.C))
	e.Barrier()
}
