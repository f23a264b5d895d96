package bootstrap

import (
	"context"
	"fmt"
)

// Member is one rank's end of a job's bootstrap: what the hub's in-process
// attachment (Hub.Local) and the one over a socket (Dial) both give, with one
// behaviour. All methods may be called from any goroutine.
type Member interface {
	// Rank and Size are this member's rank and the job's size.
	Rank() int
	Size() int

	// WaitJoined returns when all ranks have joined. At the hub's join deadline,
	// or at ctx's, the error is a *errs.TimeoutError that names the Missing ranks;
	// a rank lost before it ends with *errs.PeerLostError.
	WaitJoined(ctx context.Context) error

	// Peer describes a rank; false until WaitJoined could return nil.
	Peer(rank int) (Peer, bool)

	// Holder is the rank whose process holds the hub, or HolderLauncher.
	Holder() int

	// Gather is an allgather over group: ascending world ranks that contain this
	// one. It returns the members' blobs in group order; they are the caller's.
	//
	// Calls are matched by (tag, group) and the count of calls made with them: the
	// n-th call of one member meets the n-th of each other one. Calls with
	// different tags or groups are independent of each other. A tag is a name, not
	// a serial number: each one used is remembered until Close, or Forget.
	//
	// The hub decides the outcome once, alike for all members of the group: all
	// blobs; *errs.PeerLostError when one was lost; *errs.ClosedError when one
	// said goodbye; when one gave up because its ctx ended, *errs.TimeoutError
	// with the Missing ranks (deadline) or a *AbortedError (cancelled; the member
	// that gave up gets its ctx's error). A member that calls later for a gather
	// that was given up gets the same error (or the loss or goodbye of a member
	// since), and the next call meets the next calls. A ctx that ends as the
	// gather completes loses: the blobs are returned. A ctx that has ended before
	// the call, and bad arguments, count as no call.
	Gather(ctx context.Context, tag string, group []int, blob []byte) ([][]byte, error)

	// Forget drops the counts of calls whose tags begin with prefix. No member may
	// use such a tag again.
	Forget(prefix string)

	// Send passes a copy of blob to another member's OnEvent function. Messages of
	// one pair arrive in order, before the sender's goodbye or loss. Send never
	// waits for the receiver; when more than Window bytes are underway to it, the
	// error is errs.ErrWouldBlock and nothing was sent. A message to a rank that
	// has not joined yet is kept for it.
	Send(to int, blob []byte) error

	// Accuse tells the hub that a connection of this member to another one broke
	// which is not mended. Unless one of the two is found dead, the hub decides which
	// of them is lost, and tells all: perhaps this one. A member that accuses itself
	// gives up: it is lost, for that cause.
	Accuse(pe int, cause string) error

	// OnEvent sets the function that gets this member's events, in order and from
	// one goroutine; events that came before are kept for it. It must not call
	// Close of its own member. A later call replaces the function.
	OnEvent(fn func(Event))

	// Err is why calls fail: nil while the member works, *errs.PeerLostError{own
	// rank} once it was declared lost, *errs.PeerLostError{holder} or
	// *HubLostError once the hub is gone, *errs.ClosedError after Goodbye or Close.
	Err() error

	// Goodbye leaves the job in order: the others get EventGoodbye, the end of the
	// connection is no loss any more, own gathers and sends fail with
	// *errs.ClosedError. Events go on until Close.
	Goodbye() error

	// Close releases the attachment and waits for its goroutines. Without a
	// Goodbye before it, this member is lost to the others.
	Close() error
}

// HolderLauncher as the holder of a hub says that no rank holds it.
const HolderLauncher = -1

// Peer is what the hub knows of a rank since it joined.
type Peer struct {
	Rank   int
	PID    int    // of its process, as seen by processes with its HostID
	HostID string // identity of its host and namespaces, as it gave it
}

// EventKind says what an Event tells.
type EventKind uint8

// Kinds of events.
const (
	EventLost      EventKind = 1 + iota // PE is lost, for Cause; sticky, told once per PE. PE may be the member itself
	EventGoodbye                        // PE left in order
	EventMessage                        // Blob came from PE
	EventHubLost                        // the hub of a launcher is gone, for Cause: no call works any more
	EventHubClosed                      // the hub was closed in order: no call works any more
	EventJoined                         // PE joined; only a hub's events have it
)

func (k EventKind) String() string {
	switch k {
	case EventLost:
		return "lost"
	case EventGoodbye:
		return "goodbye"
	case EventMessage:
		return "message"
	case EventHubLost:
		return "hub lost"
	case EventHubClosed:
		return "hub closed"
	case EventJoined:
		return "joined"
	}
	return fmt.Sprintf("event kind %d", uint8(k))
}

// Event is what happened to a rank (PE; -1: to the hub).
type Event struct {
	Kind  EventKind
	PE    int
	Cause string
	Blob  []byte
}
