package fabric

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
)

// How many looks find nothing before the clock jumps: more where somebody is to
// see what the contract forbids.
const (
	patience       = 4
	brokenPatience = 100
)

// transport is a fabric in one world of one process.
type transport struct {
	f   *Fabric
	cfg *Config

	mu        sync.Mutex // a test interferes from outside the proxy's role
	w         wire
	now       int64
	idle      int
	looked    time.Time
	newest    uint64 // latest posted of what landed
	sent      map[int]int
	dying     []int
	greetings map[[2]int]*greeting
	closed    bool
	stop      func() // ends the ticker; nil: there is none
}

var _ channel.Transport = (*transport)(nil)

func newTransport(f *Fabric, env channel.Env) *transport {
	t := &transport{
		f: f, cfg: &f.cfg, w: newWire(env, true),
		sent: map[int]int{}, greetings: map[[2]int]*greeting{},
	}
	if t.cfg.Broken == EarlyAck {
		t.stop = t.tick(time.Millisecond)
	}
	return t
}

// tick lets ticks pass by themselves: nobody polls for what was acknowledged. The
// function returned ends it.
func (t *transport) tick(every time.Duration) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
			}
			t.mu.Lock()
			t.now += brokenPatience
			t.pass()
			t.mu.Unlock()
		}
	}()
	return func() { close(quit); <-done }
}

// Describe names the seed.
func (t *transport) Describe() channel.Description {
	d := channel.Description{Name: "fabric", Detail: fmt.Sprintf("in-process, for tests, seed %d", t.cfg.Seed)}
	if t.cfg.Broken != Sound {
		d.Notes = append(d.Notes, "broken on purpose: "+t.cfg.Broken.String())
	}
	return d
}

// Caps is as configured.
func (t *transport) Caps() channel.Caps {
	return channel.Caps{MaxMessage: t.cfg.MaxMessage, Window: t.cfg.Window, Kinds: hostKinds[:], RingsBells: true}
}

var hostKinds = [1]heap.Kind{heap.KindHost}

// Register has nothing to do for memory of the host.
func (t *transport) Register(_ context.Context, _ int, _ uint16, mem heap.Memory) ([]byte, error) {
	return register(mem)
}

func register(mem heap.Memory) ([]byte, error) {
	if mem.Kind != heap.KindHost {
		return nil, fmt.Errorf("fabric: register %v memory: %w", mem.Kind, errs.ErrKind)
	}
	return nil, nil
}

// Deregister has nothing to undo.
func (t *transport) Deregister(context.Context, int, uint16) error { return nil }

// Map never lets the caller operate inline: that would go around the fabric.
func (t *transport) Map(int, uint16) (heap.Memory, bool) { return heap.Memory{}, false }

// Connect is ready after some calls, the lateness of the two PEs, and the
// handshake, where these are configured.
func (t *transport) Connect(l *channel.Lane) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.w.reachable(l); err != nil {
		return false, err
	}
	ln := t.w.lane(l)
	if ln.dead != nil {
		return false, ln.dead
	}
	ln.calls++
	if ln.calls == 1 {
		if err := t.f.deadOf(ln.owner, ln.peer); err != nil {
			ln.dead = err
			return false, err
		}
		if late := t.late(ln); late > t.now {
			t.w.schedule(late, 0, wake, nil) // so that the clock can jump there
		}
	}
	if t.now < t.late(ln) || t.f.Stalled(ln.owner, ln.peer) {
		return false, nil
	}
	if t.cfg.Handshake {
		if ok, err := t.greet(ln.owner, ln.peer); !ok || err != nil {
			return false, err
		}
	}
	return ln.calls > int(mix(t.cfg.Seed, laneKey(ln.owner, ln.peer, ln.k), 1)%uint64(t.cfg.Connect+1)), nil
}

func (t *transport) late(ln *lane) int64 {
	return int64(max(t.cfg.Late[ln.owner], t.cfg.Late[ln.peer]))
}

// Post takes requests and decides what will happen to them.
func (t *transport) Post(l *channel.Lane, reqs []channel.Request) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ln := t.w.lane(l)
	if ln.dead != nil {
		return 0, ln.dead
	}
	n := len(reqs)
	if t.f.Stalled(ln.owner, ln.peer) {
		n = 0
	} else if t.cfg.Partial {
		rng := rand.New(rand.NewPCG(t.cfg.Seed^ln.tries, laneKey(ln.owner, ln.peer, ln.k)))
		n = rng.IntN(n + 1)
		ln.tries++
	}
	for i := range n {
		r := &reqs[i]
		if err := t.acceptable(ln, r); err != nil {
			return i, err
		}
		t.launch(ln, r)
	}
	if n < len(reqs) {
		t.f.count(t.event("refused", ln, ln.posted, reqs[n].Op), func(s *Stats) { s.Refused += uint64(len(reqs) - n) })
	}
	return n, nil
}

// acceptable holds the proxy to its side of the contract.
func (t *transport) acceptable(ln *lane, r *channel.Request) error {
	switch {
	case ln.calls == 0:
		return fmt.Errorf("fabric: %v on a lane that is not connected: %w", r.Op, errs.ErrConfig)
	case r.Op == channel.OpBatch:
		return fmt.Errorf("fabric: %v: %w", r.Op, errs.ErrUnsupported)
	case t.cfg.MaxMessage > 0 && tooLong(r, t.cfg.MaxMessage):
		return fmt.Errorf("fabric: %v of %d: %w", r.Op, r.Size, errs.ErrCapacity)
	case t.cfg.Window > 0 && len(ln.flights) >= t.cfg.Window:
		return fmt.Errorf("fabric: %v beyond a window of %d: %w", r.Op, t.cfg.Window, errs.ErrCapacity)
	}
	return nil
}

// tooLong reports whether a request is longer than it may be. One word or element
// always may be sent.
func tooLong(r *channel.Request, most uint64) bool {
	switch r.Op {
	case channel.OpPut, channel.OpGet:
		return r.Size > most
	case channel.OpIPut, channel.OpIGet:
		return r.Size > 1 && r.Size*r.Type.Size() > most
	}
	return false
}

// launch schedules everything that will happen to a request.
func (t *transport) launch(ln *lane, r *channel.Request) {
	f := t.w.launch(ln, r)
	t.f.count(t.event("post", ln, f.n, r.Op), func(s *Stats) { s.Posted++ })
	fate := t.cfg.Fate(ln.owner, ln.peer, ln.k, f.n)
	tie := func(at int64) uint64 { return mix(t.cfg.Seed, laneKey(ln.owner, ln.peer, ln.k), uint64(at)) }
	at := max(ln.sent, t.now+int64(fate.Sending))
	ln.sent = at
	for range fate.Lost {
		t.w.push(event{at: at, tie: tie(at), what: sending, lost: true, f: f})
		at += int64(max(t.cfg.Retry, 1))
	}
	t.w.schedule(at, tie(at), sending, f)
	if t.cfg.Broken == EarlySignal {
		sig := at + int64(fate.Signal)
		t.w.schedule(sig, tie(sig), raised, f)
	}
	_, back := f.bytes()
	early := t.cfg.Broken == EarlyAck && back == 0
	if early {
		ln.acked = max(ln.acked, at)
		t.w.schedule(ln.acked, tie(ln.acked), ended, f)
	}
	at += int64(fate.Flight)
	if t.cfg.Broken != UnorderedLane {
		at = max(at, ln.landing)
		ln.landing = at
	}
	t.w.schedule(at, tie(at), arrived, f)
	if !early {
		at = max(ln.acked, at+int64(fate.Ack))
		ln.acked = at
		t.w.schedule(at, tie(at), ended, f)
	}
}

// Looks come at least so often in the mind of the fabric: who slept meanwhile, as
// proxies without a core of their own do, has missed some, up to a limit.
const (
	lookEvery  = time.Microsecond
	mostMissed = 1000
)

// missed is how many looks are due.
func (t *transport) missed() int {
	before := t.looked
	t.looked = time.Now()
	if before.IsZero() || !t.cfg.Real {
		return 1
	}
	return 1 + int(min(t.looked.Sub(before)/lookEvery, mostMissed))
}

// look lets a tick pass, or more if nothing else is to happen.
func (t *transport) look() {
	t.now++
	if t.pass() {
		t.idle = 0
		return
	}
	limit := patience
	if t.cfg.Broken != Sound {
		limit = brokenPatience
	}
	if at, ok := t.w.next(); ok && t.idle >= limit {
		t.now = at
		t.pass()
	}
	t.idle++
}

// Poll lets a tick pass, or more if nothing else is to happen, and reports what
// is complete.
func (t *transport) Poll(out []channel.Completion) int {
	t.mu.Lock()
	for range t.missed() {
		t.look()
	}
	n := t.report(out)
	dying := t.dying
	t.dying = nil
	t.mu.Unlock()
	for _, pe := range dying {
		t.f.kill(pe, fmt.Sprintf("died in the fabric after %d requests", t.cfg.Dies[pe]))
	}
	return n
}

// pass lets happen what is due.
func (t *transport) pass() bool {
	moved := false
	for {
		e, ok := t.w.due(t.now)
		if !ok {
			return moved
		}
		moved = true
		switch {
		case e.what == wake:
		case t.f.Stalled(e.f.lane.owner, e.f.lane.peer):
			e.f.lane.held = append(e.f.lane.held, e)
		default:
			t.happen(e)
		}
	}
}

func (t *transport) happen(e event) {
	f := e.f
	ln := f.lane
	name := e.what.String()
	var change func(*Stats)
	switch e.what {
	case sending:
		t.w.send(f)
		if e.lost {
			name, change = "lost", func(s *Stats) { s.Lost++ }
			break
		}
		t.sent[ln.owner]++
		if last, dies := t.cfg.Dies[ln.owner]; dies && t.sent[ln.owner] > last {
			t.dying = append(t.dying, ln.owner)
		}
	case raised:
		t.w.raise(f)
	case arrived:
		change = t.land(f)
	case ended:
		if f.err == nil && f.landed {
			t.w.finish(f)
		}
		f.done = true
	}
	t.f.count(t.event(name, ln, f.n, f.req.Op), change)
}

func (t *transport) land(f *flight) func(*Stats) {
	ln := f.lane
	if t.cfg.Fail != nil {
		if f.err = t.cfg.Fail(ln.owner, ln.peer, &f.req.Desc); f.err != nil {
			return nil
		}
	}
	f.err = t.w.land(f)
	own, other := f.n+1 < ln.newest, f.post+1 < t.newest
	ln.newest = max(ln.newest, f.n+1)
	t.newest = max(t.newest, f.post+1)
	return func(s *Stats) {
		s.Landed++
		switch {
		case own:
			s.Unordered++
		case other:
			s.Overtaken++
		}
	}
}

// report fills in completions, of the lanes in an order that changes from tick to
// tick.
func (t *transport) report(out []channel.Completion) int {
	n, lanes := 0, len(t.w.order)
	if lanes == 0 {
		return 0
	}
	rng := rand.New(rand.NewPCG(t.cfg.Seed, uint64(t.now)))
	first := rng.IntN(lanes)
	for i := range lanes {
		ln := t.w.order[(first+i)%lanes]
		k := ln.ready()
		if k == 0 || n == len(out) || t.f.Stalled(ln.owner, ln.peer) {
			continue
		}
		if t.cfg.Partial {
			if k = rng.IntN(k + 1); k == 0 {
				t.idle = 0 // there is something to come back for
				continue
			}
		}
		at := ln.flights[0]
		out[n] = ln.report(k)
		failed := out[n].Err != nil
		n++
		name := "completed"
		if failed {
			name = "failed"
		}
		t.f.count(t.event(name, ln, at.n, at.req.Op), func(s *Stats) {
			s.Completed += uint64(k)
			if failed {
				s.Failed++
			}
		})
	}
	return n
}

// Abort forgets a lane.
func (t *transport) Abort(l *channel.Lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ln := t.w.lane(l)
	ln.drop()
	if ln.dead == nil {
		ln.dead = &errs.ClosedError{PE: -1}
	}
}

// Close ends the transport.
func (t *transport) Close(context.Context) error {
	t.f.forget(t)
	t.mu.Lock()
	stop := t.stop
	t.closed, t.stop = true, nil
	t.mu.Unlock()
	if stop != nil {
		stop()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ln := range t.w.order {
		ln.drop()
	}
	return nil
}

// release puts back what a stall held up.
func (t *transport) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ln := range t.w.order {
		if len(ln.held) == 0 || t.f.Stalled(ln.owner, ln.peer) {
			continue
		}
		for _, e := range ln.held {
			e.at = max(e.at, t.now)
			e.tie = mix(t.cfg.Seed, laneKey(ln.owner, ln.peer, ln.k), uint64(e.at))
			t.w.push(e)
		}
		ln.held = nil
	}
}

// die gives up everything from and to a dead PE and tells the world.
func (t *transport) die(pe int, err error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	for _, ln := range t.w.order {
		if ln.owner != pe && ln.peer != pe || ln.dead != nil {
			continue
		}
		ln.dead = err
		ln.held = nil
		for i, f := range ln.flights {
			if f.done {
				continue
			}
			// Its events stay in the queue: they find that it is gone.
			f.gone = true
			failed := *f
			failed.gone, failed.done, failed.err = false, true, err
			ln.flights[i] = &failed
		}
	}
	t.mu.Unlock()
	t.w.env.Lost(pe, err)
}

func (t *transport) event(what string, ln *lane, n uint64, op channel.Op) Event {
	return Event{Tick: t.now, What: what, Owner: ln.owner, Peer: ln.peer, Lane: ln.k, N: n, Op: op}
}
