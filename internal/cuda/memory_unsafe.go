package cuda

import (
	"fmt"
	"unsafe"

	"goshmem/internal/errs"
)

// Ptr is an address of a context: device memory, or host memory known to the
// driver.
type Ptr uint64

// Pool is a memory pool.
type Pool uintptr

// MemAlloc allocates device memory of the current context.
func (l *Lib) MemAlloc(size uint64) (Ptr, error) {
	var p Ptr
	err := l.call(fMemAlloc, uintptr(unsafe.Pointer(&p)), uintptr(size))
	return p, err
}

// MemFree frees it. It waits for running kernels.
func (l *Lib) MemFree(p Ptr) error { return l.call(fMemFree, uintptr(p)) }

// MemGetInfo is the free and the whole memory of the current device, in bytes.
func (l *Lib) MemGetInfo() (free, total uint64, err error) {
	var v [2]uint64
	err = l.call(fMemGetInfo, uintptr(unsafe.Pointer(&v[0])), uintptr(unsafe.Pointer(&v[1])))
	return v[0], v[1], err
}

// Flags of pinned host memory, alike for allocations and registrations.
const (
	hostPortable = 1
	hostMapped   = 2
)

// MemHostAlloc allocates pinned host memory that every context reaches.
func (l *Lib) MemHostAlloc(size uint64) (unsafe.Pointer, error) {
	var p unsafe.Pointer
	err := l.call(fMemHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(size), hostPortable|hostMapped)
	return p, err
}

// MemFreeHost frees it. It waits for running kernels.
func (l *Lib) MemFreeHost(p unsafe.Pointer) error { return l.call(fMemFreeHost, uintptr(p)) }

// MemHostRegister pins host memory and makes it reachable by every context. Not
// for Go memory.
func (l *Lib) MemHostRegister(p unsafe.Pointer, size uint64) error {
	return l.call(fMemHostRegister, uintptr(p), uintptr(size), hostPortable|hostMapped)
}

// MemHostUnregister undoes it. It waits for running kernels.
func (l *Lib) MemHostUnregister(p unsafe.Pointer) error {
	return l.call(fMemHostUnregister, uintptr(p))
}

// MemHostGetDevicePointer is the address by which the device names pinned memory.
func (l *Lib) MemHostGetDevicePointer(p unsafe.Pointer) (Ptr, error) {
	var d Ptr
	err := l.call(fMemHostGetDevicePointer, uintptr(unsafe.Pointer(&d)), uintptr(p), 0)
	return d, err
}

// MemoryType is what kind of memory an address known to the driver is.
type MemoryType uint32

// The types that PointerMemoryType tells apart.
const (
	TypeHost   MemoryType = 1
	TypeDevice MemoryType = 2
)

// PointerMemoryType is the type of the memory at p; an error where the driver
// does not know the address.
func (l *Lib) PointerMemoryType(p Ptr) (MemoryType, error) {
	const attribute = 2
	var t MemoryType
	err := l.call(fPointerGetAttribute, uintptr(unsafe.Pointer(&t)), attribute, uintptr(p))
	return t, err
}

// MemcpyAsync enqueues a copy between any two addresses known to the driver.
func (l *Lib) MemcpyAsync(dst, src Ptr, size uint64, s Stream) error {
	return l.call(fMemcpyAsync, uintptr(dst), uintptr(src), uintptr(size), uintptr(s))
}

// Memcpy2D describes a copy of rows; see MemcpyRows.
type memcpy2D struct {
	srcX, srcY   uint64
	srcType, _   uint32
	srcHost      uint64
	srcDevice    uint64
	srcArray     uint64
	srcPitch     uint64
	dstX, dstY   uint64
	dstType, _   uint32
	dstHost      uint64
	dstDevice    uint64
	dstArray     uint64
	dstPitch     uint64
	width, heigh uint64
}

// Memcpy2DAsync enqueues a copy of rows of width bytes whose starts lie the
// pitches apart. scratch holds the descriptor, so that a hot path allocates
// nothing.
func (l *Lib) Memcpy2DAsync(dst, src Ptr, dstPitch, srcPitch, width, rows uint64, s Stream, scratch *Rows) error {
	const unified = 4
	scratch.d = memcpy2D{
		srcType: unified, srcDevice: uint64(src), srcPitch: srcPitch,
		dstType: unified, dstDevice: uint64(dst), dstPitch: dstPitch,
		width: width, heigh: rows,
	}
	return l.call(fMemcpy2DAsync, uintptr(unsafe.Pointer(&scratch.d)), uintptr(s))
}

// Rows is room for the descriptor of a copy of rows.
type Rows struct{ d memcpy2D }

// Batch is room for the descriptors of copies in a batch.
type Batch struct {
	Dst, Src, Size []uint64
	attrs          copyAttributes
	first          uint64
	failed         uint64
}

// copyAttributes: the source is read in stream order.
type copyAttributes struct {
	order            uint32
	srcHint, dstHint location
	flags            uint32
}

type location struct {
	kind uint32
	id   int32
}

// MemcpyBatchAsync enqueues the copies of b, unordered among themselves, behind
// everything earlier of the stream. Not while the stream is captured.
func (l *Lib) MemcpyBatchAsync(b *Batch, s Stream) error {
	n := len(b.Dst)
	if n != len(b.Src) || n != len(b.Size) {
		return fmt.Errorf("cuda: batch of %d destinations, %d sources, %d sizes: %w", n, len(b.Src), len(b.Size), errs.ErrConfig)
	}
	if n == 0 {
		return nil
	}
	const streamOrder = 1
	b.attrs.order = streamOrder
	dst, src, size := unsafe.Pointer(&b.Dst[0]), unsafe.Pointer(&b.Src[0]), unsafe.Pointer(&b.Size[0])
	if l.fn[fMemcpyBatchAsyncV2] != 0 {
		return l.call(fMemcpyBatchAsyncV2, uintptr(dst), uintptr(src), uintptr(size), uintptr(n),
			uintptr(unsafe.Pointer(&b.attrs)), uintptr(unsafe.Pointer(&b.first)), 1, uintptr(s))
	}
	return l.call(fMemcpyBatchAsync, uintptr(dst), uintptr(src), uintptr(size), uintptr(n),
		uintptr(unsafe.Pointer(&b.attrs)), uintptr(unsafe.Pointer(&b.first)), 1,
		uintptr(unsafe.Pointer(&b.failed)), uintptr(s))
}

// HasBatch reports whether the driver has MemcpyBatchAsync.
func (l *Lib) HasBatch() bool { return l.hasBatch() }

// MemsetD8Async enqueues filling n bytes with v.
func (l *Lib) MemsetD8Async(p Ptr, v byte, n uint64, s Stream) error {
	return l.call(fMemsetD8Async, uintptr(p), uintptr(v), uintptr(n), uintptr(s))
}

// poolProps is CUmemPoolProps.
type poolProps struct {
	allocType, handleTypes uint32
	location               location
	security               uint64
	maxSize                uint64
	usage                  uint16
	reserved               [54]byte
}

// MemPoolCreate makes a pool of device memory.
func (l *Lib) MemPoolCreate(d Device) (Pool, error) {
	props := poolProps{allocType: 1, location: location{kind: 1, id: int32(d)}}
	var p Pool
	err := l.call(fMemPoolCreate, uintptr(unsafe.Pointer(&p)), uintptr(unsafe.Pointer(&props)))
	return p, err
}

// MemPoolDestroy ends a pool once its memory is free.
func (l *Lib) MemPoolDestroy(p Pool) error { return l.call(fMemPoolDestroy, uintptr(p)) }

// MemAllocFromPoolAsync allocates in stream order.
func (l *Lib) MemAllocFromPoolAsync(size uint64, p Pool, s Stream) (Ptr, error) {
	var d Ptr
	err := l.call(fMemAllocFromPoolAsync, uintptr(unsafe.Pointer(&d)), uintptr(size), uintptr(p), uintptr(s))
	return d, err
}

// MemFreeAsync frees pool memory in stream order; it waits for nothing.
func (l *Lib) MemFreeAsync(p Ptr, s Stream) error {
	return l.call(fMemFreeAsync, uintptr(p), uintptr(s))
}
