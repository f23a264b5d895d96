package moe

import (
	"context"
	"errors"
	"fmt"

	"goshmem/moe/internal/plan"
	"goshmem/pe"
)

// IndexError is a choice that names no expert (ErrRange) or one that the token
// has chosen already (ErrDuplicateExpert).
type IndexError struct {
	Token, K int
	Value    int
	Err      error // pe.ErrRange or pe.ErrDuplicateExpert
}

func (e *IndexError) Error() string {
	return fmt.Sprintf("token %d, k %d: expert %d: %v", e.Token, e.K, e.Value, e.Err)
}

// Unwrap gives the sentinel.
func (e *IndexError) Unwrap() error { return e.Err }

// CapacityError is ErrCapacity: a rank has more tokens than Config.MaxTokens, or
// would receive more rows than Config.MaxRows.
type CapacityError struct {
	What       string // "tokens" or "rows"
	PE         int    // the rank, for rows; -1 for tokens
	Have, Most int64
}

func (e *CapacityError) Error() string {
	at := ""
	if e.PE >= 0 {
		at = fmt.Sprintf(" at pe %d", e.PE)
	}
	return fmt.Sprintf("%d %s%s, at most %d: %v", e.Have, e.What, at, e.Most, pe.ErrCapacity)
}

// Is matches pe.ErrCapacity.
func (e *CapacityError) Is(t error) bool { return t == pe.ErrCapacity }

// ArgumentError is ErrRange: a slice has the wrong length.
type ArgumentError struct {
	Arg        string
	Have, Want int64 // elements
}

func (e *ArgumentError) Error() string {
	return fmt.Sprintf("%s has %d elements, want %d: %v", e.Arg, e.Have, e.Want, pe.ErrRange)
}

// Is matches pe.ErrRange.
func (e *ArgumentError) Is(t error) bool { return t == pe.ErrRange }

// HandleError is ErrBadRef: the rows of a handle were overwritten by a later
// dispatch, or the handle is not of this engine.
type HandleError struct{ Why string }

func (e *HandleError) Error() string { return fmt.Sprintf("handle %s: %v", e.Why, pe.ErrBadRef) }

// Is matches pe.ErrBadRef.
func (e *HandleError) Is(t error) bool { return t == pe.ErrBadRef }

// RemoteError says that another rank could not take part in the call. Nothing
// was delivered, and the next call may go well. Err says why, as that rank's own
// call did.
type RemoteError struct {
	PE  int // team rank
	Err error
}

func (e *RemoteError) Error() string { return fmt.Sprintf("pe %d: %v", e.PE, e.Err) }

// Unwrap gives that rank's error.
func (e *RemoteError) Unwrap() error { return e.Err }

// BrokenError says that a call failed under way, here or at another rank: by a
// deadline, a cancelled context, a lost PE. The ranks no longer agree on where
// they are, so every later call returns it; Close the engine and make a new one.
type BrokenError struct {
	PE  int // team rank where it happened
	Err error
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("call failed under way at pe %d: %v", e.PE, e.Err)
}

// Unwrap gives the cause.
func (e *BrokenError) Unwrap() error { return e.Err }

// faultError turns a rank's fault into the error that its own call returns.
func faultError(f plan.Fault) error {
	switch f.Code {
	case plan.BadExpert:
		return &IndexError{int(f.A), int(f.B), int(f.C), pe.ErrRange}
	case plan.Duplicate:
		return &IndexError{int(f.A), int(f.B), int(f.C), pe.ErrDuplicateExpert}
	case plan.TooMany:
		return &CapacityError{"tokens", -1, f.A, f.B}
	case plan.TooManyRows:
		return &CapacityError{"rows", int(f.A), f.B, f.C}
	case plan.BadArgument:
		return &ArgumentError{argumentName(f.A), f.B, f.C}
	case plan.Aliased:
		return fmt.Errorf("%s overlaps the rows to be received: %w", argumentName(f.A), pe.ErrAlias)
	case plan.Stale:
		return &HandleError{"is stale"}
	case plan.Foreign:
		return &HandleError{"is not of this engine"}
	case plan.OtherCall:
		return &pe.MismatchError{PE: int(f.A), Field: "call", Want: callName(f.C), Have: callName(f.B)}
	case plan.OtherPlan:
		return &pe.MismatchError{PE: int(f.A), Field: "routing", Want: fmt.Sprint("#", f.C), Have: fmt.Sprint("#", f.B)}
	case plan.Corrupt:
		return &pe.MismatchError{PE: int(f.A), Field: "counts", Want: "consistent", Have: "inconsistent"}
	}
	return fmt.Errorf("fault %d: %w", f.Code, pe.ErrUnsupported)
}

func argumentName(a int64) string {
	names := [...]string{plan.ArgX: "x", plan.ArgScales: "scales", plan.ArgIdx: "idx", plan.ArgWeights: "weights", plan.ArgY: "y", plan.ArgBias: "bias", plan.ArgOut: "out"}
	if a < 0 || a >= int64(len(names)) {
		return "argument"
	}
	return names[a]
}

func callName(c int64) string {
	switch uint32(c) {
	case plan.CallDispatch:
		return "dispatch"
	case plan.CallCached:
		return "cached dispatch"
	case plan.CallCombine:
		return "combine"
	}
	return fmt.Sprintf("call %d", c)
}

// causes are what a failed rank tells the others, by number.
func causes() []error {
	return []error{errOther, pe.ErrTimeout, pe.ErrPeerLost, context.Canceled, pe.ErrClosed, pe.ErrMismatch}
}

var errOther = errors.New("failed")

// causeCode is the number of an error's cause, 0 for what has none.
func causeCode(err error) int {
	for i, c := range causes() {
		if errors.Is(err, c) {
			return i
		}
	}
	return 0
}

func causeError(code int) error {
	if c := causes(); code > 0 && code < len(c) {
		return c[code]
	}
	return errOther
}
