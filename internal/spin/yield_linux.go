package spin

import (
	"time"

	"golang.org/x/sys/unix"
)

// Nap sleeps about d, by the system call: timers of the runtime are no finer than
// a millisecond where nothing else runs.
func Nap(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // an interrupted nap is a shorter one
}

// Yield gives the CPU to any other runnable thread of the machine by the raw
// sched_yield system call. The goroutine keeps its P: the scheduler is not
// told, which is what makes the call cheap. It is no preemption point of the
// Go scheduler, so a loop of Yields still takes its turns through [Turn].
func Yield() {
	// sched_yield always succeeds on Linux.
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
