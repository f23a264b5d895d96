package bootstrap

import (
	"context"
	"fmt"

	"goshmem/internal/errs"
)

// AbortedError ends a Gather that PE gave up because its context was cancelled,
// at all other members of the group. It matches context.Canceled.
type AbortedError struct {
	PE      int   // who gave up
	Missing []int // who had not called yet
}

func (e *AbortedError) Error() string {
	return fmt.Sprintf("cancelled by pe %d, missing PEs %v", e.PE, e.Missing)
}

// Is matches context.Canceled.
func (e *AbortedError) Is(t error) bool { return t == context.Canceled }

// HubLostError is why calls fail once the hub of a launcher is gone. Nobody can
// decide losses any more, so the world is closed: it matches errs.ErrPeerLost
// and errs.ErrClosed.
type HubLostError struct{ Cause string }

func (e *HubLostError) Error() string { return "the job's launcher is lost: " + e.Cause }

// Is matches errs.ErrPeerLost and errs.ErrClosed.
func (e *HubLostError) Is(t error) bool { return t == errs.ErrPeerLost || t == errs.ErrClosed }

// errNoSecret: nothing but its secret tells a job's members from others on a network.
var errNoSecret = fmt.Errorf("a rendezvous of several hosts needs the job's secret (GOSHMEM_SECRET_FILE or GOSHMEM_SECRET): %w", errs.ErrConfig)

// RefuseCode says why a hub refused a connection.
type RefuseCode uint8

// Reasons for a refusal.
const (
	RefusedKey     RefuseCode = 1 + iota // the secrets differ
	RefusedUser                          // the processes' users differ
	RefusedVersion                       // the wire versions differ
	RefusedSize                          // the job's sizes differ
	RefusedRank                          // no such rank
	RefusedTaken                         // the rank has joined already
	RefusedLost                          // the rank was lost
	RefusedLeft                          // the rank has said goodbye
	RefusedLate                          // after the join deadline
	RefusedBusy                          // too many connections at once
	RefusedClosed                        // the hub is closing
	RefusedGarbage                       // not understood
)

// RefusedError is a hub's refusal to let a member join.
type RefusedError struct {
	Code   RefuseCode
	Reason string
}

func (e *RefusedError) Error() string { return "refused by the hub: " + e.Reason }

// Is matches the sentinel that belongs to the code.
func (e *RefusedError) Is(t error) bool {
	switch e.Code {
	case RefusedKey, RefusedUser, RefusedRank, RefusedTaken:
		return t == errs.ErrConfig
	case RefusedSize:
		return t == errs.ErrConfig || t == errs.ErrMismatch
	case RefusedVersion, RefusedGarbage:
		return t == errs.ErrUnsupported
	case RefusedLost:
		return t == errs.ErrPeerLost
	case RefusedLate, RefusedBusy:
		return t == errs.ErrTimeout
	case RefusedLeft, RefusedClosed:
		return t == errs.ErrClosed
	}
	return false
}

// passing reports whether the same attempt may succeed a little later: a hub of
// an earlier world at this address is about to go, or was only busy.
func (e *RefusedError) passing() bool {
	return e.Code == RefusedLeft || e.Code == RefusedClosed || e.Code == RefusedBusy
}
