package channel

import (
	"context"
	"unsafe"

	"goshmem/heap"
)

// Request is a descriptor on its way to a transport: one piece of one operation,
// no longer than the transport's largest message.
type Request struct {
	Desc
	// Local is the local side where the descriptor has FlagLocalPtr: Size bytes
	// (for strided forms what the strides span) that stay reachable until the
	// request completes. Otherwise the local side is (SrcRegion, SrcOff) of the
	// lane's owner.
	Local unsafe.Pointer
	// Whole is the bytes of the put or get (or of the batch's item) that this is
	// a piece of: the fastest way to copy depends on it.
	Whole uint64
}

// Completion says that the N oldest outstanding requests of a lane are complete
// at their target, or that the oldest failed (N = 1, Err set).
type Completion struct {
	Lane *Lane
	N    int
	Err  error
}

// Caps is what a transport can do; the proxy does the rest.
type Caps struct {
	// Synchronous transports have carried a request out when Post returns; they
	// report no completions.
	Synchronous bool
	// MaxMessage is the most bytes of one request; longer operations are split
	// and signalled once, on the last piece. 0: no limit.
	MaxMessage uint64
	// Window is the most requests outstanding in one lane; 0: the option's.
	Window int
	// Copies is the most bytes of a put whose source is reusable once it is posted.
	Copies uint64
	// Kinds are the memory kinds it reads and writes.
	Kinds []heap.Kind
	// RingsBells tells whether its agent rings the target's bell. One that does
	// not (a NIC, a stream) makes the target's sleepers poll.
	RingsBells bool
	// Prompt tells that who queues a signal, or what he waits for, in an idle lane
	// posts it himself: another core would begin later than it takes.
	Prompt bool
}

// Description is what `goshmem info` prints of a transport.
type Description struct {
	Name   string   // "nvlink", "ibrc"
	Detail string   // provider, device, port
	Notes  []string // choices and what was rejected, with the reason
}

// Transport carries requests to peers: what nvlink and ibrc implement. Post,
// Poll, Connect and Abort are called under the proxy's role, by one goroutine at
// a time, and never block; the others may be called by anybody.
type Transport interface {
	// Describe names the transport and its choices.
	Describe() Description
	// Caps is constant after construction.
	Caps() Caps

	// Register makes a region of the local PE usable and returns what peers need
	// to reach it (an rkey, an IPC handle), opaque to everybody else. Deregister
	// returns once nothing outstanding uses it.
	Register(ctx context.Context, pe int, region uint16, mem heap.Memory) (key []byte, err error)
	Deregister(ctx context.Context, pe int, region uint16) error

	// Map gives the address at which this process reaches a region of a peer by
	// load and store, if it can: the caller then operates inline.
	Map(pe int, region uint16) (heap.Memory, bool)

	// Connect begins, or continues, to connect a lane; it is called again until
	// it reports ready or an error. Handles travel by the exchange given at
	// construction, and arrive at Deliver, in any order and from either side.
	Connect(l *Lane) (ready bool, err error)
	// local is the PE of this process that the message is for.
	Deliver(local, from int, msg []byte) error

	// Post hands over requests of one lane, in order, and says how many it took:
	// fewer than offered means "later", and is no error. The error is about
	// request n, which is not taken; the lane goes on unless the transport
	// reports it lost.
	Post(l *Lane, reqs []Request) (n int, err error)
	// Poll fills in completions, in order within each lane.
	Poll(out []Completion) (n int)
	// Abort gives a lane up: afterwards the transport touches no memory for it
	// and reports nothing of it.
	Abort(l *Lane)

	// Close ends everything within ctx and releases what Register took.
	Close(ctx context.Context) error
}

// Forgetter is a transport that registers what Env.Buffer finds. Forget, under the
// proxy's role, deregisters the memory at base, which nothing outstanding uses.
type Forgetter interface {
	Forget(base unsafe.Pointer) error
}

// Receiver is a transport that carries out peers' requests in Poll, as their
// agent. While it is live (see Env.Live) it is polled though nothing is queued.
type Receiver interface {
	// Flush sends what Post gathered; unless now, only if that is worth a system
	// call. It reports whether nothing is left to flush.
	Flush(now bool) bool
	// Received reports whether anything came in since the last call.
	Received() bool
	// Arm makes the next arrival call Env.Kick, once; nobody polls meanwhile. false:
	// it cannot, or there is something to poll already.
	Arm() bool
}

// BatchItem is one descriptor of a batch: like Request, chosen by the caller.
// OpBatch points to a slice of them.
type BatchItem struct {
	Dst  heap.Ref
	Src  []byte
	From heap.Ref // if valid, the source is N bytes of the lane's owner there, not Src
	N    uint64
}

// Len is the item's size in bytes.
func (b *BatchItem) Len() uint64 {
	if b.From.Valid() {
		return b.N
	}
	return uint64(len(b.Src))
}
