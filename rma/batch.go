package rma

import (
	"fmt"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/memcopy"
	"goshmem/pe"
)

// BatchItem is one put of a batch: Src to Dst on the batch's target.
type BatchItem = channel.BatchItem

// PutBatch is many puts to one PE in one enqueue. They take effect in order, and
// a following signal covers all of them. It may return before they are complete:
// items and their sources must not be touched until Quiet, or until the ticket
// is complete. An empty batch completes at once. Every item is checked before
// anything is done.
func PutBatch(c *pe.Context, items []BatchItem, target int) (Ticket, error) {
	return putBatch(c, items, target, nonblocking)
}

// TryPutBatch is PutBatch that returns ErrWouldBlock where that would wait for
// room.
func TryPutBatch(c *pe.Context, items []BatchItem, target int) (Ticket, error) {
	return putBatch(c, items, target, try)
}

func putBatch(c *pe.Context, items []BatchItem, target int, m mode) (Ticket, error) {
	const op = "rma: put batch"
	l, err := lane(c, target)
	if err != nil {
		return Ticket{}, opErr(c, op, target, heap.Ref{}, -1, err)
	}
	total := 0
	mapped := true
	src := func(it *BatchItem) unsafe.Pointer { // nil: not the CPU's to read
		if it.From.Valid() {
			return l.Local(it.From)
		}
		return unsafe.Pointer(unsafe.SliceData(it.Src))
	}
	for i := range items {
		it := &items[i]
		n := it.Len()
		err := l.Check(it.Dst, n)
		if err == nil && (it.From.Valid() || it.From.OutOfRange()) {
			if err = c.CheckLocal(it.From, n); err == nil && it.From.Region() == heap.RegionDevice {
				err = l.Takes(heap.KindCUDA)
			}
		}
		p := unsafe.Pointer(nil)
		if err == nil {
			if p = l.Mapped(it.Dst); p != nil && overlap(p, src(it), uintptr(n)) {
				err = errs.ErrAlias
			}
		}
		if err != nil {
			return Ticket{}, opErr(c, op, target, it.Dst, int64(n), fmt.Errorf("item %d: %w", i, err))
		}
		mapped = mapped && p != nil && (src(it) != nil || n == 0)
		total += int(n)
	}
	if len(items) == 0 {
		return Ticket{}, nil
	}
	if mapped && total < c.InlineMax() && inline(c, l, m) {
		for i := range items {
			memcopy.Copy(l.Mapped(items[i].Dst), src(&items[i]), uintptr(items[i].Len()))
		}
		l.Leave()
		return Ticket{}, nil
	}
	d := channel.Desc{Op: channel.OpBatch, Flags: channel.FlagLocalPtr, Size: uint64(len(items))}
	t, err := queue(c, l, &d, unsafe.Pointer(unsafe.SliceData(items)), m)
	if err != nil {
		return Ticket{}, opErr(c, op, target, heap.Ref{}, int64(total), err)
	}
	return t, nil
}
