package bench

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// pinned runs each function on a thread of its own, bound to a CPU (round robin
// over cpus; none: unbound), and waits for all of them.
func pinned(cpus []int, fs ...func()) {
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Go(func() {
			if len(cpus) > 0 {
				// Not unlocked: the bound thread ends with its goroutine.
				runtime.LockOSThread()
				bind(cpus[i%len(cpus)])
			}
			f()
		})
	}
	wg.Wait()
}

// bind binds the calling thread. It may be refused: then figures are as the
// scheduler makes them, and the calibration shows it.
func bind(cpu int) {
	var set unix.CPUSet
	set.Set(cpu)
	_ = unix.SchedSetaffinity(0, &set)
}
