package device

import (
	"time"
	"unsafe"
)

// Driver is a vendor's runtime.
type Driver interface {
	// Name is "cuda" or "host".
	Name() string
	// Devices lists what there is.
	Devices() ([]Info, error)
	// Open makes device number i usable until Close.
	Open(i int) (Device, error)
	// NewSpace reserves addresses for slots of size bytes each, reached from all of
	// devs, devices of this driver.
	NewSpace(devs []Device, slots int, size uint64, share Share) (Space, error)
	// Pair tells how device a reaches the memory of device b.
	Pair(a, b int) (Pair, error)
}

// Info describes a device.
type Info struct {
	Index  int
	Name   string // the model
	UUID   string // the same in every process
	Bus    string // its place on the PCI bus; empty: none
	Memory uint64 // bytes
	Facts  []Fact // what else there is to know, for people
	// CopyWriteMax is the size in bytes up to which CopyWrite of memory of this device
	// is faster than Copy and Write; 0: never.
	CopyWriteMax uint64
	// WriteMax is the size in bytes up to which a small payload from host memory
	// travels faster as stores of the stream than as a copy.
	WriteMax uint64
}

// Fact is one more property of a device.
type Fact struct{ Name, Value string }

// Pair is the way from one device to another's memory.
type Pair struct {
	Access  bool // can be mapped
	Atomics bool // atomic operations are native
	Rank    int  // of performance, 0 best
}

// Share is how memory is shared between processes.
type Share string

// The ways of sharing.
const (
	ShareAuto Share = "auto" // the best there is
	ShareVMM  Share = "vmm"  // physical memory behind a descriptor, mapped in one range
	ShareIPC  Share = "ipc"  // handles of whole allocations
)

// Device is an opened device. Its methods but Enter and Leave may be called by
// anybody; what they return lives until it is closed.
type Device interface {
	Info() Info
	// Enter makes the device current for calls of this goroutine, which keeps its
	// OS thread until Leave.
	Enter() error
	Leave()
	// Register makes host memory that is not Go's reachable by the device, and
	// returns its address there. Until Close, or until Unregister, which may wait
	// for running kernels.
	Register(base unsafe.Pointer, size uint64) (addr uint64, err error)
	Unregister(base unsafe.Pointer) error
	// Pinned is zeroed host memory that the device reaches, until Close.
	Pinned(size uint64) (base unsafe.Pointer, addr uint64, err error)
	// Alloc is zeroed device memory of this process alone, until Close.
	Alloc(size uint64) (addr uint64, err error)
	// Settle waits until nothing runs on the device for this process, up to a limit.
	Settle(limit time.Duration) error
	// NewStream makes an ordered queue.
	NewStream() (Stream, error)
	// Wrap uses a queue of the caller's, by the vendor's handle. Closing the result
	// leaves it alone.
	Wrap(handle uintptr) (Stream, error)
	Close() error
}

// Handle names memory to other processes.
type Handle struct {
	Share Share
	FD    int    // a descriptor to pass on, the receiver's to close; -1: none
	Data  []byte // bytes to pass on
	Size  uint64
}

// Space is device memory of the PEs of a world, one slot each, as this process
// reaches it.
type Space interface {
	// Share is the way of sharing that was chosen.
	Share() Share
	// Create allocates a slot on dev; export: other processes will import it.
	Create(slot int, dev Device, export bool) (Handle, error)
	// Import maps a slot that another process created. h.FD stays the caller's.
	Import(slot int, dev Device, h Handle) error
	// Addr is the address of a slot; 0 where there is nothing.
	Addr(slot int) uint64
	// Close gives everything up; nothing may be using it.
	Close() error
}

// Word is a store of 4 or 8 bytes to an aligned address.
type Word struct {
	Addr, Value uint64
	Wide        bool // 8 bytes
}

// AMO is an atomic operation on a word of device memory: the code and the element
// of channel.Desc.
type AMO struct {
	Op, Size      uint32
	Float         bool
	Addr          uint64
	Operand, Cond uint64
	Old           uint64 // address that gets the old bits, 8 bytes; 0: not wanted
}

// Sum is a wait for the sum of a signal's cells.
type Sum struct {
	Cells   uint64 // address of the first
	N       uint32 // 1, or all of a signal's
	Cmp     uint32 // eq, ne, gt, ge, lt, le
	Value   uint64
	Base    uint64 // address of what is added to Value; 0: nothing
	Consume bool   // then move the base to what was waited for
	Stop    uint64 // address of a word that ends the wait when not zero
	Failed  uint64 // address of a word that gets 1 if the wait was ended
	Limit   uint64 // nanoseconds after which the wait ends itself
}

// Stream is an ordered queue. Its methods enqueue, and are called by one goroutine
// at a time between the device's Enter and Leave.
type Stream interface {
	// Copy copies between any two addresses of devices.
	Copy(dst, src, n uint64) error
	// CopyWrite is, by one kernel, MaxKernelCopies copies at most, unordered among
	// themselves, and behind them Write of two words at most, of 8 bytes.
	CopyWrite(b *Batch, ws []Word) error
	// CopyBatch copies b, unordered among itself, behind everything earlier.
	CopyBatch(b *Batch) error
	// CopyRows copies rows of width bytes whose starts lie the pitches apart.
	CopyRows(dst, src, dstPitch, srcPitch, width, rows uint64) error
	// Fill sets n bytes.
	Fill(addr uint64, v byte, n uint64) error
	// Write stores words, each visible behind everything earlier of the stream.
	Write(ws []Word) error
	// WaitGE makes what follows wait until the word at addr is at least v.
	WaitGE(addr, v uint64) error
	// AMO is carried out by a one-thread kernel.
	AMO(a *AMO) error
	// Add adds v to the total at an address of device memory and stores the result
	// in cell, behind everything earlier.
	Add(total, cell, v uint64) error
	// WaitSum makes what follows wait, by a one-thread kernel.
	WaitSum(w *Sum) error
	// Exchange is carried out by one kernel.
	Exchange(x *Exchange) error
	// Capturing reports whether the stream is being recorded rather than run.
	Capturing() (bool, error)
	// Poll is nil when all work is done, ErrWouldBlock when not, or what failed.
	Poll() error
	// Handle is the vendor's.
	Handle() uintptr
	// Close ends the stream when its work is done.
	Close() error
}

// MaxKernelCopies is the most copies of one CopyWrite.
const MaxKernelCopies = 32

// Batch is copies to be enqueued together.
type Batch struct{ Dst, Src, Size []uint64 }

// Add appends a copy.
func (b *Batch) Add(dst, src, n uint64) {
	b.Dst, b.Src, b.Size = append(b.Dst, dst), append(b.Src, src), append(b.Size, n)
}

// Len is the number of copies.
func (b *Batch) Len() int { return len(b.Dst) }

// Reset empties the batch.
func (b *Batch) Reset() { b.Dst, b.Src, b.Size = b.Dst[:0], b.Src[:0], b.Size[:0] }

// Overlaps reports whether n bytes at addr share any with the destinations, or, if
// written, with the sources.
func (b *Batch) Overlaps(addr, n uint64, written bool) bool {
	for i, d := range b.Dst {
		if addr < d+b.Size[i] && d < addr+n {
			return true
		}
		if s := b.Src[i]; written && addr < s+b.Size[i] && s < addr+n {
			return true
		}
	}
	return false
}
