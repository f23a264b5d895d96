package device

import "goshmem/internal/errs"

// MaxParts is the most members of an Exchange.
const MaxParts = 32

// Exchange is what a PE does in an alltoallv: it tells every member where its bytes
// go, sends its own to everybody who has told it, and waits until all have come.
type Exchange struct {
	Parts []Part // one a member, this PE among them
	State uint64 // address of ExchangeState bytes of device memory, zero at first; of this stream alone
	// As of Sum; the word at Failed gets an ExchangeFailed.
	Stop, Failed, Limit uint64
	// Address of a word that is set to a value at the end; 0: none.
	Passed, PassedValue uint64
}

// Part is a member's part of an Exchange.
type Part struct {
	Src, N   uint64 // what goes to it
	Heap     uint64 // address here of its memory, which what it tells counts from
	At, Want uint64 // where its bytes go in this PE's memory, and how many come
	Mail     uint64 // address here of its MailBytes for this PE; 0: the part is this PE's own
	Box      uint64 // of this PE's MailBytes for it
}

// Memory of an Exchange: of a stream; of each pair of members in one direction, zero
// at first.
const (
	ExchangeState = 8 * (2 + MaxParts)
	MailBytes     = 64 // at, want, n, the number of the call that they are of, that of the call whose bytes are here
)

// What goes wrong in an Exchange.
const (
	ExchangeEnded    = 1 // a wait, before its time
	ExchangeMismatch = 2 // another member and this one do not agree on how much goes between them; it does not go
)

// Check reports whether there is room for the parts.
func (x *Exchange) Check() error {
	if len(x.Parts) > MaxParts {
		return errs.ErrCapacity
	}
	return nil
}
