package coll

import (
	"context"
	"errors"
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
	step   func() bool // try
	self   heap.Signal // which this wakes
}

// mailLink is the two queues of this PE and one other member.
type mailLink struct {
	pe int

	// To it.
	sent, credited uint64
	credit         heap.Cells
	at             heap.Ref
	data           heap.Signal
	stage          []byte       // image of the slots: a fragment lies there until its slot is given back
	tickets        []rma.Ticket // of each slot's last fragment
	queue          []*message

	// From it.
	got, returned uint64
	arrived       heap.Cells
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
		if l.arrived, err = c.ctx.SignalCells(r.sigs.At(q)); err != nil {
			return err
		}
		if l.credit, err = c.ctx.SignalCells(r.sigs.At(c.n + q)); err != nil {
			return err
		}
		l.data, l.back = r.sigs.At(c.rank), r.sigs.At(c.n+c.rank)
		l.at = r.ref.Add(uint64(int64(row(c.rank, q)) * queue))
		l.mem = r.mem[int64(row(q, c.rank))*queue:][:queue]
	}
	m.self = r.sigs.At(c.rank)
	m.step = m.try
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
	m.put(op)
}

func (m *messages) put(op *message) {
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
		m.shut()
		m.put(op) // nobody else has it
		return
	}
	if op.left {
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
	rank := -1
	if peer == Any {
		from = nil
	} else {
		rank = c.world[peer]
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
	return errors.Join(late(err, pe.TimeoutError{What: "message", PE: rank}), m.giveUp(op))
}

// giveUp ends a caller's part in an operation. What was not begun is forgotten;
// the rest of a message goes on without its caller, so that those behind it do.
// The error is of a message that is lost.
func (m *messages) giveUp(op *message) error {
	switch {
	case op.recv && op.matched && op.unfit() != nil:
		err := op.unfit()
		op.buf, op.left = nil, true // some of it is gone already
		m.opened()
		return err
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
	return nil
}

func remove(list []*message, op *message) []*message {
	if i := slices.Index(list, op); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// idleNow reports whether no operation is in progress.
func (m *messages) idleNow() bool {
	if !m.mu.TryLock() {
		return false
	}
	defer m.mu.Unlock()
	return m.open == 0 && m.sends == 0 && len(m.posted) == 0
}
