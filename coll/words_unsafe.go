package coll

import (
	"sync/atomic"
	"unsafe"

	"goshmem/heap"
	"goshmem/pe"
)

// wordAt is a word of this PE's own symmetric memory, for polling: the caller
// keeps the context in use while it looks.
func wordAt(c *pe.Context, r heap.Ref) (*atomic.Uint64, error) {
	p, err := c.LocalWord(r, 8)
	if err != nil {
		return nil, err
	}
	return (*atomic.Uint64)(p), nil
}

// window is the address range of this PE's symmetric heap.
type window struct {
	base, size uintptr
	ref        heap.Ref // its first byte
}

func ownHeap(p *pe.PE) (window, error) {
	size, _ := p.Heap()
	ref := heap.MakeRef(p.World().ID(), heap.RegionHeap, 0)
	b, err := p.LocalBytes(ref, int(size))
	if err != nil {
		return window{}, err
	}
	return window{base: uintptr(unsafe.Pointer(unsafe.SliceData(b))), size: uintptr(size), ref: ref}, nil
}

// offset is where a buffer lies in the window; false: elsewhere. The base does
// not move: the window is mapped memory, or in race builds a pinned allocation.
func (w window) offset(b []byte) (uint64, bool) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - w.base
	if at >= w.size || uintptr(len(b)) > w.size-at {
		return 0, false
	}
	return uint64(at), true
}

func sizeOf[T any]() int {
	var t T
	return int(unsafe.Sizeof(t))
}

// bytesOf views a slice of numbers as its bytes.
func bytesOf[T heap.Elem](s []T) []byte {
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(t)))
}

// overlap says how two buffers lie to each other.
func overlap(a, b []byte) (same, crossing bool) {
	if len(a) == 0 || len(b) == 0 {
		return false, false
	}
	x, y := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return x == y, x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

// header begins every message of a pair; see link.
type header struct {
	flag  uint64 // the message's number, and how many the sender has taken
	call  uint32 // number of the call, by the sender's count
	bytes uint32 // payload of this message
	what  uint64 // call, operation, type, root; see signature
	count uint64 // what the members must have alike, as a number
	arg   uint64 // by flag: where the receiver's destination is, or nothing
}

// taken is how many messages the sender has taken, as a 32-bit count. Of a message
// that is here the flag stands still.
func (h *header) taken() uint32 { return uint32(h.flag) }

const (
	flagBytes   = 8
	headerBytes = int(unsafe.Sizeof(header{}))
)

// headerOf views the beginning of a slot.
func headerOf(b []byte) *header {
	_ = b[headerBytes-1]
	return (*header)(unsafe.Pointer(unsafe.SliceData(b)))
}

// floatsOf views bytes of sums as float32.
func floatsOf(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// restrideOf copies n elements of the size of T between strides.
func restrideOf[T any](dst, src []byte, dstStride, srcStride, n int) {
	view := func(b []byte) []T {
		return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/sizeOf[T]())
	}
	d, s := view(dst), view(src)
	for i := range n {
		d[i*dstStride] = s[i*srcStride]
	}
}
