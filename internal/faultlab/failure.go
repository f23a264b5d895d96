package faultlab

import (
	"context"
	"errors"

	"goshmem/internal/errs"
)

// Failure is an error on its way to the test: its text, which of the contract's
// conditions it is, and what the typed errors in it carry.
type Failure struct {
	Text    string
	Is      []string // "ErrPeerLost", "context.Canceled", …
	PE      int      // of the loss, the mismatch or the close; -1: none
	Field   string   // of a mismatch
	Missing []int    // of a timeout
}

// Has reports whether the error is that condition. A nil Failure is none.
func (f *Failure) Has(condition string) bool {
	if f == nil {
		return false
	}
	for _, s := range f.Is {
		if s == condition {
			return true
		}
	}
	return false
}

func (f *Failure) String() string {
	if f == nil {
		return "no error"
	}
	return f.Text
}

type condition struct {
	name string
	err  error
}

func conditions() []condition {
	return []condition{
		{"ErrRange", errs.ErrRange},
		{"ErrPeer", errs.ErrPeer},
		{"ErrAlign", errs.ErrAlign},
		{"ErrKind", errs.ErrKind},
		{"ErrAlias", errs.ErrAlias},
		{"ErrBadRef", errs.ErrBadRef},
		{"ErrNoMemory", errs.ErrNoMemory},
		{"ErrCapacity", errs.ErrCapacity},
		{"ErrConfig", errs.ErrConfig},
		{"ErrWouldBlock", errs.ErrWouldBlock},
		{"ErrTimeout", errs.ErrTimeout},
		{"ErrPeerLost", errs.ErrPeerLost},
		{"ErrMismatch", errs.ErrMismatch},
		{"ErrClosed", errs.ErrClosed},
		{"ErrUnsupported", errs.ErrUnsupported},
		{"context.Canceled", context.Canceled},
		{"context.DeadlineExceeded", context.DeadlineExceeded},
	}
}

// Describe makes an error fit for a report; nil for nil.
func Describe(err error) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Text: err.Error(), PE: -1}
	for _, c := range conditions() {
		if errors.Is(err, c.err) {
			f.Is = append(f.Is, c.name)
		}
	}
	if e, ok := errors.AsType[*errs.MismatchError](err); ok {
		f.PE, f.Field = e.PE, e.Field
	}
	if e, ok := errors.AsType[*errs.ClosedError](err); ok {
		f.PE = e.PE
	}
	if e, ok := errors.AsType[*errs.PeerLostError](err); ok {
		f.PE = e.PE
	}
	if e, ok := errors.AsType[*errs.TimeoutError](err); ok {
		f.Missing = e.Missing
	}
	return f
}
