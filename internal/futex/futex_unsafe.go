//go:build linux

package futex

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

// Operations of futex(2), without FUTEX_PRIVATE_FLAG.
const (
	opWait = 0
	opWake = 1
)

// Wait sleeps while *addr equals val, for at most d. It returns woken = true
// when a [Wake] ended it or *addr was different from val already, and false
// after d or when a signal interrupted it; none of these is an error, and in
// each the caller looks at its condition again (wake-ups may be spurious).
// d <= 0 returns at once without a system call.
func Wait(addr *uint32, val uint32, d time.Duration) (woken bool, err error) {
	if d <= 0 {
		return false, nil
	}
	if uintptr(unsafe.Pointer(addr))%4 != 0 {
		return false, fmt.Errorf("futex: wait at %p: %w", addr, errs.ErrAlign)
	}
	ts := unix.NsecToTimespec(int64(d))
	// The scheduler is told (Syscall6, not RawSyscall6): the P goes to others.
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX,
		uintptr(unsafe.Pointer(addr)), opWait, uintptr(val),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
	switch {
	case errno == 0, errors.Is(errno, unix.EAGAIN):
		return true, nil
	case errors.Is(errno, unix.EINTR), errors.Is(errno, unix.ETIMEDOUT):
		return false, nil
	}
	return false, fmt.Errorf("futex: wait at %p: %w", addr, errno)
}

// Wake wakes up to n sleepers of addr and returns how many it woke. It never
// blocks. n <= 0 wakes nobody.
func Wake(addr *uint32, n int) (int, error) {
	if n <= 0 {
		return 0, nil
	}
	if uintptr(unsafe.Pointer(addr))%4 != 0 {
		return 0, fmt.Errorf("futex: wake at %p: %w", addr, errs.ErrAlign)
	}
	// The kernel reads an int: keep a "wake all" of a wider int from wrapping.
	const most = 1<<31 - 1
	r, _, errno := unix.RawSyscall6(unix.SYS_FUTEX,
		uintptr(unsafe.Pointer(addr)), opWake, uintptr(min(n, most)), 0, 0, 0)
	if errno != 0 {
		return 0, fmt.Errorf("futex: wake at %p: %w", addr, errno)
	}
	return int(r), nil
}
