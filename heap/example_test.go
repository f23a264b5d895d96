package heap_test

import (
	"errors"
	"fmt"
	"unsafe"

	"goshmem/heap"
	"goshmem/internal/errs"
)

// Arrays come from pe.Alloc; here one is laid over plain memory.
func ExampleArray() {
	memory := make([]float32, 100)
	a := heap.MakeArray[float32](heap.MakeRef(1, heap.RegionHeap, 0x1000), len(memory), unsafe.Pointer(&memory[0]))

	row := a.Slice(20, 30)
	row.Local()[3] = 1.5
	fmt.Println(row, row.At(3), row.Bytes(), "bytes")
	fmt.Println(memory[23])
	fmt.Println("refused:", row.At(10).Ref().OutOfRange())
	// Output:
	// heap+0x1050[10] heap+0x105c 40 bytes
	// 1.5
	// refused: true
}

func ExampleAllocator() {
	a, err := heap.NewAllocator(1 << 20)
	if err != nil {
		fmt.Println(err)
		return
	}
	first, _ := a.Alloc(100, 0)
	second, _ := a.Alloc(8, 4096)
	fmt.Println(first, second, a.InUse())

	_, err = a.Alloc(2<<20, 0)
	fmt.Println(err)
	fmt.Println(a.Free(first), errors.Is(a.Free(first), errs.ErrBadRef))
	// Output:
	// 0 4096 192
	// heap: out of symmetric memory: asked 2097152 B aligned to 0, 1048384 B free, largest block 1044416 B
	// <nil> true
}

func ExamplePool() {
	reserved := heap.MakeRef(1, heap.RegionHeap, 0x1000) // as p.AllocMem gave it
	pool, err := heap.NewPool(reserved, 4096)
	if err != nil {
		fmt.Println(err)
		return
	}
	a, _ := pool.Alloc(1000, 0)
	b, _ := pool.Alloc(1000, 512)
	fmt.Println(a, b, pool.InUse())
	fmt.Println(pool.Free(a), pool.Free(b), pool.InUse())
	// Output:
	// heap+0x1000 heap+0x1400 2048
	// <nil> <nil> 0
}

func ExamplePlanLayout() {
	l, err := heap.PlanLayout(heap.LayoutConfig{HeapSize: 64 << 20, PEs: 4, Contexts: 2, IndicesPerSource: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	word, _ := l.SourceWord(1, 3, 7)
	barrier, _ := l.BarrierWord(1)
	fmt.Println(word, barrier, l.HeapOffset(), l.Total())
	// Output: 4728 4736 8192 67117056
}
