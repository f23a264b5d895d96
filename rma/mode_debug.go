//go:build goshmem_debug

package rma

import (
	"sync/atomic"
	"unsafe"
)

// Debug reports whether this build checks that signals are set-only or add-only.
const Debug = true

// modeWord is where a signal object keeps, in debug builds, which of the two it
// has been since its last reset.
const modeWord = 56

func modeOK(cell unsafe.Pointer, op SignalOp) bool {
	w := (*uint32)(unsafe.Add(cell, modeWord))
	return atomic.CompareAndSwapUint32(w, 0, uint32(op)) || atomic.LoadUint32(w) == uint32(op)
}
