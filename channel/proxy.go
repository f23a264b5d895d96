package channel

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"goshmem/internal/spin"
)

// Proxy consumes the ring and drives the transports: one per process, shared by
// its PEs. It is a role under a try-lock, not a thread: a caller that waits takes
// it and polls, a background goroutine takes it when nobody waits. Whoever holds
// the role never blocks: a peer that cannot take more is set aside in its lane's
// queue while the others go on.
type Proxy struct {
	ring   *Ring
	policy spin.Policy

	mu         sync.Mutex // guards changes of what follows; readers take a copy
	transports atomic.Pointer[[]Transport]
	hooks      atomic.Pointer[[]*Hook]
	ctxs       atomic.Pointer[[]Lanes]

	_        [line]byte
	role     atomic.Uint32
	_        [line - 4]byte
	work     atomic.Int64 // lanes with something queued or in flight, plus armed hooks
	live     atomic.Int32 // transports that peers' requests may come in by
	waiters  atomic.Int32 // callers that poll; the background stays away
	parked   atomic.Uint32
	closed   atomic.Bool
	gathered atomic.Bool   // a producer left something to flush
	asleep   atomic.Bool   // the background sleeps until an arrival wakes it
	polls    atomic.Uint64 // turns of callers, not of the background
	_        [line - 40]byte

	// Under the role.
	active  []*Lane
	reqs    [maxBatch]Request
	cursors [maxBatch]cursor
	lasts   [maxBatch]bool
	comps   [maxBatch]Completion

	wake chan struct{}
	done chan struct{}
}

// States of the role.
const (
	roleFree uint32 = iota
	roleHeld
	roleOver // the proxy is closed
)

// maxBatch is the most requests posted, or completions taken, in one call.
const maxBatch = 32

// Lanes are the lanes of one context, by the peer's number in its team; a lane
// not yet used is nil.
type Lanes []atomic.Pointer[Lane]

// ProxyConfig is how a proxy is made.
type ProxyConfig struct {
	RingCapacity int
	Policy       spin.Policy // of the background goroutine
}

// NewProxy makes a proxy and starts its background goroutine, which Close ends.
func NewProxy(cfg ProxyConfig) (*Proxy, error) {
	r, err := NewRing(cfg.RingCapacity)
	if err != nil {
		return nil, err
	}
	p := &Proxy{ring: r, policy: cfg.Policy, wake: make(chan struct{}, 1), done: make(chan struct{})}
	p.transports.Store(&[]Transport{})
	p.hooks.Store(&[]*Hook{})
	p.ctxs.Store(&[]Lanes{nil}) // context numbers start at 1
	go p.background()
	return p, nil
}

// AddTransport makes the proxy poll t.
func (p *Proxy) AddTransport(t Transport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ts := append(append([]Transport(nil), *p.transports.Load()...), t)
	p.transports.Store(&ts)
}

// AttachContext gives a context its process-unique number.
func (p *Proxy) AttachContext(lanes Lanes) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := append([]Lanes(nil), *p.ctxs.Load()...)
	for i := 1; i < len(all); i++ {
		if all[i] == nil {
			all[i] = lanes
			p.ctxs.Store(&all)
			return uint32(i)
		}
	}
	all = append(all, lanes)
	p.ctxs.Store(&all)
	return uint32(len(all) - 1)
}

// DetachContext frees a context's number, once nothing of it is pending.
func (p *Proxy) DetachContext(id uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := append([]Lanes(nil), *p.ctxs.Load()...)
	all[id] = nil
	p.ctxs.Store(&all)
}

// Ring is the request ring, for statistics.
func (p *Proxy) Ring() *Ring { return p.ring }

// TryPoll takes the role if it is free and there may be work, does one turn, and
// reports whether anything moved. It never blocks.
func (p *Proxy) TryPoll() bool {
	if !p.Busy() || !p.role.CompareAndSwap(roleFree, roleHeld) {
		return false
	}
	p.polls.Add(1)
	moved := p.turn()
	p.role.Store(roleFree)
	// A caller takes in what came, and may leave what is owed for it: the one who
	// was to be woken by it must look again.
	if p.asleep.Load() {
		p.Kick()
	}
	return moved
}

// With calls f under the role, as soon as it is free. f must not wait. When the proxy
// is closed f is not called: there is no transport any more.
func (p *Proxy) With(f func()) {
	for !p.role.CompareAndSwap(roleFree, roleHeld) {
		if p.role.Load() == roleOver {
			return
		}
		runtime.Gosched()
	}
	defer p.role.Store(roleFree)
	f()
}

// Lose gives up a lane: what is queued or in flight fails with err, and so does
// every later operation. It returns at once; the role holder ends the rest.
func (p *Proxy) Lose(l *Lane, err error) {
	l.shut(gateLost, err)
	p.Kick()
}

// Drain polls until nothing is queued or in flight, or ctx ends.
func (p *Proxy) Drain(ctx context.Context) error {
	lad := spin.Ladder{Policy: p.policy}
	p.Begin()
	defer p.End()
	for p.pending() {
		if !p.TryPoll() {
			if lad.Next() {
				time.Sleep(50 * time.Microsecond)
			}
		} else {
			lad.Reset()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// pending reports whether requests are left, armed hooks aside.
func (p *Proxy) pending() bool {
	hooks := int64(0)
	for _, h := range *p.hooks.Load() {
		if h.armed.Load() {
			hooks++
		}
	}
	return p.work.Load() > hooks || !p.ring.Empty()
}

// Close ends the background goroutine and waits for it, then closes the
// transports. Lanes must have been drained or lost before.
func (p *Proxy) Close(ctx context.Context) error {
	if p.closed.Swap(true) {
		return nil
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
	<-p.done
	// Nobody polls any more: a waiter that still does would touch memory that
	// goes after this.
	for !p.role.CompareAndSwap(roleFree, roleOver) {
		runtime.Gosched()
	}
	var first error
	for _, t := range *p.transports.Load() {
		if err := t.Close(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}
