package device

import "goshmem/internal/errs"

// MaxParts is the most members of an Exchange.
const MaxParts = 32

// Exchange is what a PE does in an alltoallv: it tells every member where its bytes
// go, sends its own to everybody who has told it, and waits until all have come.
type Exchange struct {
	Parts   []Part // one a member, this PE among them
	State   uint64 // address of ExchangeState bytes of device memory, zero at first; of this stream alone
	Landing uint64 // room for a part's first bytes in mail, the same on every member; a multiple of 16
	Shared  bool   // PEs of others run on this device: their blocks may have to start while this one waits
	// As of Sum; the word at Failed gets an ExchangeFailed.
	Stop, Failed, Limit uint64
}

// Part is a member's part of an Exchange.
type Part struct {
	Src, N   uint64 // what goes to it
	Heap     uint64 // address here of its memory, which what it tells counts from
	At, Want uint64 // where its bytes go in this PE's memory, and how many come
	Mail     uint64 // address here of its MailBytes for this PE; 0: the part is this PE's own
	Box      uint64 // of this PE's MailBytes for it
}

// ExchangeState is the bytes of a stream's memory for its Exchanges.
const ExchangeState = 64

// MailBytes is the memory of each pair of members in one direction, zero at first: 64
// words, and two sets of a head and lines that are half flags.
func MailBytes(landing uint64) uint64 { return 8*64 + 2*(64+2*landing) }

// Landing is the room that a part has in mail of so many members: what is no larger
// comes there, in one trip, and what is larger gains nothing by it. All of it takes
// 1 MiB or a 32nd of the device heap at most, whichever is less, and 5 KiB a member at
// least.
func Landing(members int, heap uint64) uint64 {
	const most = 64 << 10
	room := min(1<<20, heap/32) / (4 * uint64(max(members, 1)))
	return max(min(room, most)&^1023, 1<<10)
}

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
