package channel

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/futex"
	"goshmem/internal/spin"
)

// fake is an asynchronous transport that is slow on purpose: it takes only some
// of what is offered, completes late and in bits, and fails when told to. It
// writes puts into the target's region when they complete.
type fake struct {
	rng       *rand.Rand
	table     *heap.Table
	caps      Caps
	connectIn int // Connect calls until ready
	pending   map[*Lane][]Request
	stalled   map[int]bool // peers that take nothing and complete nothing
	failAt    func(r *Request) error
	doneErr   func(r *Request) error
	aborted   map[*Lane]int
	posts     int
	busy      atomic.Int32 // Post, Poll, Connect and Abort exclude each other
	overlap   atomic.Bool
}

func newFake(table *heap.Table, seed uint64) *fake {
	return &fake{
		rng: rand.New(rand.NewPCG(seed, 1)), table: table,
		pending: map[*Lane][]Request{}, stalled: map[int]bool{}, aborted: map[*Lane]int{},
	}
}

func (f *fake) enter() func() {
	if f.busy.Add(1) != 1 {
		f.overlap.Store(true)
	}
	return func() { f.busy.Add(-1) }
}

func (f *fake) Describe() Description { return Description{Name: "fake"} }
func (f *fake) Caps() Caps            { return f.caps }
func (f *fake) Register(context.Context, int, uint16, heap.Memory) ([]byte, error) {
	return nil, nil
}
func (f *fake) Deregister(context.Context, int, uint16) error { return nil }
func (f *fake) Map(int, uint16) (heap.Memory, bool)           { return heap.Memory{}, false }
func (f *fake) Deliver(int, int, []byte) error                { return nil }
func (f *fake) Close(context.Context) error                   { return nil }

func (f *fake) Connect(*Lane) (bool, error) {
	defer f.enter()()
	f.connectIn--
	return f.connectIn < 0, nil
}

func (f *fake) Post(l *Lane, reqs []Request) (int, error) {
	defer f.enter()()
	f.posts++
	if f.stalled[l.Config().Peer] {
		return 0, nil
	}
	n := 1 + f.rng.IntN(len(reqs))
	for i := range n {
		if f.failAt != nil {
			if err := f.failAt(&reqs[i]); err != nil {
				return i, err
			}
		}
		f.pending[l] = append(f.pending[l], reqs[i])
	}
	return n, nil
}

func (f *fake) Poll(out []Completion) int {
	defer f.enter()()
	n := 0
	for l, reqs := range f.pending {
		if n == len(out) || len(reqs) == 0 || f.stalled[l.Config().Peer] || f.rng.IntN(3) == 0 {
			continue
		}
		k := 1 + f.rng.IntN(len(reqs))
		for i := range k {
			if f.doneErr != nil {
				if err := f.doneErr(&reqs[i]); err != nil {
					if i == 0 {
						k = 1
						out[n] = Completion{Lane: l, N: 1, Err: err}
					} else {
						k = i
						out[n] = Completion{Lane: l, N: i}
					}
					break
				}
			}
			f.carry(l, &reqs[i])
			out[n] = Completion{Lane: l, N: i + 1}
		}
		f.pending[l] = reqs[k:]
		n++
	}
	return n
}

func (f *fake) carry(l *Lane, r *Request) {
	m := f.table.Region(l.Config().Peer, heap.RegionHeap)
	switch r.Op {
	case OpPut:
		copy(unsafe.Slice((*byte)(m.At(r.DstOff)), r.Size), unsafe.Slice((*byte)(r.Local), r.Size))
	case OpGet:
		copy(unsafe.Slice((*byte)(r.Local), r.Size), unsafe.Slice((*byte)(m.At(r.SrcOff)), r.Size))
	}
	if r.SigOp != SigNone {
		ApplySignal(m.At(r.SigOff), r.SigOp, r.SigVal)
	}
}

func (f *fake) Abort(l *Lane) {
	defer f.enter()()
	f.aborted[l]++
	delete(f.pending, l)
}

// rig is a proxy with lanes to some peers over a fake.
type rig struct {
	t     *testing.T
	p     *Proxy
	f     *fake
	table *heap.Table
	mem   [][]byte
	lanes Lanes
	group Group
	bell  *futex.Bell
}

const rigHeap = 1 << 16

func newRig(t *testing.T, peers, capacity, window, backlog int, seed uint64) *rig {
	r := &rig{t: t, table: heap.NewTable(7, peers, 2), lanes: make(Lanes, peers)}
	for i := range peers {
		buf := make([]uint64, rigHeap/8)
		b := unsafe.Slice((*byte)(unsafe.Pointer(&buf[0])), rigHeap)
		r.mem = append(r.mem, b)
		r.table.Set(i, heap.RegionHeap, heap.Memory{Base: unsafe.Pointer(&buf[0]), Size: rigHeap})
	}
	r.f = newFake(r.table, seed)
	pol := spin.Policy{Turns: 8, InProcess: true, SleepAfter: 200 * time.Microsecond}
	p, err := NewProxy(ProxyConfig{RingCapacity: capacity, Policy: pol})
	require.NoError(t, err)
	r.p = p
	p.AddTransport(r.f)
	words := new([2]uint32)
	r.bell = futex.NewSleeper(&words[0], &words[1], false).Bell()
	id := p.AttachContext(r.lanes)
	for i := range peers {
		r.lanes[i].Store(NewLane(LaneConfig{
			Peer: i, TeamPE: i, Ctx: id, Path: "fake", Table: r.table, Bell: r.bell, OwnBell: r.bell,
			Group: &r.group, Transport: r.f, Window: window, Backlog: backlog,
		}))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		for i := range r.lanes {
			p.Lose(r.lanes[i].Load(), &errs.ClosedError{PE: -1})
		}
		require.NoError(t, p.Drain(ctx))
		require.NoError(t, p.Close(ctx))
		require.False(t, r.f.overlap.Load(), "transport entered twice at once")
	})
	return r
}

// submit queues and waits for room, as a caller does.
func (r *rig) submit(peer int, d Desc, ptr unsafe.Pointer) Ticket {
	for {
		tk, err := r.p.TrySubmit(r.lanes[peer].Load(), &d, ptr)
		if err == nil {
			return tk
		}
		if !r.p.TryPoll() {
			time.Sleep(time.Microsecond)
		}
	}
}

func (r *rig) wait(done func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !done() {
		r.p.TryPoll()
		if time.Now().After(deadline) {
			r.t.Fatal("nothing happens")
		}
		time.Sleep(time.Microsecond)
	}
}

// await waits for what comes without this goroutine's help.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func put(off uint64, src []byte) (Desc, unsafe.Pointer) {
	return Desc{Op: OpPut, Flags: FlagLocalPtr, DstOff: off, Size: uint64(len(src))}, unsafe.Pointer(unsafe.SliceData(src))
}
