package pe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/shm"
)

// memory is what backs the segments that this process reaches.
type memory struct {
	shared bool // other processes map and ring them
	own    []*shm.Segment
	rng    *shm.Range
	dev    *devices  // nil: no PE has device memory
	goMem  [][]byte  // race builds of one-process worlds: memory that the detector watches
	hub    io.Closer // of a world in this process

	buffers buffers
}

// localSegments makes the segments of a world whose PEs all live in this process.
func localSegments(n int, layout heap.Layout, sparse, pinned bool) (*memory, []unsafe.Pointer, error) {
	m := &memory{}
	bases := make([]unsafe.Pointer, n)
	if goMemory && !pinned {
		for i := range bases {
			buf := make([]byte, layout.Total()+maxAlign)
			m.goMem = append(m.goMem, buf)
			bases[i] = unsafe.Pointer(&buf[skew(uintptr(unsafe.Pointer(unsafe.SliceData(buf))), layout)])
		}
		return m, bases, nil
	}
	if err := m.reserve(n, layout); err != nil {
		return nil, nil, err
	}
	for i := range bases {
		seg, err := shm.Create(fmt.Sprintf("goshmem-%d", i), layout.Total(), sparse)
		if err == nil {
			m.own = append(m.own, seg)
			bases[i], err = m.place(seg.FD(), i, layout)
		}
		if err != nil {
			return nil, nil, errors.Join(err, m.release())
		}
	}
	return m, bases, nil
}

// maxAlign is the largest alignment that an allocation gets in memory: heaps
// begin at multiples of it.
const maxAlign = 2 << 20

// skew is how far behind an address a segment begins so that its heap is aligned.
func skew(addr uintptr, l heap.Layout) int64 {
	return int64(-(addr + uintptr(l.HeapOffset())) % maxAlign)
}

// stride is the room that one segment takes in the reserved range.
func stride(l heap.Layout) int64 { return (l.Total()+maxAlign-1)/maxAlign*maxAlign + maxAlign }

func (m *memory) reserve(n int, layout heap.Layout) error {
	total := layout.Total()
	if total > (1<<46)/int64(n) {
		return fmt.Errorf("pe: %d segments of %d B are more than an address space: %w", n, total, errs.ErrNoMemory)
	}
	r, err := shm.Reserve(int64(n) * stride(layout))
	if err != nil {
		return err
	}
	m.rng = r
	return nil
}

// place maps a PE's segment where it belongs in the reserved range.
func (m *memory) place(fd, pe int, layout heap.Layout) (unsafe.Pointer, error) {
	at := int64(pe) * stride(layout)
	at += skew(uintptr(m.rng.Base())+uintptr(at), layout)
	return m.rng.Map(fd, 0, at, layout.Total())
}

// release unmaps and closes everything.
func (m *memory) release() error {
	all := []error{m.dev.close()} // before the memory that devices reach goes
	m.dev = nil
	all = append(all, m.buffers.release())
	if m.rng != nil {
		all = append(all, m.rng.Unmap())
	}
	for _, s := range m.own {
		all = append(all, s.Close())
	}
	m.goMem = nil
	if m.hub != nil {
		all = append(all, m.hub.Close())
	}
	return errors.Join(all...)
}

// stamp writes the header of an own segment; check verifies a peer's.
func stamp(base unsafe.Pointer) {
	*(*uint64)(unsafe.Add(base, heap.HeaderMagic)) = heap.SegmentMagic
	*(*uint32)(unsafe.Add(base, heap.HeaderVersion)) = heap.SegmentVersion
	*(*uint32)(unsafe.Add(base, heap.HeaderPID)) = uint32(os.Getpid())
}

func check(base unsafe.Pointer, pe int) error {
	magic := *(*uint64)(unsafe.Add(base, heap.HeaderMagic))
	version := *(*uint32)(unsafe.Add(base, heap.HeaderVersion))
	if magic != heap.SegmentMagic {
		return &errs.MismatchError{PE: pe, Field: "segment magic", Want: fmt.Sprintf("%#x", heap.SegmentMagic), Have: fmt.Sprintf("%#x", magic)}
	}
	if version != heap.SegmentVersion {
		return &errs.MismatchError{PE: pe, Field: "segment version", Want: fmt.Sprint(heap.SegmentVersion), Have: fmt.Sprint(version)}
	}
	return nil
}

// enter puts a mapped segment's regions into the table.
func enter(t *heap.Table, pe int, base unsafe.Pointer, l heap.Layout) {
	at := func(off int64) unsafe.Pointer { return unsafe.Add(base, off) }
	t.Set(pe, heap.RegionRuntime, heap.Memory{Base: base, Addr: uint64(uintptr(base)), Size: uint64(l.RuntimeSize())})
	t.Set(pe, heap.RegionHeap, heap.Memory{Base: at(l.HeapOffset()), Addr: uint64(uintptr(at(l.HeapOffset()))), Size: uint64(l.HeapSize())})
}

func bytesAt(t *heap.Table, pe int, region uint16, off, n uint64) []byte {
	return unsafe.Slice((*byte)(t.Region(pe, region).At(off)), n)
}

// elsewhere enters the sizes of a segment that is not mapped here.
func elsewhere(t *heap.Table, pe int, l heap.Layout) {
	t.Set(pe, heap.RegionRuntime, heap.Memory{Size: uint64(l.RuntimeSize())})
	t.Set(pe, heap.RegionHeap, heap.Memory{Size: uint64(l.HeapSize())})
}
