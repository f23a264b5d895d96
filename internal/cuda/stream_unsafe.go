package cuda

import (
	"fmt"
	"unsafe"

	"goshmem/internal/errs"
)

// Stream is an ordered queue of a context.
type Stream uintptr

// Event is a mark in a stream.
type Event uintptr

// StreamCreate makes a stream that waits for no other.
func (l *Lib) StreamCreate(priority int) (Stream, error) {
	const nonBlocking = 1
	var s Stream
	err := l.call(fStreamCreateWithPriority, uintptr(unsafe.Pointer(&s)), nonBlocking, uintptr(priority))
	return s, err
}

// StreamDestroy ends a stream when its work is done; it returns at once.
func (l *Lib) StreamDestroy(s Stream) error { return l.call(fStreamDestroy, uintptr(s)) }

// StreamQuery is nil if the stream's work is done, ErrWouldBlock (NotReady) if
// not, or its failure.
func (l *Lib) StreamQuery(s Stream) error { return l.call(fStreamQuery, uintptr(s)) }

// StreamSynchronize waits for the stream's work.
func (l *Lib) StreamSynchronize(s Stream) error { return l.call(fStreamSynchronize, uintptr(s)) }

// StreamWaitEvent makes what follows in s wait for e.
func (l *Lib) StreamWaitEvent(s Stream, e Event) error {
	return l.call(fStreamWaitEvent, uintptr(s), uintptr(e), 0)
}

// StreamWriteValue64 enqueues a store, visible behind everything earlier.
func (l *Lib) StreamWriteValue64(s Stream, p Ptr, v uint64) error {
	return l.call(fStreamWriteValue64, uintptr(s), uintptr(p), uintptr(v), 0)
}

// WaitCmp is what a stream waits for.
type WaitCmp uint32

// The comparisons of waits: (value - v) >= 0 as signed, and equality.
const (
	WaitGE WaitCmp = 0
	WaitEQ WaitCmp = 1
)

// StreamWaitValue64 makes the stream wait until the word at p compares with v.
func (l *Lib) StreamWaitValue64(s Stream, p Ptr, v uint64, cmp WaitCmp) error {
	return l.call(fStreamWaitValue64, uintptr(s), uintptr(p), uintptr(v), uintptr(cmp))
}

// MemOp is one store of a batch of stores: CUstreamBatchMemOpParams.
type MemOp struct {
	op, _   uint32
	address uint64
	value   uint64
	flags   uint32
	_       uint32
	alias   uint64
	_       uint64
}

// MaxMemOps is the most stores of one StreamBatchMemOp.
const MaxMemOps = 256

// SetWrite makes o a store of 8 bytes (wide) or 4, visible behind everything
// earlier.
func (o *MemOp) SetWrite(p Ptr, v uint64, wide bool) {
	*o = MemOp{op: 2, address: uint64(p), value: v}
	if wide {
		o.op = 5
	}
}

// StreamBatchMemOp enqueues stores, in order.
func (l *Lib) StreamBatchMemOp(s Stream, ops []MemOp) error {
	if len(ops) == 0 {
		return nil
	}
	if len(ops) > MaxMemOps {
		return fmt.Errorf("cuda: %d stream operations in a batch, %d at most: %w", len(ops), MaxMemOps, errs.ErrRange)
	}
	return l.call(fStreamBatchMemOp, uintptr(s), uintptr(len(ops)), uintptr(unsafe.Pointer(&ops[0])), 0)
}

// LaunchHostFunc enqueues a call of a C function with one argument. A Go
// function is made one by purego.NewCallback; it must make no call of the driver.
func (l *Lib) LaunchHostFunc(s Stream, fn, arg uintptr) error {
	return l.call(fLaunchHostFunc, uintptr(s), fn, arg)
}

// EventCreate makes an event; timing: for EventElapsed.
func (l *Lib) EventCreate(timing bool) (Event, error) {
	flags := uintptr(2)
	if timing {
		flags = 0
	}
	var e Event
	err := l.call(fEventCreate, uintptr(unsafe.Pointer(&e)), flags)
	return e, err
}

// EventDestroy ends an event.
func (l *Lib) EventDestroy(e Event) error { return l.call(fEventDestroy, uintptr(e)) }

// EventRecord puts the mark into a stream.
func (l *Lib) EventRecord(e Event, s Stream) error {
	return l.call(fEventRecord, uintptr(e), uintptr(s))
}

// EventQuery is nil if the mark was passed, ErrWouldBlock (NotReady) if not.
func (l *Lib) EventQuery(e Event) error { return l.call(fEventQuery, uintptr(e)) }

// EventSynchronize waits until the mark was passed.
func (l *Lib) EventSynchronize(e Event) error { return l.call(fEventSynchronize, uintptr(e)) }

// EventElapsed is the time between two passed marks in milliseconds.
func (l *Lib) EventElapsed(from, to Event) (float32, error) {
	var ms float32
	err := l.call(fEventElapsedTime, uintptr(unsafe.Pointer(&ms)), uintptr(from), uintptr(to))
	return ms, err
}
