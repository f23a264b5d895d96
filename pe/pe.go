package pe

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"goshmem/channel"
	"goshmem/counters"
	"goshmem/heap"
	"goshmem/internal/bootstrap"
	"goshmem/internal/errs"
	"goshmem/internal/futex"
	"goshmem/internal/spin"
)

// PE is one processing element: a rank of a world, as its own process or
// goroutines see it. Its methods may be called from any goroutine; collective
// ones must be called by every PE in the same order.
type PE struct {
	rank    int
	world   *World
	member  bootstrap.Member
	sleeper *futex.Sleeper
	waiter  counters.Waiter

	allocMu sync.Mutex // one collective allocation at a time

	heapMu sync.Mutex
	heaps  [heap.RegionDevice + 1]*heap.Allocator // by region; nil: users allocate nothing there

	acked    sync.Mutex
	ackedSet map[int]bool

	mu    sync.Mutex
	slots []bool // context slots in use
	ctxs  atomic.Pointer[[]*Context]

	team    *Team // world
	node    *Team
	context *Context // the default one
	coll    *Context // collectives of all teams share its lanes

	own struct { // this PE's heap, for OwnSignal
		base      unsafe.Pointer
		size, key uint64
	}

	closing atomic.Bool // Close began
	closed  atomic.Bool // no wait may go on
	gone    goodbyes
	once    sync.Once
	end     error
	failure error // why the PE's function ends; set within once
}

// Rank is this PE's number in the world, from 0.
func (p *PE) Rank() int { return p.rank }

// Size is the number of PEs in the world.
func (p *PE) Size() int { return p.world.size }

// World is what this process shares of the world.
func (p *PE) World() *World { return p.world }

// Team is the team of all PEs.
func (p *PE) Team() *Team { return p.team }

// NodeTeam is the team of the PEs on this PE's host.
func (p *PE) NodeTeam() *Team { return p.node }

// Context is the default context, over the world team.
func (p *PE) Context() *Context { return p.context }

// AddHook registers a progress hook: a non-blocking step function that runs
// under the proxy's role while armed. It must use Try forms only, of locks too
// (it may run within a call of a goroutine that holds one), and reports whether it
// moved anything.
func (p *PE) AddHook(step func() bool) *channel.Hook { return p.world.proxy.AddHook(step) }

// Heap tells the size of this PE's symmetric heap and how much of it is
// allocated, in bytes.
func (p *PE) Heap() (size, inUse int64) {
	p.heapMu.Lock()
	defer p.heapMu.Unlock()
	a := p.heaps[heap.RegionHeap]
	return a.Size(), a.InUse()
}

// DeviceHeap is Heap of this PE's symmetric device memory; 0: it has none.
func (p *PE) DeviceHeap() (size, inUse int64) {
	p.heapMu.Lock()
	defer p.heapMu.Unlock()
	if a := p.heaps[heap.RegionDevice]; a != nil {
		return a.Size(), a.InUse()
	}
	return 0, 0
}

func newPE(w *World, rank int, m bootstrap.Member, pol spin.Policy) (*PE, error) {
	a, err := heap.NewAllocator(w.layout.HeapSize())
	if err != nil {
		return nil, err
	}
	p := &PE{
		rank:     rank,
		world:    w,
		member:   m,
		ackedSet: map[int]bool{},
		slots:    make([]bool, w.layout.Contexts()),
		gone:     goodbyes{ch: make(chan struct{}, 1)},
	}
	p.heaps[heap.RegionHeap] = a
	if w.gpu != nil {
		if p.heaps[heap.RegionDevice], err = heap.NewAllocator(w.vals.DeviceHeap); err != nil {
			return nil, err
		}
	}
	p.ctxs.Store(&[]*Context{})
	armed, bell := headerWords(w.table.Region(rank, heap.RegionRuntime).Base)
	// Short sleeps, which waits for what rings nobody need, are the kernel's: the Go
	// runtime's take a millisecond where nothing else runs.
	p.sleeper = futex.NewSleeper(armed, bell, w.mem.shared || w.gpu != nil)
	w.bells[rank] = p.sleeper.Bell()
	p.waiter = counters.Waiter{
		Policy:   pol,
		Timeout:  w.vals.Timeout,
		Sleeper:  p.sleeper,
		Progress: w.proxy.TryPoll,
		Begin:    w.proxy.Begin,
		End:      w.proxy.End,
		Doze:     w.proxy.Doze,
		Epoch:    &w.epoch,
		// Streams, kernels and adapters ring nobody.
		Silent: w.silent,
	}
	return p, nil
}

// headerWords are the two words of a segment header that sleepers share.
func headerWords(base unsafe.Pointer) (armed, bell *uint32) {
	return (*uint32)(unsafe.Add(base, heap.HeaderArmed)), (*uint32)(unsafe.Add(base, heap.HeaderBell))
}

// LocalBytes is n bytes of this PE's own copy of a symmetric object.
func (p *PE) LocalBytes(ref heap.Ref, n int) ([]byte, error) {
	if n < 0 {
		return nil, p.errAt("pe: local bytes", ref, int64(n), errs.ErrRange)
	}
	if err := p.world.table.Check(p.rank, ref, uint64(n)); err != nil {
		return nil, p.errAt("pe: local bytes", ref, int64(n), err)
	}
	if p.closed.Load() {
		return nil, p.errAt("pe: local bytes", ref, int64(n), &errs.ClosedError{PE: p.rank})
	}
	m := p.world.table.Region(p.rank, ref.Region())
	if m.Base == nil {
		return nil, p.errAt("pe: local bytes", ref, int64(n), errs.ErrKind)
	}
	return unsafe.Slice((*byte)(m.At(ref.Offset())), n), nil
}

func (p *PE) errAt(op string, ref heap.Ref, size int64, err error) error {
	return &errs.OpError{Op: op, PE: -1, Size: max(size, -1), At: ref.String(), Err: err}
}

// gather is the bootstrap's allgather among the living of group, with this
// world's default deadline.
func (p *PE) gather(ctx context.Context, tag string, group []int, blob []byte) (ranks []int, blobs [][]byte, err error) {
	if ctx == nil {
		return nil, nil, errs.ErrNoContext
	}
	ranks, err = p.living(group)
	if err != nil {
		return nil, nil, err
	}
	if _, has := ctx.Deadline(); !has && p.world.vals.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.world.vals.Timeout)
		defer cancel()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.world.life, func() { cancel(context.Cause(p.world.life)) })()
	blobs, err = p.member.Gather(ctx, tag, ranks, blob)
	if err != nil {
		if e := p.world.failed.Load(); e != nil {
			return nil, nil, *e
		}
		return nil, nil, p.world.told(err)
	}
	return ranks, blobs, nil
}

// goodbyes lets Close wait until everybody has left.
type goodbyes struct {
	ch   chan struct{}
	deaf atomic.Bool // the hub is gone: no goodbye will come any more
}

func (g *goodbyes) note() {
	select {
	case g.ch <- struct{}{}:
	default:
	}
}

func (g *goodbyes) wait(ctx context.Context, done func() bool) {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for !done() {
		select {
		case <-g.ch:
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}
