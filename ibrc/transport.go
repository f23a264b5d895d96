package ibrc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/deque"
	"goshmem/internal/errs"
)

// piece is the most bytes of one request, so that lanes take turns.
const piece = 1 << 20

// polled is the most work completions taken in one Poll.
const polled = 64

// Transport carries a world's requests over queue pairs. Everything but Deliver
// and Describe runs under the proxy's role.
type Transport struct {
	env  channel.Env
	p    Provider
	lim  Limits
	caps channel.Caps
	mrs  map[int]*[regions]MR // by local PE

	pairs map[pairKey]*pair
	byTag []*pair
	cq    int // work requests posted and not known complete, of all pairs
	chain [maxChain]WR
	marks [maxChain]mark
	wcs   [polled]WC

	connecting []*pair
	refusals   []refusal
	partial    []*pair // with a request of which not everything is posted
	dirty      []*pair // with completions to report
	owing      []*pair // with answers to send

	texts    [maxChain][messageSize]byte // of the messages of a chain
	numTexts int

	mu    sync.Mutex
	live  bool
	inbox []mail
	over  bool
}

// regions of a PE that peers reach: the heap and the runtime's.
const regions = 2

// New makes the factory of a transport over a provider.
func New(provider NewProvider) channel.Factory {
	return func(ctx context.Context, env channel.Env) (channel.Transport, error) {
		t := &Transport{env: env, pairs: map[pairKey]*pair{}, mrs: map[int]*[regions]MR{}}
		p, err := provider(ctx, Env{
			World: env.World, Size: env.Size, Local: env.Local, Key: env.Secret,
			Buffer: env.Buffer, Knock: env.Knock, Kick: env.Kick, Log: env.Log,
		})
		if err != nil {
			return nil, fmt.Errorf("ibrc: %w", err)
		}
		t.p, t.lim = p, p.Limits()
		if err := t.register(); err != nil {
			return nil, errors.Join(err, p.Close(ctx))
		}
		t.caps = channel.Caps{
			MaxMessage: min(piece, t.lim.MaxMessage), Kinds: hostKinds[:], RingsBells: t.lim.Agent,
		}
		if t.lim.AnyMemory { // a put that is taken has its WRITE posted, inline
			t.caps.Copies = uint64(t.lim.Inline)
		}
		return t, nil
	}
}

var hostKinds = [1]heap.Kind{heap.KindHost}

var (
	_ channel.Transport = (*Transport)(nil)
	_ channel.Receiver  = (*Transport)(nil)
)

// register makes the local PEs' memory reachable.
func (t *Transport) register() error {
	if t.lim.SQDepth < 1 || t.lim.CQDepth < 1 || t.lim.MaxMessage < 16 {
		return fmt.Errorf("ibrc: a provider with limits %+v: %w", t.lim, errs.ErrConfig)
	}
	for _, pe := range t.env.Local {
		t.mrs[pe] = &[regions]MR{}
		for r := range uint16(regions) {
			mem := t.env.Table.Region(pe, r)
			mr, err := t.p.RegisterMemory(pe, mem)
			if err != nil {
				return fmt.Errorf("ibrc: register %d B of pe %d: %w", mem.Size, pe, err)
			}
			t.mrs[pe][r] = mr
		}
	}
	return nil
}

// Describe tells of the provider.
func (t *Transport) Describe() channel.Description { return t.p.Describe() }

// Caps are made from the provider's limits.
func (t *Transport) Caps() channel.Caps { return t.caps }

// Register has nothing more to do for the regions of a world: they were
// registered when the transport was made, and keys travel with handles.
func (t *Transport) Register(_ context.Context, _ int, region uint16, mem heap.Memory) ([]byte, error) {
	if mem.Kind != heap.KindHost || region >= regions {
		return nil, fmt.Errorf("ibrc: register %v memory as region %d: %w", mem.Kind, region, errs.ErrKind)
	}
	return nil, nil
}

// Deregister leaves the regions to Close.
func (t *Transport) Deregister(context.Context, int, uint16) error { return nil }

// Map never lets the caller operate inline.
func (t *Transport) Map(int, uint16) (heap.Memory, bool) { return heap.Memory{}, false }

// Flush sends what was gathered.
func (t *Transport) Flush(now bool) bool {
	f, ok := t.p.(Flusher)
	return !ok || f.Flush(now)
}

// Received reports whether peers sent something.
func (t *Transport) Received() bool {
	a, ok := t.p.(Agent)
	return ok && a.Received()
}

// Arm lets the provider tell of the next arrival.
func (t *Transport) Arm() bool {
	w, ok := t.p.(Waker)
	return ok && !t.waiting() && !w.Arm()
}

// waiting reports whether there is something to do without an arrival.
func (t *Transport) waiting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range t.connecting {
		// Between two steps that need nobody, or one that nobody tells of.
		if q.peer != nil || !q.sent {
			return true
		}
	}
	return len(t.inbox)+len(t.dirty)+len(t.partial)+len(t.refusals) > 0
}

// Forget gives back what is registered of a buffer.
func (t *Transport) Forget(base unsafe.Pointer) error {
	if f, ok := t.p.(Forgetter); ok {
		return f.Forget(base)
	}
	return nil
}

// goLive makes the proxy poll.
func (t *Transport) goLive() {
	t.mu.Lock()
	first := !t.live && !t.over
	t.live = t.live || first
	t.mu.Unlock()
	if first {
		t.env.Live(true)
	}
}

// Close ends all queue pairs, then the registrations, then the provider.
func (t *Transport) Close(ctx context.Context) error {
	t.mu.Lock()
	was := t.live
	t.live, t.over = false, true
	t.mu.Unlock()
	if was {
		t.env.Live(false)
	}
	for _, q := range t.pairs {
		t.destroy(q)
	}
	var all []error
	for _, mrs := range t.mrs {
		for _, mr := range mrs {
			if mr != nil {
				all = append(all, mr.Deregister())
			}
		}
	}
	return errors.Join(append(all, t.p.Close(ctx))...)
}

// pairKey identifies a queue pair within the process.
type pairKey struct {
	local, remote int
	lane          uint32
}

// pair is one queue pair and what is under way in it.
type pair struct {
	pairKey
	tag  uint32
	qp   QP
	keys [regions]RemoteKey // the peer's
	peer []byte             // its handle; nil: not yet known

	sent bool // own handle
	told bool // the peer, that this end is connected
	// peerDone: the peer's end is connected.
	peerDone bool
	ready    bool
	failed   error
	cut      bool          // failed, and what became of the peer is not known
	refused  bool          // failed by the peer's word
	lane     *channel.Lane // whose requests these are; nil: used from the other side only

	reqs  deque.Deque[pending]
	built int    // of reqs, those whose work requests are all posted
	at    uint64 // work requests of the next one that are posted
	next  uint64 // ID of the next work request, from 1
	done  uint64 // all up to it are complete
	bare  int    // posted since the last signalled one

	amos    int      // messages sent and not answered
	answers []answer // to the peer's messages
	owing   bool     // is in Transport.owing

	reads    []uint64 // IDs of the latest READs and atomics, a ring
	numReads uint64

	isPartial, isDirty bool
	finished           int   // requests complete and not reported
	reported           error // why the next one failed
}

// pending is a request of a lane.
type pending struct {
	req  channel.Request
	wrs  uint64 // work requests that it makes
	last uint64 // ID of the last of them, once all are posted
}

func (t *Transport) newPair(k pairKey) (*pair, error) {
	q := &pair{pairKey: k, tag: uint32(len(t.byTag)), next: 1}
	qp, err := t.p.NewQP(QPConfig{Tag: q.tag, Local: k.local, Remote: k.remote, Lane: k.lane, Depth: t.lim.SQDepth})
	if err != nil {
		return nil, fmt.Errorf("ibrc: queue pair from pe %d to pe %d: %w", k.local, k.remote, err)
	}
	q.qp = qp
	q.reads = make([]uint64, min(t.lim.RDAtomic, t.lim.SQDepth))
	t.pairs[k] = q
	t.byTag = append(t.byTag, q)
	t.connecting = append(t.connecting, q)
	t.goLive()
	return q, nil
}

// destroy ends a queue pair and what it holds of the completion queue.
func (t *Transport) destroy(q *pair) {
	if q.failed == nil {
		q.failed = &errs.ClosedError{PE: -1}
	}
	q.qp.Destroy()
	t.release(q)
	q.ready = false
}

// release forgets the work requests under way.
func (t *Transport) release(q *pair) {
	t.cq -= int(q.next - 1 - q.done)
	q.done = q.next - 1
}
