package rma

import (
	"unsafe"

	"goshmem/heap"
	"goshmem/internal/memcopy"
	"goshmem/pe"
)

// PutMemStream is PutMemNBI for one part of a transfer of many megabytes, such as
// a row of a matrix: done by the caller it goes past the caches whatever its own
// size, and however large it is it is not queued for its size alone.
func PutMemStream(c *pe.Context, dst heap.Ref, src []byte, target int) (Ticket, error) {
	n := uintptr(len(src))
	if l := c.Lane(target); l != nil && l.Enter() {
		if p := l.Addr(dst, uint64(n)); p != nil {
			s := unsafe.Pointer(unsafe.SliceData(src))
			if p != s && !overlap(p, s, n) {
				memcopy.Stream(p, s, n)
				l.Leave()
				return Ticket{}, nil
			}
		}
		l.Undo()
	}
	return putSlow(c, "rma: put stream", dst, src, target, nonblocking)
}
