package spin

import "golang.org/x/sys/unix"

// Yield gives the CPU to any other runnable thread of the machine by the raw
// sched_yield system call. The goroutine keeps its P: the scheduler is not
// told, which is what makes the call cheap. It is no preemption point of the
// Go scheduler, so a loop of Yields still takes its turns through [Turn].
func Yield() {
	// sched_yield always succeeds on Linux.
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
