package verbs

import (
	"fmt"
	"syscall"

	"goshmem/internal/errs"
)

// Error is a verb that failed: its name, errno, and what it was given.
type Error struct {
	Verb   string
	Errno  syscall.Errno
	Detail string // what it was about; may be empty
}

func (e *Error) Error() string {
	s := "verbs: " + e.Verb
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return fmt.Sprintf("%s: %v (errno %d)", s, e.Errno, int(e.Errno))
}

// Unwrap gives errno, and where it says as much, the condition: no memory, bad
// values, something the device or driver does not do.
func (e *Error) Unwrap() []error {
	switch e.Errno {
	case syscall.ENOMEM, syscall.ENOSPC:
		return []error{e.Errno, errs.ErrNoMemory}
	case syscall.EINVAL:
		return []error{e.Errno, errs.ErrConfig}
	case syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EPROTONOSUPPORT:
		return []error{e.Errno, errs.ErrUnsupported}
	}
	return []error{e.Errno}
}
