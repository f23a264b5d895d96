package pe

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
)

// Context is an ordered lane to each PE of a team, with a signal space of its
// own. Lanes are unordered with each other. Any number of goroutines may use a
// context; operations are ordered where one call returned before the other
// began.
type Context struct {
	lanes  channel.Lanes // by team rank; nil until first used
	closed atomic.Bool
	freed  atomic.Bool // its slot is, or will be, another's
	pe     *PE
	team   *Team
	slot   int    // of the signal space
	id     uint32 // process-unique
	group  channel.Group
	parent *Context // whose lanes these are; nil: own

	mu     sync.Mutex
	expect []uint64 // consumed so far of the built-in words, [source*indices+index]

	_     [128]byte
	using atomic.Int64 // accesses to own words in progress
	fence atomic.Uint64
}

// Lane is the lane to a PE of the team; nil if there is no such PE or the lane
// was never used: ask LaneTo.
func (c *Context) Lane(pe int) *channel.Lane {
	if c != nil && uint(pe) < uint(len(c.lanes)) {
		return c.lanes[pe].Load()
	}
	return nil
}

// LaneTo is the lane to a PE of the team, made on first use. The error says that
// there is no such PE, or that the context takes no more operations.
func (c *Context) LaneTo(pe int) (*channel.Lane, error) {
	if c == nil || c.pe == nil {
		return nil, c.Refusal()
	}
	if uint(pe) >= uint(len(c.lanes)) {
		return nil, c.noPE(pe)
	}
	if l := c.lanes[pe].Load(); l != nil {
		return l, nil
	}
	if c.parent != nil {
		if c.freed.Load() {
			return nil, &errs.ClosedError{PE: c.pe.rank}
		}
		world := c.team.members[pe]
		l, err := c.parent.LaneTo(world)
		if err != nil {
			return nil, err
		}
		c.lanes[pe].Store(l)
		return l, nil
	}
	return c.connect(pe)
}

func (c *Context) noPE(pe int) error {
	return fmt.Errorf("pe %d of a team of %d: %w", pe, len(c.lanes), errs.ErrPeer)
}

func (c *Context) connect(pe int) (*channel.Lane, error) {
	w := c.pe.world
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lanes[pe].Load(); l != nil {
		return l, nil
	}
	peer := c.team.members[pe]
	path, _, err := w.pathTo(c.pe.rank, peer)
	if err != nil {
		return nil, err
	}
	l := channel.NewLane(channel.LaneConfig{
		Owner:     c.pe.rank,
		Peer:      peer,
		TeamPE:    pe,
		Ctx:       c.id,
		Slot:      uint32(c.slot),
		Path:      path,
		Table:     w.table,
		Bell:      w.bells[peer],
		OwnBell:   w.bells[c.pe.rank],
		Group:     &c.group,
		Inline:    path == pathDirect,
		Transport: w.transportOf(path),
		Window:    w.vals.Window,
		Backlog:   w.vals.Backlog,
	})
	// Who shuts lanes says so first and then looks for them under the same lock:
	// a loss or a close that misses the lane is seen here, before anybody gets it.
	if e := w.failed.Load(); e != nil {
		l.Shut(*e)
	}
	if err := w.lossOf(peer); err != nil {
		w.proxy.Lose(l, err)
	}
	if w.state[peer].flags.Load()&(peerGone|peerCut) == peerGone|peerCut {
		w.proxy.Lose(l, &errs.ClosedError{PE: peer})
	}
	if err := w.lossOf(c.pe.rank); err != nil {
		w.proxy.Lose(l, err)
	}
	if c.closed.Load() {
		l.Shut(&errs.ClosedError{PE: c.pe.rank})
	}
	c.lanes[pe].Store(l)
	return l, nil
}

// PE is whose context it is.
func (c *Context) PE() *PE { return c.pe }

// Team is the team it spans; PE numbers of operations are numbers in it.
func (c *Context) Team() *Team { return c.team }

// Rank is this PE's number in the team.
func (c *Context) Rank() int { return c.team.rank }

// Size is the number of PEs of the team.
func (c *Context) Size() int {
	if c == nil {
		return 0
	}
	return len(c.lanes)
}

// Group counts what is queued in the context's lanes.
func (c *Context) Group() *channel.Group {
	if c.parent != nil {
		return c.parent.Group()
	}
	return &c.group
}

// MemoryBarrier is a full barrier of this PE's loads and stores.
func (c *Context) MemoryBarrier() { c.fence.Add(1) }

// InlineMax is the size from which non-blocking operations are queued.
func (c *Context) InlineMax() int { return int(c.pe.world.vals.InlineMax) }

// Wait waits for cond; rma, amo and coll are written with it. polled says that
// the awaited word may be written by an agent that rings nobody, such as a plain
// put. from are the PEs of the team that it depends on; nil: all. The error is
// the bare cause; see counters.Waiter.
func (c *Context) Wait(ctx context.Context, polled bool, from []int, cond func() bool) error {
	return c.until(ctx, polled, cond, func() error {
		if from == nil {
			return c.pe.hopeless(c.team, nil)
		}
		ranks := make([]int, len(from))
		for i, pe := range from {
			ranks[i] = c.team.members[pe]
		}
		return c.pe.hopeless(c.team, ranks)
	})
}

// WaitOn is Wait for a word that one PE of the team changes.
func (c *Context) WaitOn(ctx context.Context, pe int, cond func() bool) error {
	return c.until(ctx, false, cond, func() error {
		return c.pe.hopeless(c.team, c.team.members[pe:pe+1])
	})
}

// WaitMembers is Wait in a collective call, which needs every member of the team:
// the loss of one ends it, acknowledged or not. A member that said goodbye may
// have done its part before: left, unless it is nil, is asked what that means for
// the wait; cond still wins over its error.
func (c *Context) WaitMembers(ctx context.Context, cond func() bool, left func(member int) error) error {
	return c.until(ctx, false, cond, func() error {
		if err := c.pe.hopeless(c.team, nil); err != nil {
			return err
		}
		w := c.pe.world
		if err := w.firstLost(c.team.members, nil); err != nil || left == nil {
			return err
		}
		for i, pe := range c.team.members {
			if pe != c.pe.rank && w.state[pe].flags.Load()&peerGone != 0 {
				if err := left(i); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// until is the waiter's Until while this PE's memory is there: a sleeper uses
// words of its header.
func (c *Context) until(ctx context.Context, polled bool, cond func() bool, fail func() error) error {
	if !c.Use() { // a sleeper uses words of this PE's header
		return c.Refusal()
	}
	defer c.Unuse()
	return c.pe.waiter.Until(ctx, polled, cond, fail)
}

// SpinTurns is how many turns a wait spins before it yields.
func (c *Context) SpinTurns() int { return c.pe.waiter.Policy.Turns }

// Rest gives the core away once, to the PEs that share it.
func (c *Context) Rest() { c.pe.waiter.Policy.Rest() }

// Busy reports whether the proxy may have work that a waiter should drive.
func (c *Context) Busy() bool { return c.pe.world.proxy.Busy() }

// Progress drives the proxy one step; it never blocks.
func (c *Context) Progress() bool { return c.pe.world.proxy.TryPoll() }

// Settle lets a caller that finds a few operations pending in a lane help to
// drain them, so that one queued operation does not push a steady stream into
// the ring for ever. It reports whether the lane is free for inline operations.
func (c *Context) Settle(l *channel.Lane) bool {
	const few, turns = 16, 64
	if !l.Config().Inline || l.Pending() > few {
		return false
	}
	for range turns {
		if l.Pending() == 0 {
			return l.Err() == nil
		}
		if !c.Progress() {
			break
		}
	}
	return l.Pending() == 0 && l.Err() == nil
}

// TrySubmit queues an operation of a lane; see channel.Proxy.TrySubmit.
func (c *Context) TrySubmit(l *channel.Lane, d *channel.Desc, ptr unsafe.Pointer) (channel.Ticket, error) {
	return c.pe.world.proxy.TrySubmit(l, d, ptr)
}

// Hand posts what is queued in a lane, if that needs nobody; see channel.Proxy.Hand.
func (c *Context) Hand(l *channel.Lane) { c.pe.world.proxy.Hand(l) }

// Submit is TrySubmit that waits for room, driving the proxy meanwhile.
func (c *Context) Submit(ctx context.Context, l *channel.Lane, d *channel.Desc, ptr unsafe.Pointer) (channel.Ticket, error) {
	t, err := c.TrySubmit(l, d, ptr)
	if err != errs.ErrWouldBlock {
		return t, err
	}
	// A condition may be asked again after it held: it submits once.
	werr := c.Wait(ctx, false, []int{}, func() bool {
		if err == errs.ErrWouldBlock {
			t, err = c.TrySubmit(l, d, ptr)
		}
		return err != errs.ErrWouldBlock
	})
	if werr != nil {
		return channel.Ticket{}, werr
	}
	return t, err
}

// BuiltinWord is the offset, in a target's runtime region, of the built-in word
// that this PE adds to.
func (c *Context) BuiltinWord(index int) (heap.Ref, error) {
	if c == nil || c.pe == nil {
		return heap.Ref{}, c.Refusal()
	}
	off, ok := c.pe.world.layout.SourceWord(c.slot, c.team.rank, index)
	if !ok {
		return heap.Ref{}, fmt.Errorf("built-in word %d: %w", index, errs.ErrRange)
	}
	return heap.MakeRef(c.pe.world.id, heap.RegionRuntime, off), nil
}

// OwnWord is this PE's built-in word that a PE of the team adds to.
func (c *Context) OwnWord(source, index int) (*atomic.Uint64, error) {
	if uint(source) >= uint(len(c.lanes)) {
		return nil, c.noPE(source)
	}
	off, ok := c.pe.world.layout.SourceWord(c.slot, source, index)
	if !ok {
		return nil, errs.ErrRange
	}
	return (*atomic.Uint64)(c.pe.world.table.Region(c.pe.rank, heap.RegionRuntime).At(off)), nil
}

// Expected is the consumed count of a built-in word of this PE; the caller holds
// Lock.
func (c *Context) Expected(source, index int) *uint64 { return &c.expect[source*indices+index] }

// Acknowledged reports whether a PE of the team is lost and its loss was
// acknowledged: a wait for all does not wait for it.
func (c *Context) Acknowledged(pe int) bool {
	world := c.team.members[pe]
	return c.pe.world.lossOf(world) != nil && c.pe.hasAcked(world)
}

// Lock guards Expected: two consuming waits of one context take turns.
func (c *Context) Lock() { c.mu.Lock() }

// Unlock ends Lock.
func (c *Context) Unlock() { c.mu.Unlock() }

// CheckLocal validates n bytes of this PE's own memory.
func (c *Context) CheckLocal(r heap.Ref, n uint64) error {
	return c.pe.world.table.Check(c.pe.rank, r, n)
}

// OwnSignal is the word of a signal in this PE's heap that only CPUs change; nil
// where that is not so, or the reference is none: SignalCells tells.
func (c *Context) OwnSignal(s heap.Signal) *atomic.Uint64 {
	r, o := s.Ref(), &c.pe.own
	off := r.Offset()
	if r.Key() != o.key || off%8 != 0 || off > o.size || o.size-off < heap.SignalSize || len(c.pe.world.remotes) > 0 || c.pe.world.gpu != nil {
		return nil
	}
	return (*atomic.Uint64)(unsafe.Add(o.base, off))
}

// SignalCells are the words of a signal of this PE: one where no adapter and no
// stream can change it.
func (c *Context) SignalCells(s heap.Signal) (heap.Cells, error) {
	r, w := s.Ref(), c.pe.world
	p, err := c.LocalWord(r, 8)
	if err == nil {
		err = c.CheckLocal(r, heap.SignalSize)
	}
	switch {
	case err != nil:
		return heap.Cells{}, err
	case len(w.remotes) == 0 && w.gpu == nil:
		return heap.OneCell((*atomic.Uint64)(p)), nil
	}
	return heap.CellsAt(p, c.StreamCells(r)), nil
}

// LocalWord is the address of an aligned word of this PE's own memory.
func (c *Context) LocalWord(r heap.Ref, size uint64) (unsafe.Pointer, error) {
	t := c.pe.world.table
	if err := t.Check(c.pe.rank, r, size); err != nil {
		return nil, err
	}
	if r.Offset()%size != 0 {
		return nil, errs.ErrAlign
	}
	if c.pe.closed.Load() {
		return nil, &errs.ClosedError{PE: c.pe.rank}
	}
	m := t.Region(c.pe.rank, r.Region())
	if m.Base == nil {
		return nil, fmt.Errorf("%v memory: %w", m.Kind, errs.ErrKind)
	}
	return m.At(r.Offset()), nil
}

// SignalWords is how many words of a signal of this PE a kernel must sum: one where
// only CPUs change it.
func (c *Context) SignalWords(sig heap.Ref) int {
	if c.StreamCells(sig) == 0 {
		return 1
	}
	return heap.SignalCells
}

// StreamCells is how many cells of a signal of this PE streams may have changed.
func (c *Context) StreamCells(sig heap.Ref) int {
	if c.pe.world.gpu == nil || sig.Region() != heap.RegionHeap {
		return 0
	}
	return heap.StreamCells
}

// contexts are this PE's contexts; the slice is never changed.
func (p *PE) contexts() []*Context { return *p.ctxs.Load() }

// Contexts lists this PE's contexts, the runtime's own included.
func (p *PE) Contexts() []*Context { return slices.Clone(p.contexts()) }

// Quiet waits until every earlier operation of every context of this PE is
// complete; a full memory barrier. The error is the first of a failed operation.
func (p *PE) Quiet(ctx context.Context) error {
	for _, c := range p.contexts() {
		if c.parent != nil {
			continue
		}
		if c.group.Pending() != 0 {
			if err := c.drain(ctx); err != nil {
				return &errs.OpError{Op: "pe: quiet", PE: -1, Size: -1, Err: err}
			}
		}
		if err := c.group.TakeFailure(); err != nil {
			return &errs.OpError{Op: "pe: quiet", PE: -1, Size: -1, Err: err}
		}
	}
	p.context.MemoryBarrier()
	return nil
}

// BarrierWord is the AMO word of the context's signal space that a barrier may
// count in, at any PE of the team; ReleaseWord the signal that ends it.
func (c *Context) BarrierWord() heap.Ptr[uint64] {
	off, _ := c.pe.world.layout.BarrierWord(c.slot) // the slot is one
	return heap.MakePtr[uint64](heap.MakeRef(c.pe.world.id, heap.RegionRuntime, off))
}

// ReleaseWord is the other half of BarrierWord.
func (c *Context) ReleaseWord() heap.Signal {
	off, _ := c.pe.world.layout.ReleaseWord(c.slot)
	return heap.MakeSignal(heap.MakeRef(c.pe.world.id, heap.RegionRuntime, off))
}

// eachLane calls f for every lane in use, while no lane is being made.
func (p *PE) eachLane(f func(*channel.Lane)) {
	for _, c := range p.contexts() {
		if c.parent == nil {
			c.eachLane(f)
		}
	}
}

func (c *Context) eachLane(f func(*channel.Lane)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.lanes {
		if l := c.lanes[i].Load(); l != nil {
			f(l)
		}
	}
}

// Use begins an access to this PE's own words through the context; Unuse ends
// it. Close waits for accesses to end before it unmaps; false: it has begun, or
// the context was freed.
func (c *Context) Use() bool {
	if c == nil || c.pe == nil {
		return false
	}
	c.using.Add(1)
	if c.pe.closed.Load() || c.freed.Load() {
		c.using.Add(-1)
		return false
	}
	return true
}

// Refusal says why Use was refused: ErrClosed, or ErrConfig where there is no
// context, nil or its zero value.
func (c *Context) Refusal() error {
	if c == nil || c.pe == nil {
		return fmt.Errorf("no context: %w", errs.ErrConfig)
	}
	return &errs.ClosedError{PE: c.pe.rank}
}

// Unuse ends what Use began.
func (c *Context) Unuse() { c.using.Add(-1) }
