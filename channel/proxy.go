package channel

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"goshmem/internal/errs"
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

// handEvery is how many operations a producer that gathers queues before it posts
// them.
const handEvery = 16

// maxPumps is how many batches of one lane a turn posts to a transport that sends
// them together.
const maxPumps = 8

// batchBytes bounds what one turn posts for one lane, so that a synchronous
// transport that copies does not keep the others waiting.
const batchBytes = 1 << 20

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

// TrySubmit queues one operation of a lane; d is validated by the caller and
// ptr is its Go-side memory where it has FlagLocalPtr. It fails, without having
// taken anything, with ErrWouldBlock when ring or lane are full, or with the
// reason why the lane takes no more.
func (p *Proxy) TrySubmit(l *Lane, d *Desc, ptr unsafe.Pointer) (Ticket, error) {
	// Counted before it can complete, and before it is claimed: Quiet covers it,
	// and a Shut that finds nothing pending has refused it.
	g := l.gate.Add(1)
	if g&(gateClosed|gateLost) != 0 {
		l.gate.Add(^uint64(0))
		return Ticket{}, l.Err()
	}
	if int(g&gateCount) > l.cfg.Backlog {
		l.gate.Add(^uint64(0))
		return Ticket{}, errs.ErrWouldBlock
	}
	l.issued.Add(1)
	l.cfg.Group.pending.Add(1)
	pos, slot, ok := p.ring.TryClaim()
	if !ok {
		l.cfg.Group.pending.Add(-1)
		l.issued.Add(^uint64(0))
		l.gate.Add(^uint64(0))
		return Ticket{}, errs.ErrWouldBlock
	}
	copyBody(slot, d)
	slot.Ctx, slot.PE = l.cfg.Ctx, uint32(l.cfg.TeamPE)
	if d.Flags&FlagLocalPtr != 0 {
		p.ring.Local(pos).Ptr = ptr
	}
	p.ring.Publish(pos)
	if l.gathers != nil {
		if !p.gathered.Load() || pos-p.ring.Consumed() >= handEvery {
			p.Hand(l)
		}
	} else if p.waiters.Load() == 0 {
		p.kick()
	}
	return Ticket{lane: l, pos: pos}, nil
}

// Hand lets a producer post what it has queued to a transport that gathers, if
// nobody has the role. The producer goes on gathering; what it leaves behind the
// background goroutine flushes as soon as no more comes.
func (p *Proxy) Hand(l *Lane) {
	if l.gathers == nil {
		return
	}
	if !p.role.CompareAndSwap(roleFree, roleHeld) {
		if p.waiters.Load() == 0 {
			p.kick()
		}
		return
	}
	p.drain()
	p.push(l)
	left := !l.gathers.Flush(false)
	p.gathered.Store(left)
	left = left || l.queue.Len() > 0
	p.role.Store(roleFree)
	if left {
		p.kick()
	}
}

// Begin announces a caller that polls; End that it stopped. The background
// goroutine stays away between the two.
func (p *Proxy) Begin() { p.waiters.Add(1) }

// End is the other half of Begin. What may come in by itself is looked at by the
// background goroutine soon, without a wake-up now: the caller may be back before.
func (p *Proxy) End() {
	if p.waiters.Add(-1) == 0 && p.queued() {
		p.kick()
	}
}

// Doze is End of a caller that goes to sleep.
func (p *Proxy) Doze() {
	if p.waiters.Add(-1) == 0 && p.Busy() {
		p.kick()
	}
}

// Busy reports whether a turn could find something to do.
func (p *Proxy) Busy() bool { return p.live.Load() != 0 || p.queued() }

func (p *Proxy) queued() bool { return p.work.Load() != 0 || !p.ring.Empty() }

// SetLive counts a transport by which peers' requests come in: it is polled even
// when nothing is queued here.
func (p *Proxy) SetLive(on bool) {
	if on {
		p.live.Add(1)
		p.kick()
		return
	}
	p.live.Add(-1)
}

// Kick makes somebody poll soon: something came in. From any goroutine.
func (p *Proxy) Kick() { p.kick() }

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
		p.kick()
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

// own is TryPoll of the background goroutine.
func (p *Proxy) own() bool {
	if !p.Busy() || !p.role.CompareAndSwap(roleFree, roleHeld) {
		return false
	}
	moved := p.turn()
	p.role.Store(roleFree)
	return moved
}

// turn does everything that can be done now. Under the role.
func (p *Proxy) turn() bool {
	moved := p.drain()
	p.gathered.Store(false)
	for _, h := range *p.hooks.Load() {
		if h.armed.Load() && h.step() {
			moved = true
		}
	}
	for _, l := range p.active {
		if p.push(l) {
			moved = true
		}
	}
	for _, t := range *p.transports.Load() {
		if t.Caps().Synchronous {
			continue
		}
		r, receives := t.(Receiver)
		if receives {
			r.Flush(true)
		}
		n := t.Poll(p.comps[:])
		moved = moved || receives && r.Received()
		for i := range n {
			c := &p.comps[i]
			c.Lane.complete(c.N, c.Err)
			*c = Completion{}
		}
		moved = moved || n > 0
	}
	for i := 0; i < len(p.active); {
		l := p.active[i]
		if l.queue.Len() > 0 || l.flight.Len() > 0 {
			i++
			continue
		}
		l.active = false
		last := len(p.active) - 1
		p.active[i], p.active[last] = p.active[last], nil
		p.active = p.active[:last]
		p.work.Add(-1)
	}
	return moved
}

// push hands over what a lane's window and budget admit in this turn.
func (p *Proxy) push(l *Lane) bool {
	moved := p.pump(l)
	for n := 1; moved && n < maxPumps && l.queue.Len() > 0 && !l.caps.Synchronous; n++ {
		if !p.pump(l) {
			break
		}
	}
	return moved
}

// drain moves everything published in the ring to its lanes.
func (p *Proxy) drain() bool {
	n := 0
	for ; n < p.ring.Cap(); n++ {
		d, local, pos, ok := p.ring.Front()
		if !ok {
			break
		}
		// Looked up behind the request: its context may be newer than this turn.
		l := (*p.ctxs.Load())[d.Ctx][d.PE].Load()
		e := entry{desc: *d, pos: pos}
		if d.Flags&FlagLocalPtr != 0 {
			e.ptr = local.Ptr
		}
		l.queue.Push(e)
		if !l.active {
			l.active = true
			p.active = append(p.active, l)
			p.work.Add(1)
		}
		p.ring.Advance()
	}
	if n > 0 {
		p.ring.Release()
	}
	return n > 0
}

// pump hands requests of a lane to its transport, as many as fit.
func (p *Proxy) pump(l *Lane) bool {
	t := l.cfg.Transport
	if l.gate.Load()&gateLost != 0 {
		if !l.aborted {
			l.aborted = true
			t.Abort(l)
		}
		moved := l.queue.Len()+l.flight.Len() > 0
		l.failAll(l.Err())
		return moved
	}
	if !l.ready {
		ready, err := t.Connect(l)
		if err != nil {
			l.shut(gateLost, err)
			return true
		}
		if !ready {
			if e := l.gone.Load(); e != nil {
				l.shut(gateLost, *e)
				return true
			}
			return false
		}
		l.ready, l.caps = true, t.Caps()
	}
	if l.queue.Len() == 0 {
		return false
	}
	caps := &l.caps
	window := l.cfg.Window
	if caps.Window > 0 {
		window = min(window, caps.Window)
	}
	room := min(maxBatch, window-l.flight.Len())
	k, bytes := 0, uint64(0)
	var bad error
	most := uint64(batchBytes)
	if !caps.Synchronous && caps.MaxMessage == 0 {
		most = math.MaxUint64 // it begins them, whatever their size
	}
	for c := l.cur; k < room && c.entry < l.queue.Len() && bytes < most; k++ {
		c, p.lasts[k], bad = l.next(c, caps.MaxMessage, &p.reqs[k])
		p.cursors[k] = c
		if bad != nil {
			break
		}
		bytes += p.reqs[k].Size
	}
	n := 0
	var err error
	if k > 0 {
		n, err = t.Post(l, p.reqs[:k])
		l.posted.Add(uint64(n))
	}
	failed := n < k && err != nil
	if !failed && n == k && bad != nil {
		failed, err = true, bad
	}
	for i := range n {
		l.flight.Push(flight{pos: p.reqs[i].Seq, ptr: p.reqs[i].Local, last: p.lasts[i]})
		if p.lasts[i] {
			l.copied.Store(p.reqs[i].Seq)
		}
	}
	at := l.cur
	if n > 0 {
		at = p.cursors[n-1]
	}
	if failed {
		// Request n is not taken: its operation ends here, whatever of it is left.
		e := l.queue.At(at.entry)
		l.setErr(e.pos, err)
		l.flight.Push(flight{pos: e.pos, last: true, done: true})
		at = cursor{entry: at.entry + 1}
	}
	for i := range k {
		p.reqs[i].Local = nil
	}
	l.drop(at)
	if caps.Synchronous {
		l.complete(n, nil)
	} else if failed {
		l.complete(0, nil)
	}
	return n > 0 || failed
}

// Lose gives up a lane: what is queued or in flight fails with err, and so does
// every later operation. It returns at once; the role holder ends the rest.
func (p *Proxy) Lose(l *Lane, err error) {
	l.shut(gateLost, err)
	p.kick()
}

// kick wakes the background goroutine if it is parked.
func (p *Proxy) kick() {
	if p.parked.Load() != 0 && p.parked.CompareAndSwap(1, 0) {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// background holds the role while nobody waits and there is work.
func (p *Proxy) background() {
	defer close(p.done)
	lad := spin.Ladder{Policy: p.policy}
	nap := time.NewTimer(time.Hour)
	nap.Stop()
	naps, seen, claimed := 0, uint64(0), uint64(0)
	for !p.closed.Load() {
		if n := p.ring.Claimed(); n != claimed && p.gathered.Load() {
			claimed = n
			spin.Nap(gatherNap)
			continue
		}
		if p.waiters.Load() == 0 && p.own() {
			lad.Reset()
			naps = 0
			continue
		}
		if !lad.Next() {
			continue
		}
		// Announce, look again, park: a producer claims first and looks at
		// parked afterwards, so one of the two sees the other.
		p.parked.Store(1)
		switch d := p.nap(&naps, &seen); {
		case d == 0:
			lad.Reset()
		case d < 0:
			// Announced before the look at polls, as a caller counts itself first.
			p.asleep.Store(p.live.Load() != 0)
			if p.polls.Load() == seen || !p.asleep.Load() {
				<-p.wake
			}
			p.asleep.Store(false)
			lad.Reset()
			naps = 0
		default:
			nap.Reset(d)
			select {
			case <-p.wake:
				naps = 0
				lad.Reset()
			case <-nap.C:
			}
		}
		p.parked.Store(0)
	}
}

// nap is how long the background goroutine, which has announced that it parks,
// may sleep: 0 not at all, less than that until it is woken.
func (p *Proxy) nap(naps *int, seen *uint64) time.Duration {
	const short, long = 50 * time.Microsecond, time.Millisecond
	idle := p.waiters.Load() == 0
	switch {
	case idle && !p.ring.Empty():
		if p.role.Load() == roleFree {
			return 0
		}
		return short // who holds the role may have looked at the ring before
	case idle && p.work.Load() != 0:
		// Work that waits for somebody else: look at it now and then.
		if *naps++; *naps > 20 {
			return long
		}
		return short
	case p.live.Load() == 0 || p.closed.Load():
		return -1
	}
	// What comes in is looked at by callers that wait while there are any; when
	// they no longer do, the transports are to wake this goroutine.
	if !p.role.CompareAndSwap(roleFree, roleHeld) {
		return short
	}
	defer p.role.Store(roleFree)
	n := p.polls.Load()
	polled := n != *seen
	*seen = n
	if !idle || polled {
		return liveNap
	}
	for _, t := range *p.transports.Load() {
		if r, ok := t.(Receiver); ok && !r.Arm() {
			return long
		}
	}
	return -1
}

// gatherNap is how often the background goroutine looks whether a producer is
// still gathering.
const gatherNap = 30 * time.Microsecond

// liveNap is how often the background goroutine looks whether callers still poll.
const liveNap = 250 * time.Microsecond

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
