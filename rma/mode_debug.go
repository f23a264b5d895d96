//go:build goshmem_debug

package rma

import (
	"sync/atomic"
	"unsafe"

	"goshmem/heap"
)

// Debug reports whether this build checks that signals are set-only or add-only.
const Debug = true

// modeWord is where a signal object keeps, in debug builds, which of the two it
// has been since its last reset.
const modeWord = 56

func modeOK(sig heap.Ref, cell unsafe.Pointer, op SignalOp) bool {
	if sig.Region() == heap.RegionRuntime {
		return true // built-in words are add-only by construction
	}
	w := (*uint32)(unsafe.Add(cell, modeWord))
	return atomic.CompareAndSwapUint32(w, 0, uint32(op)) || atomic.LoadUint32(w) == uint32(op)
}
