package channel

import (
	"context"
	"log/slog"
	"unsafe"

	"goshmem/heap"
)

// Env is what a world gives a transport to work with.
type Env struct {
	World  uint32      // identity that references carry
	Size   int         // PEs of the world
	Local  []int       // ranks of this process
	Layout heap.Layout // of every PE's segment
	Table  *heap.Table // addresses and sizes of every PE's regions
	Peers  []PeerInfo
	// Send passes a message to another PE's transport, by the bootstrap: for
	// handles, not for data. It arrives at Deliver, in order per pair.
	Send func(from, to int, msg []byte) error
	// Lost reports a peer that the transport does not reach any more. Whether it is
	// lost or has left is decided behind it, and ends with Abort; until then the
	// transport need not fail what is pending.
	Lost func(pe int, err error)
	// Buffer finds the memory off the Go heap, of this process alone, that an address
	// is in; nil: it is in none. What is registered of it is to be given back by Forget.
	Buffer func(at uintptr) (base unsafe.Pointer, size uint64)
	// Knock rings a PE that may sleep, where its bell can be reached from here,
	// after the transport changed its memory by a locked instruction.
	Knock func(pe int)
	// Live says from when on, and until when, peers' requests may come in: see
	// Receiver. Kick makes somebody poll soon. From any goroutine.
	Live func(on bool)
	Kick func()
	// Secret is the job's, which both ends of a connection prove to know; empty:
	// there is none.
	Secret []byte
	Log    *slog.Logger
}

// Factory makes the transport to PEs that this process may not reach through
// mappings.
type Factory func(ctx context.Context, env Env) (Transport, error)

// PeerInfo is how one PE of the world is reached from here, and why.
type PeerInfo struct {
	PE   int
	PID  int
	Host string // identity: boot id and namespaces
	Node int    // number of its node, counted by the lowest rank on it
	Path string // "direct", "proxy", …
	Why  string
}
