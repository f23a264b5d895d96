package ibrc

import (
	"context"
	"log/slog"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
)

// Provider is an RDMA device, or what stands for one: protection domain, one
// completion queue, queue pairs. All methods but Close are called under the
// proxy's role, by one goroutine at a time, and never block.
type Provider interface {
	// Describe names the device, port and address, and why they were chosen.
	Describe() channel.Description
	// Limits is constant.
	Limits() Limits
	// RegisterMemory registers a region of a local PE for local and remote access,
	// remote atomics included, without relaxed ordering.
	RegisterMemory(pe int, mem heap.Memory) (MR, error)
	// NewQP makes a queue pair in state INIT.
	NewQP(cfg QPConfig) (QP, error)
	// Poll fills in work completions and says how many. Where the provider is the
	// agent of incoming requests (Limits.Agent), it applies them here.
	Poll(wcs []WC) int
	// Close ends everything within ctx; queue pairs and registrations may be left.
	Close(ctx context.Context) error
}

// Flusher is a provider that gathers what Post takes; see channel.Receiver.
type Flusher interface{ Flush(now bool) bool }

// Agent is a provider that applies incoming requests in Poll: Received reports
// whether any came since the last call.
type Agent interface{ Received() bool }

// Waker is a provider that can tell when there is something to poll: after Arm
// it calls Env.Kick at the next arrival. pending: there is something already, and
// Kick will not be called.
type Waker interface{ Arm() (pending bool) }

// Forgetter is a provider that registers what Env.Buffer finds; see channel.Forgetter.
type Forgetter interface {
	Forget(base unsafe.Pointer) error
}

// Limits are what a provider can do.
type Limits struct {
	MaxMessage uint64 // bytes of one WRITE or READ
	Inline     uint32 // bytes of an inline WRITE
	SQDepth    int    // most work requests of one queue pair not yet known complete
	CQDepth    int    // of all queue pairs: most signalled ones
	RDAtomic   int    // most READs and atomics of one queue pair under way; 0: none can be done
	Send       uint32 // bytes of one SEND; 0: it has none

	// Agent: requests are applied by a CPU of the target's host, in Poll. Every AMO
	// is a work request then (OpAtomic), and sleepers are rung.
	Agent bool
	// Recv is how many SENDs may be on their way to one queue pair.
	Recv int
	// Confirm: a request is lost that comes before the peer's end is connected, so
	// each end tells the other when it is.
	Confirm bool
	// AnyMemory: local sides need no registration.
	AnyMemory bool
	// Batched: one completion may stand for many signalled work requests, and the
	// completion queue cannot overflow.
	Batched bool
}

// MR is a registered region of a local PE.
type MR interface {
	// LKey is what work requests name local memory in the region by.
	LKey() uint32
	// Key is what peers reach it by.
	Key() RemoteKey
	// Deregister returns once nothing outstanding uses it.
	Deregister() error
}

// RemoteKey reaches a region of another PE: offset off is at Addr+off.
type RemoteKey struct {
	Addr uint64
	Size uint64
	RKey uint32
}

// QPConfig is what a queue pair is made with.
type QPConfig struct {
	Tag    uint32 // comes back in its completions
	Local  int    // world rank of the PE whose it is
	Remote int    // and of the peer; may be the same
	Lane   uint32 // number of the pair's connection, the same at both ends
	Depth  int    // most work requests posted and not known complete
}

// State is a queue pair's, named as in verbs.
type State uint8

// The states.
const (
	StateInit State = 1 + iota
	StateRTR        // knows its peer, cannot send yet
	StateRTS
	StateError
)

func (s State) String() string {
	switch s {
	case StateInit:
		return "INIT"
	case StateRTR:
		return "RTR"
	case StateRTS:
		return "RTS"
	case StateError:
		return "ERR"
	}
	return "RESET"
}

// QP is one end of a reliable connection.
type QP interface {
	// Handle is what the peer's end needs to connect to this one: number, address,
	// keys; opaque to everybody else.
	Handle() []byte
	// Connect goes from INIT to RTS with the peer's handle; it is called again,
	// with the same handle, until it reports ready or an error. Both ends do so.
	Connect(handle []byte) (ready bool, err error)
	State() State
	// Post takes a chain, in one call of the device, and says how many it took; the
	// error is about the first that it did not. The chain fits in Depth: the caller
	// counts.
	Post(wrs []WR) (n int, err error)
	// Destroy ends it: afterwards it touches no memory and completes nothing.
	Destroy()
}

// Opcode of a work request.
type Opcode uint8

// The opcodes. Atomics need 8-byte alignment, OpAtomic that of its element.
const (
	OpWrite       Opcode = 1 + iota // Length bytes from Local to Remote
	OpRead                          // Length bytes from Remote to Local
	OpFetchAdd                      // 8 bytes at Remote += Operand; the old value goes to Local
	OpCompareSwap                   // 8 bytes at Remote = Operand if they are Compare; the same
	OpAtomic                        // AMO on an Elem at Remote, where Limits.Agent; the same
	OpSend                          // Length bytes from Local, taken when Post returns, to the peer's completion queue
)

func (o Opcode) String() string {
	if o >= OpWrite && o <= OpSend {
		return [...]string{"WRITE", "READ", "FETCH_AND_ADD", "COMPARE_SWAP", "ATOMIC", "SEND"}[o-OpWrite]
	}
	return "NOP"
}

// WRFlags of a work request.
type WRFlags uint8

// The flags.
const (
	// WRSignalled: its completion is wanted.
	WRSignalled WRFlags = 1 << iota
	// WRInline: Length is within Limits.Inline, and the bytes are taken when Post
	// returns. Without a Local they are the low bytes of Operand.
	WRInline
)

// WR is a work request. An atomic without a Local wants no old value; a device
// that cannot do without has a scratch word of its own.
type WR struct {
	Op      Opcode
	Flags   WRFlags
	AMO     channel.Op   // of OpAtomic
	Elem    channel.Elem // of OpAtomic
	Length  uint32
	LKey    uint32 // of Local, unless Limits.AnyMemory or inline
	RKey    uint32
	ID      uint64 // comes back in the completion; grows within a queue pair
	Local   unsafe.Pointer
	Remote  uint64
	Operand uint64
	Compare uint64
}

// WC is a work completion: the work request ID of a queue pair and all before
// it are complete, or ID failed with Err (often a *StatusError) and the queue
// pair is in error. With Msg it is a SEND that came in; the bytes are good until
// the next Poll.
type WC struct {
	Tag uint32
	ID  uint64
	Err error
	Msg []byte
}

// Env is what a provider gets to work with.
type Env struct {
	World uint32
	Size  int
	Local []int  // world ranks of this process
	Key   []byte // the job's secret; empty: none
	// Knock rings a local PE that may sleep, after a locked instruction on its
	// memory.
	Knock  func(pe int)
	Buffer func(at uintptr) (base unsafe.Pointer, size uint64) // see channel.Env; may be nil
	// Kick makes the proxy poll; see Waker. From any goroutine.
	Kick func()
	Log  *slog.Logger
}

// NewProvider makes a provider.
type NewProvider func(ctx context.Context, env Env) (Provider, error)
