package pe

import (
	"goshmem/heap"
	"goshmem/internal/errs"
)

// The errors of the contract. Each works with errors.Is, whatever wraps it.
var (
	ErrRange           = errs.ErrRange
	ErrPeer            = errs.ErrPeer
	ErrAlign           = errs.ErrAlign
	ErrKind            = errs.ErrKind
	ErrAlias           = errs.ErrAlias
	ErrBadRef          = errs.ErrBadRef
	ErrNoMemory        = errs.ErrNoMemory
	ErrCapacity        = errs.ErrCapacity
	ErrDuplicateExpert = errs.ErrDuplicateExpert
	ErrConfig          = errs.ErrConfig
	ErrWouldBlock      = errs.ErrWouldBlock
	ErrTimeout         = errs.ErrTimeout
	ErrPeerLost        = errs.ErrPeerLost
	ErrMismatch        = errs.ErrMismatch
	ErrClosed          = errs.ErrClosed
	ErrUnsupported     = errs.ErrUnsupported
)

// The error types that carry data, for errors.As.
type (
	// OpError says which operation failed, on what, and why.
	OpError = errs.OpError
	// TimeoutError is ErrTimeout with what was waited for.
	TimeoutError = errs.TimeoutError
	// PeerLostError is ErrPeerLost with the PE's world rank.
	PeerLostError = errs.PeerLostError
	// MismatchError is ErrMismatch with the PE and the field.
	MismatchError = errs.MismatchError
	// ClosedError is ErrClosed with the PE's world rank.
	ClosedError = errs.ClosedError
)

// OpError says that an operation of the context failed: target is the PE of its
// team, -1 for none, at where, the zero Ref for nowhere, size in bytes, -1 for
// none. The path is that of the lane.
func (c *Context) OpError(op string, target int, at heap.Ref, size int64, err error) *OpError {
	e := &OpError{Op: op, PE: target, Size: size, Err: err}
	if at != (heap.Ref{}) {
		e.At = at.String()
	}
	if c != nil {
		if l := c.Lane(target); l != nil {
			e.Path = l.Config().Path
		}
	}
	return e
}
