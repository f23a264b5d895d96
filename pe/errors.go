package pe

import "goshmem/internal/errs"

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
