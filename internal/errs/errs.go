// Package errs holds the error values and error types of every room, so that
// the lowest ones can return what the public packages (pe above all) export.
//
// Each condition is a sentinel that works with errors.Is; those that carry data
// (a PE, a field, a count) are also a type that works with errors.As and whose
// Is method matches the sentinel.
package errs

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinels, in the order of the contract.
var (
	ErrRange           = errors.New("out of range")
	ErrPeer            = errors.New("no such PE")
	ErrAlign           = errors.New("misaligned")
	ErrKind            = errors.New("wrong kind of memory")
	ErrAlias           = errors.New("source and destination overlap")
	ErrBadRef          = errors.New("bad symmetric reference")
	ErrNoMemory        = errors.New("out of symmetric memory")
	ErrCapacity        = errors.New("over capacity")
	ErrDuplicateExpert = errors.New("duplicate expert")
	ErrConfig          = errors.New("bad configuration")
	ErrWouldBlock      = errors.New("would block")
	ErrTimeout         = errors.New("timed out")
	ErrPeerLost        = errors.New("PE lost")
	ErrMismatch        = errors.New("PEs disagree")
	ErrClosed          = errors.New("closed")
	ErrUnsupported     = errors.New("unsupported")
)

// ErrNoContext refuses a nil context.Context.
var ErrNoContext = fmt.Errorf("no context.Context: %w", ErrConfig)

// OpError says which operation failed, on what, and why. It is what every
// operation of rma, amo, coll and moe returns.
type OpError struct {
	Op   string // "rma: put"
	PE   int    // target or awaited PE, numbered in the team of the context; -1: none
	Seq  uint64 // number of the operation in its lane; 0: none was taken
	Size int64  // bytes; -1: not applicable
	At   string // "heap+0x100"; empty: not applicable
	Path string // "direct", "proxy", …; empty: none chosen
	Err  error  // the cause
}

// Error formats as `rma: put 4096 B to pe 3 at heap+0x100: cause`.
func (e *OpError) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Size >= 0 {
		fmt.Fprintf(&b, " %d B", e.Size)
	}
	if e.PE >= 0 {
		fmt.Fprintf(&b, " to pe %d", e.PE)
	}
	if e.At != "" {
		fmt.Fprintf(&b, " at %s", e.At)
	}
	if e.Seq != 0 {
		fmt.Fprintf(&b, " (#%d)", e.Seq)
	}
	if e.Path != "" {
		fmt.Fprintf(&b, " via %s", e.Path)
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	return b.String()
}

// Unwrap gives the cause.
func (e *OpError) Unwrap() error { return e.Err }

// Timeout reports whether the cause is a deadline, as net.Error does.
func (e *OpError) Timeout() bool { return errors.Is(e.Err, ErrTimeout) }

// TimeoutError is ErrTimeout with what was waited for.
type TimeoutError struct {
	What       string // "signal", "join", …
	PE         int    // PE waited for; -1: several or none in particular
	Want, Have uint64
	Missing    []int // PEs that have not answered, where known
}

func (e *TimeoutError) Error() string {
	s := "timed out"
	if e.What != "" {
		s += " waiting for " + e.What
	}
	if e.PE >= 0 {
		s += fmt.Sprintf(" of pe %d", e.PE)
	}
	if e.Want != 0 || e.Have != 0 {
		s += fmt.Sprintf(": want %d, have %d", e.Want, e.Have)
	}
	if len(e.Missing) > 0 {
		s += fmt.Sprintf(": missing PEs %v", e.Missing)
	}
	return s
}

// Is matches ErrTimeout.
func (e *TimeoutError) Is(t error) bool { return t == ErrTimeout }

// Timeout is true, as net.Error has it.
func (e *TimeoutError) Timeout() bool { return true }

// PeerLostError is ErrPeerLost with the PE (a world rank) and how it was known.
type PeerLostError struct {
	PE    int
	Cause string
}

func (e *PeerLostError) Error() string {
	if e.Cause == "" {
		return fmt.Sprintf("pe %d lost", e.PE)
	}
	return fmt.Sprintf("pe %d lost: %s", e.PE, e.Cause)
}

// Is matches ErrPeerLost.
func (e *PeerLostError) Is(t error) bool { return t == ErrPeerLost }

// MismatchError is ErrMismatch with the PE that differs and the field.
type MismatchError struct {
	PE         int
	Field      string
	Want, Have string // the value here, and there; empty where another PE told of it
}

func (e *MismatchError) Error() string {
	if e.Want == "" && e.Have == "" {
		return fmt.Sprintf("pe %d disagrees on %s", e.PE, e.Field)
	}
	return fmt.Sprintf("pe %d disagrees on %s: %s here, %s there", e.PE, e.Field, e.Want, e.Have)
}

// Is matches ErrMismatch.
func (e *MismatchError) Is(t error) bool { return t == ErrMismatch }

// ClosedError is ErrClosed with the PE (a world rank) whose end closed; -1: this one.
type ClosedError struct{ PE int }

func (e *ClosedError) Error() string {
	if e.PE < 0 {
		return "closed"
	}
	return fmt.Sprintf("pe %d closed", e.PE)
}

// Is matches ErrClosed.
func (e *ClosedError) Is(t error) bool { return t == ErrClosed }
