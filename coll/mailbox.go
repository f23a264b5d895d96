package coll

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// messages is two-sided communication: queues of slots as those of the
// collectives (see link), with fragments of tagged messages in them. The fragments
// of one message follow each other.
//
// A receiver takes fragments out of a queue only while it has a receive that the
// sender could match, or is itself blocked in a send; those that nobody asked for
// are kept in Go memory, within a bound.
type messages struct {
	c      *Comm
	slots  uint64
	stride int
	piece  int
	enough uint64

	mu     sync.Mutex
	links  []mailLink
	posted []*message   // receives without a message, in order
	kept   []*unclaimed // messages without a receive, in order of arrival
	bytes  int64        // of them
	sends  int          // in the links' queues
	open   int          // started operations not complete, and sends left behind
	free   []*message
	idle   uint32 // steps in which nothing moved
	hook   *channel.Hook
	hooked bool        // the hook steps
	rouse  bool        // and ended what a caller may sleep for
	self   heap.Signal // which this wakes
}

// mailLink is the two queues of this PE and one other member.
type mailLink struct {
	pe int

	// To it.
	sent, credited uint64
	credit         *atomic.Uint64
	at             heap.Ref
	data           heap.Signal
	stage          []byte       // image of the slots: a fragment lies there until its slot is given back
	tickets        []rma.Ticket // of each slot's last fragment
	queue          []*message

	// From it.
	got, returned uint64
	arrived       *atomic.Uint64
	mem           []byte
	back          heap.Signal
	into          *message   // the message that comes, if a receive has it
	keep          *unclaimed // if none has
	from          int        // bytes of it that came
}

// message is one send or receive.
type message struct {
	m        *messages
	recv     bool
	peer     int // Any: from whomever
	tag      int
	buf      []byte
	elem     int
	pos      int // bytes sent
	begun    bool
	matched  bool
	p        *Pending // of a started one
	left     bool     // its caller gave up; it goes on with a copy
	total    int      // bytes of the message received
	status   Status
	err      error
	finished atomic.Bool
	poll     func() bool
	fromList [1]int
}

// unclaimed is a message that came before its receive.
type unclaimed struct {
	source, tag int
	buf         []byte
	whole       bool
}

func mailNeed(g geometry, cfg Config) need {
	return need{
		signals: 2 * g.n,
		bytes:   int64(g.n-1) * int64(cfg.MessageSlots) * int64(mailStride(cfg)),
	}
}

func mailStride(cfg Config) int { return lineBytes + cfg.MessageBytes }

func (c *Comm) attachMail(r region) (err error) {
	m := &c.messages
	m.c, m.slots, m.stride, m.piece = c, uint64(c.cfg.MessageSlots), mailStride(c.cfg), c.cfg.MessageBytes
	m.enough = (m.slots + 1) / 2
	m.links = make([]mailLink, c.n)
	queue := int64(m.slots) * int64(m.stride)
	for q := range m.links {
		l := &m.links[q]
		l.pe = q
		if q == c.rank {
			continue
		}
		if l.arrived, err = wordAt(c.ctx, r.sigs.At(q).Ref()); err != nil {
			return err
		}
		if l.credit, err = wordAt(c.ctx, r.sigs.At(c.n+q).Ref()); err != nil {
			return err
		}
		l.data, l.back = r.sigs.At(c.rank), r.sigs.At(c.n+c.rank)
		l.at = r.ref.Add(uint64(int64(row(c.rank, q)) * queue))
		l.mem = r.mem[int64(row(q, c.rank))*queue:][:queue]
	}
	m.self = r.sigs.At(c.rank)
	m.hook = c.p.AddHook(m.hookStep)
	return nil
}

// take gives a message, an old one if there is.
func (m *messages) take() *message {
	if k := len(m.free); k > 0 {
		op := m.free[k-1]
		m.free = m.free[:k-1]
		return op
	}
	op := &message{m: m}
	op.poll = func() bool {
		if !op.finished.Load() {
			m.try()
		}
		return op.finished.Load()
	}
	return op
}

// recycle takes a blocking call's message back once it is finished and in no list.
func (m *messages) recycle(op *message) {
	if op.left {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	*op = message{m: m, poll: op.poll}
	m.free = append(m.free, op)
}

func (m *messages) began(op *message) {
	if op.p != nil {
		m.opened()
	}
}

// opened and shut keep the hook armed while something goes on without a caller.
func (m *messages) opened() {
	if m.open++; m.open == 1 {
		m.hook.Arm()
	}
}

func (m *messages) shut() {
	if m.open--; m.open == 0 {
		m.hook.Disarm()
	}
}

// finish ends an operation that is in no list any more.
func (m *messages) finish(op *message, err error) {
	op.err = err
	if op.p != nil {
		op.p.status = op.status
		call := "coll: send"
		if op.recv {
			call = "coll: recv"
		}
		op.p.finish(wrap(call, err))
	}
	if op.p != nil || op.left {
		m.shut()
	} else if m.hooked {
		m.rouse = true
	}
	op.finished.Store(true)
}

// wait waits for a blocking operation.
func (m *messages) wait(ctx context.Context, op *message, peer int) error {
	c := m.c
	if op.poll() {
		return op.err
	}
	if !c.geo.crowded {
		for range spins {
			if op.poll() {
				return op.err
			}
		}
	}
	from := op.fromList[:]
	from[0] = peer
	if peer == Any {
		from = nil
	}
	err := c.ctx.Wait(ctx, false, from, op.poll)
	if err == nil {
		return op.err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if op.finished.Load() {
		return op.err
	}
	if errors.Is(err, pe.ErrTimeout) {
		err = errors.Join(&pe.TimeoutError{What: "message", PE: peer}, err)
	}
	m.giveUp(op)
	return err
}

// giveUp ends a caller's part in an operation. What was not begun is forgotten;
// the rest of a message goes on without its caller, so that those behind it do.
func (m *messages) giveUp(op *message) {
	switch {
	case op.recv && op.matched:
		for i := range m.links {
			if l := &m.links[i]; l.into == op {
				u := m.keep(i, op.status.Tag, op.total)
				copy(u.buf[:l.from], op.buf)
				l.into, l.keep = nil, u
			}
		}
	case op.recv:
		m.posted = remove(m.posted, op)
	case !op.begun:
		l := &m.links[op.peer]
		l.queue = remove(l.queue, op)
		m.sends--
	default:
		op.buf = slices.Clone(op.buf)
		op.left = true
		m.opened()
	}
}

func remove(list []*message, op *message) []*message {
	if i := slices.Index(list, op); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// try goes on with everything, if nobody else does.
func (m *messages) try() bool {
	if !m.mu.TryLock() {
		return false
	}
	defer m.mu.Unlock()
	return m.stepAll()
}

// hookStep is try under the proxy's role. It may end the operation of a caller
// that sleeps.
func (m *messages) hookStep() bool {
	if !m.mu.TryLock() {
		return false
	}
	defer m.mu.Unlock()
	m.hooked = true
	moved := m.stepAll()
	m.hooked = false
	if m.rouse && rma.TrySignal(m.c.ctx, m.self, rma.SignalAdd, 1, m.c.rank) == nil {
		m.rouse = false
	}
	return moved
}

func (m *messages) stepAll() bool {
	c := m.c
	if !c.ctx.Use() {
		m.failAll(&pe.ClosedError{PE: c.p.Rank()})
		return true
	}
	defer c.ctx.Unuse()
	if c.aborted.Load() >= abortUnit {
		m.failAll(c.verdict())
		return true
	}
	moved := false
	for i := range m.links {
		if i == c.rank {
			continue
		}
		l := &m.links[i]
		more, err := m.stepLink(l)
		if err != nil {
			m.failLink(l, err)
		}
		moved = moved || more
	}
	if m.idle++; moved {
		m.idle = 0
	} else if m.idle%1024 == 0 {
		m.suspect()
	}
	return moved
}

// fragmentBudget is how many fragments of a pair one step handles.
const fragmentBudget = 8

// stepLink goes on with one member.
func (m *messages) stepLink(l *mailLink) (moved bool, err error) {
	if err := m.giveBack(l); err != nil {
		return false, err
	}
	for range fragmentBudget {
		if len(l.queue) == 0 {
			break
		}
		more, err := m.sendNext(l)
		if err != nil {
			return moved, err
		}
		if !more {
			break // what comes from there is taken all the same
		}
		moved = true
	}
	for range fragmentBudget {
		if l.arrived.Load() <= l.got || !m.wanted(l) {
			break
		}
		if more, err := m.takeNext(l); !more || err != nil {
			return moved, err
		}
		moved = true
	}
	return moved, nil
}

// suspect ends what waits for a member that is lost: a wait knows by itself, a
// started operation does not.
func (m *messages) suspect() {
	for i := range m.links {
		if i == m.c.rank {
			continue
		}
		if l, err := m.c.ctx.LaneTo(i); err == nil && errors.Is(l.Err(), pe.ErrPeerLost) {
			m.failLink(&m.links[i], l.Err())
		}
	}
}

// failAll ends everything with one error.
func (m *messages) failAll(err error) {
	for _, op := range m.posted {
		m.finish(op, err)
	}
	m.posted = m.posted[:0]
	for i := range m.links {
		m.failLink(&m.links[i], err)
	}
}

// failLink ends everything that is under way with one member.
func (m *messages) failLink(l *mailLink, err error) {
	for _, op := range l.queue {
		m.sends--
		m.finish(op, err)
	}
	l.queue = l.queue[:0]
	if op := l.into; op != nil {
		l.into = nil
		m.finish(op, err)
	}
	for i := 0; i < len(m.posted); {
		if op := m.posted[i]; op.peer == l.pe {
			m.posted = slices.Delete(m.posted, i, i+1)
			m.finish(op, err)
		} else {
			i++
		}
	}
}

// sendNext sends the next fragment to a member, of the message at the head of its
// queue; more says that it did.
func (m *messages) sendNext(l *mailLink) (more bool, err error) {
	op, c := l.queue[0], m.c
	if l.sent-l.credited == m.slots {
		if l.credited = l.credit.Load(); l.sent-l.credited == m.slots {
			return false, nil
		}
	}
	if l.stage == nil {
		l.stage = make([]byte, int(m.slots)*m.stride)
		l.tickets = make([]rma.Ticket, m.slots)
	}
	n := min(m.piece, len(op.buf)-op.pos)
	slot := int(l.sent % m.slots)
	if t := &l.tickets[slot]; !t.Done() {
		return false, nil // it arrived, but its source may still be sent again
	} else if err := t.Err(); err != nil {
		return false, err
	}
	stage := l.stage[slot*m.stride:][:headerBytes+n]
	*headerOf(stage) = header{bytes: uint32(n), what: uint64(op.tag), count: uint64(len(op.buf)), arg: uint64(op.pos)}
	copy(stage[headerBytes:], op.buf[op.pos:])
	to := l.at.Add(uint64(slot * m.stride))
	if l.tickets[slot], err = rma.TryPutMemSignalNBI(c.ctx, to, stage, l.data, rma.SignalAdd, 1, l.pe); err != nil {
		return false, blocked(err)
	}
	l.sent++
	op.begun = true
	if op.pos += n; op.pos == len(op.buf) {
		l.queue = l.queue[:copy(l.queue, l.queue[1:])]
		m.sends--
		m.finish(op, nil)
	}
	return true, nil
}

// wanted reports whether fragments from a member are to be taken now: a receive
// could match them, or this PE waits for room at others, which may wait for room
// here.
func (m *messages) wanted(l *mailLink) bool {
	if l.into != nil || m.sends > 0 {
		return true
	}
	for _, op := range m.posted {
		if op.peer == l.pe || op.peer == Any {
			return true
		}
	}
	return false
}

// takeNext takes the next fragment from a member; more says that it did.
func (m *messages) takeNext(l *mailLink) (more bool, err error) {
	slot := l.mem[int(l.got%m.slots)*m.stride:]
	h := headerOf(slot)
	n, total, at := int(h.bytes), h.count, h.arg
	if n > m.piece || at > total || uint64(n) > total-at || total > math.MaxInt64/2 || at != uint64(l.from) {
		return false, &pe.MismatchError{PE: m.c.world[l.pe], Field: "length", Want: fmt.Sprint(l.from), Have: fmt.Sprintf("%d at %d of %d", n, at, total)}
	}
	if at == 0 && !m.match(l, int(h.what), int(total)) {
		return false, nil
	}
	data := slot[headerBytes:][:n]
	if op := l.into; op == nil {
		copy(l.keep.buf[at:], data)
	} else if int(at) < len(op.buf) {
		copy(op.buf[at:], data)
	}
	if l.from += n; uint64(l.from) == total {
		l.from = 0
		if op := l.into; op != nil {
			l.into = nil
			m.received(op)
		} else {
			l.keep.whole = true
			l.keep = nil
		}
	}
	l.got++
	return true, m.giveBack(l)
}

// giveBack returns slots to their sender, a few at a time.
func (m *messages) giveBack(l *mailLink) error {
	if l.got-l.returned < m.enough {
		return nil
	}
	if err := rma.TrySignal(m.c.ctx, l.back, rma.SignalAdd, l.got-l.returned, l.pe); err != nil {
		return blocked(err) // at the next step
	}
	l.returned = l.got
	return nil
}

// idleNow reports whether no operation is in progress.
func (m *messages) idleNow() bool {
	if !m.mu.TryLock() {
		return false
	}
	defer m.mu.Unlock()
	return m.open == 0 && m.sends == 0 && len(m.posted) == 0
}
