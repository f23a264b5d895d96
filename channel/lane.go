package channel

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"goshmem/heap"
	"goshmem/internal/deque"
	"goshmem/internal/errs"
	"goshmem/internal/futex"
)

// The gate of a lane is zero while its caller may operate inline. Its low half
// counts operations queued and not yet acked; the flags say why it is shut.
const (
	gateClosed uint64 = 1 << 63 // Close began
	gateLost   uint64 = 1 << 62 // the peer is lost
	gateQueued uint64 = 1 << 61 // the path goes through the ring, always
	gateCount  uint64 = 1<<32 - 1
)

// Lane is the ordered way from one context to one peer. Its counters are what
// the contract calls issued (In plus queued), posted and acked (Out plus acked).
//
// The inline half is a caller that may reach the peer's memory by load and
// store: Enter, Addr, the operation, Leave. The queued half goes through the
// ring to the proxy. An inline operation starts only when no queued one is
// pending, so the two together keep the lane's order.
type Lane struct {
	base unsafe.Pointer // the peer's heap region, as mapped here; nil: not mapped
	size uint64
	key  uint64 // heap.Ref.Key of that region

	rtBase unsafe.Pointer // the peer's runtime region
	rtSize uint64

	bell *futex.Bell // the peer's; nil where only its own agents ring it

	gathers Receiver // the transport, if it is one
	prompt  bool     // Caps.Prompt
	copies  uint64   // bytes of a put that it copies
	cfg     LaneConfig

	_    [128]byte
	gate atomic.Uint64

	_   [120]byte
	in  atomic.Uint64 // inline operations begun
	out atomic.Uint64 // and finished

	_        [112]byte
	issued   atomic.Uint64 // queued operations counted by their producers
	acked    atomic.Uint64 // of these, complete (failed ones included)
	ackedPos atomic.Uint64 // ring position of the latest of the contiguous frontier

	// Under the proxy's role.
	_       [104]byte
	active  bool
	ready   bool // connected
	queue   deque.Deque[entry]
	cur     cursor
	flight  deque.Deque[flight]
	state   any           // the transport's
	caps    Caps          // the transport's, once ready
	posted  atomic.Uint64 // requests handed to the transport
	copied  atomic.Uint64 // ring position of the latest operation handed over whole
	dead    atomic.Pointer[error]
	gone    atomic.Pointer[error] // the peer left: it will not connect any more
	aborted bool

	errMu  sync.Mutex
	errs   map[uint64]error // by ring position; bounded
	errPos []uint64         // its keys, oldest first
}

// LaneConfig is what pe knows of a lane.
type LaneConfig struct {
	Owner   int    // world rank of the PE whose lane it is
	Peer    int    // world rank of the peer
	TeamPE  int    // the peer's number in the context's team
	Ctx     uint32 // process-unique number of the context
	Slot    uint32 // the context's signal space: the same number at both ends
	Path    string // "direct", "proxy", …: for errors and info
	Table   *heap.Table
	Bell    *futex.Bell // the peer's bell; nil: not reachable from here
	OwnBell *futex.Bell // the owner's: rung when queued operations complete
	Group   *Group      // the context's
	// Inline says that same-host memory operations are the caller's own.
	Inline    bool
	Transport Transport
	Window    int // most requests outstanding at the transport
	Backlog   int // most operations pending in the lane
}

// Group is what the lanes of a context count together.
type Group struct {
	pending atomic.Int64          // queued and not acked, over all lanes
	_       [120]byte             // pending is written by the proxy
	failure atomic.Pointer[error] // first failure since the last Quiet
}

// Pending is the number of queued operations not yet complete.
func (g *Group) Pending() int64 { return g.pending.Load() }

// TakeFailure returns the first failure since the last call, and forgets it.
func (g *Group) TakeFailure() error {
	if g.failure.Load() == nil {
		return nil
	}
	if e := g.failure.Swap(nil); e != nil {
		return *e
	}
	return nil
}

// NewLane makes a lane. The peer's heap is mapped where the table has a base for it.
func NewLane(cfg LaneConfig) *Lane {
	l := &Lane{cfg: cfg, bell: cfg.Bell}
	m := cfg.Table.Region(cfg.Peer, heap.RegionHeap)
	l.base, l.size = m.Base, m.Size
	rt := cfg.Table.Region(cfg.Peer, heap.RegionRuntime)
	l.rtBase, l.rtSize = rt.Base, rt.Size
	if cfg.Transport != nil {
		caps := cfg.Transport.Caps()
		l.copies, l.prompt = caps.Copies, caps.Prompt
	}
	l.gathers, _ = cfg.Transport.(Receiver)
	l.key = heap.MakeRef(cfg.Table.World, heap.RegionHeap, 0).Key()
	if !cfg.Inline || m.Base == nil {
		l.gate.Store(gateQueued)
	}
	return l
}

// Enter begins an inline operation: it counts itself in and reports whether it
// may go on; then Leave must follow. A full memory barrier either way.
func (l *Lane) Enter() bool {
	l.in.Add(1)
	if l.gate.Load() == 0 {
		return true
	}
	l.in.Add(^uint64(0))
	return false
}

// Undo takes an Enter back, for an operation that turns out to be refused: it
// was never begun and is not counted.
func (l *Lane) Undo() { l.in.Add(^uint64(0)) }

// Leave ends an inline operation. A full memory barrier.
func (l *Lane) Leave() { l.out.Add(1) }

// Addr is the address here of n bytes of the peer's memory, or nil if the
// reference is not one of this world's, or not in range.
func (l *Lane) Addr(r heap.Ref, n uint64) unsafe.Pointer {
	if off := r.Offset(); r.Key() == l.key && off <= l.size && n <= l.size-off {
		return unsafe.Add(l.base, off)
	}
	return l.addrRuntime(r, n)
}

// addrRuntime is Addr in the runtime's region: built-in signals, barrier words.
func (l *Lane) addrRuntime(r heap.Ref, n uint64) unsafe.Pointer {
	off := r.Offset()
	if r.Key() != l.key|uint64(heap.RegionRuntime) || off > l.rtSize || n > l.rtSize-off {
		return nil
	}
	return unsafe.Add(l.rtBase, off)
}

// Mapped is the address of a checked reference in any region that this process
// maps; nil otherwise.
func (l *Lane) Mapped(r heap.Ref) unsafe.Pointer {
	m := l.cfg.Table.Region(l.cfg.Peer, r.Region())
	if m.Base == nil {
		return nil
	}
	return m.At(r.Offset())
}

// Check validates n bytes at r on the peer, and that the lane's transport reaches
// memory of that kind.
func (l *Lane) Check(r heap.Ref, n uint64) error {
	if err := l.cfg.Table.Check(l.cfg.Peer, r, n); err != nil || r.Region() != heap.RegionDevice {
		return err
	}
	return l.Takes(heap.KindCUDA)
}

// Takes is nil if the lane's transport reaches memory of a kind, else ErrKind.
func (l *Lane) Takes(k heap.Kind) error {
	if slices.Contains(l.cfg.Transport.Caps().Kinds, k) {
		return nil
	}
	return fmt.Errorf("%v memory on the path %s: %w", k, l.cfg.Path, errs.ErrKind)
}

// Local is the address of a checked reference in the owner's own memory; nil where
// the CPU cannot reach it.
func (l *Lane) Local(r heap.Ref) unsafe.Pointer {
	m := l.cfg.Table.Region(l.cfg.Owner, r.Region())
	if m.Base == nil {
		return nil
	}
	return m.At(r.Offset())
}

// LocalAddr is the address of a checked local side given as (region, offset).
func (l *Lane) LocalAddr(region uint16, off uint64) unsafe.Pointer {
	return l.cfg.Table.Region(l.cfg.Owner, region).At(off)
}

// Knock rings the peer if it may sleep; after a locked instruction that followed
// the change.
func (l *Lane) Knock() {
	if l.bell.Armed().Load() != 0 {
		l.bell.Ring()
	}
}

// State is what the lane's transport keeps with it, by SetState. Under the
// proxy's role.
func (l *Lane) State() any { return l.state }

// SetState is the other half of State.
func (l *Lane) SetState(s any) { l.state = s }

// Config is what the lane was made with.
func (l *Lane) Config() *LaneConfig { return &l.cfg }

// Pending is the number of queued operations not yet complete.
func (l *Lane) Pending() int { return int(l.gate.Load() & gateCount) }

// Issued counts the operations begun in this lane.
func (l *Lane) Issued() uint64 { return l.in.Load() + l.issued.Load() }

// Posted counts the requests handed to an executing agent, inline ones included.
func (l *Lane) Posted() uint64 { return l.in.Load() + l.posted.Load() }

// Acked counts the operations complete at the target: a contiguous frontier,
// since inline operations are numbered as they end and never overtake queued
// ones. It passes over failed operations.
func (l *Lane) Acked() uint64 { return l.out.Load() + l.acked.Load() }

// LastQueued counts the operations queued so far; QueuedAcked those of them that
// are complete, in order.
func (l *Lane) LastQueued() uint64 { return l.issued.Load() }

// QueuedAcked is the other half of LastQueued.
func (l *Lane) QueuedAcked() uint64 { return l.acked.Load() }

// InlineIdle reports whether no inline operation is in progress.
func (l *Lane) InlineIdle() bool { return l.in.Load() == l.out.Load() }

// Err says why the lane takes no more operations; nil if it does.
func (l *Lane) Err() error {
	g := l.gate.Load()
	if g&(gateClosed|gateLost) == 0 {
		return nil
	}
	if e := l.dead.Load(); e != nil {
		return *e
	}
	return &errs.ClosedError{PE: -1}
}

// PeerGone says that the peer left in good order: a lane that is connected goes on
// to its memory, one that is not never will, and fails with err.
func (l *Lane) PeerGone(err error) { l.gone.CompareAndSwap(nil, &err) }

// Shut refuses new operations with err from now on; queued ones go on.
func (l *Lane) Shut(err error) { l.shut(gateClosed, err) }

func (l *Lane) shut(flag uint64, err error) {
	l.dead.CompareAndSwap(nil, &err) // the first reason stays
	l.gate.Or(flag)
}

// setErr records the failure of the operation at a ring position.
func (l *Lane) setErr(pos uint64, err error) {
	const most = 4096
	l.errMu.Lock()
	if l.errs == nil {
		l.errs = make(map[uint64]error)
	}
	if _, dup := l.errs[pos]; !dup {
		if len(l.errPos) == most {
			delete(l.errs, l.errPos[0])
			l.errPos = l.errPos[1:]
		}
		l.errs[pos] = err
		l.errPos = append(l.errPos, pos)
	}
	l.errMu.Unlock()
	l.cfg.Group.failure.CompareAndSwap(nil, &err)
}

func (l *Lane) errAt(pos uint64) error {
	l.errMu.Lock()
	defer l.errMu.Unlock()
	return l.errs[pos]
}

// ack publishes the completion of k operations, the last of them at ring
// position pos, and wakes whoever sleeps for it.
func (l *Lane) ack(k int, pos uint64) {
	l.ackedPos.Store(pos)
	l.acked.Add(uint64(k))
	l.gate.Add(^uint64(k - 1))
	l.cfg.Group.pending.Add(int64(-k))
	l.cfg.OwnBell.Check()
}

// Copies is the most bytes of a put whose source is reusable once it is posted.
func (l *Lane) Copies() uint64 { return l.copies }
