//go:build race

package raceflag

import (
	"runtime"
	"unsafe"
)

// Release makes what the goroutine did so far happen before the next Acquire of
// p: for a store that the detector cannot know to be a hand-over. Call it before
// the store.
func Release(p unsafe.Pointer) { runtime.RaceReleaseMerge(p) }

// Acquire is the other half of Release. Call it after the load.
func Acquire(p unsafe.Pointer) { runtime.RaceAcquire(p) }
