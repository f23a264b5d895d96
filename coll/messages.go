package coll

import (
	"context"
	"fmt"
	"math"

	"goshmem/heap"
	"goshmem/pe"
)

// Any as a source or tag matches every one.
const Any = -1

// Status is what a receive got.
type Status struct {
	Source int // rank of the sender
	Tag    int
	Count  int // elements
}

// Send sends src to member to, for its Recv with this PE as source and the same
// tag (at least 0). It returns when src is reusable, which a message that does not
// fit Config.MessageSlots may be only when it is received. Messages from one
// member to another that a Recv could match are received in the order in which
// they were sent. To itself is legal.
//
// Send and Recv are not collective, and need not keep any order with the Comm's
// collectives; of a Comm whose collectives failed they give that error too.
func Send[T heap.Elem](ctx context.Context, c *Comm, to, tag int, src []T) error {
	const call = "send"
	if c == nil {
		return wrap("coll: "+call, errNoComm)
	}
	m := &c.messages
	op, err := m.postSend(to, tag, bytesOf(src), nil)
	if err == nil {
		err = m.wait(ctx, op, to)
		m.recycle(op)
	}
	return wrap("coll: "+call, err)
}

// Recv receives a message of up to len(dst) elements from a member (or Any) with
// a tag (or Any). A message that is longer, or no whole number of elements, is
// ErrRange, and is lost.
func Recv[T heap.Elem](ctx context.Context, c *Comm, from, tag int, dst []T) (Status, error) {
	const call = "recv"
	if c == nil {
		return Status{}, wrap("coll: "+call, errNoComm)
	}
	m := &c.messages
	op, err := m.postRecv(from, tag, bytesOf(dst), elemBytes[T](), nil)
	if err != nil {
		return Status{}, wrap("coll: "+call, err)
	}
	err = m.wait(ctx, op, from)
	s := op.status
	m.recycle(op)
	return s, wrap("coll: "+call, err)
}

// StartSend begins a Send; src belongs to it until it is complete.
func StartSend[T heap.Elem](c *Comm, to, tag int, src []T) (*Pending, error) {
	if c == nil {
		return nil, wrap("coll: start send", errNoComm)
	}
	p := &Pending{c: c, step: c.messages.step}
	_, err := c.messages.postSend(to, tag, bytesOf(src), p)
	if err != nil {
		return nil, wrap("coll: start send", err)
	}
	c.messages.try()
	return p, nil
}

// StartRecv begins a Recv; dst belongs to it until it is complete. Its Pending
// has the Status then.
func StartRecv[T heap.Elem](c *Comm, from, tag int, dst []T) (*Pending, error) {
	if c == nil {
		return nil, wrap("coll: start recv", errNoComm)
	}
	p := &Pending{c: c, step: c.messages.step}
	_, err := c.messages.postRecv(from, tag, bytesOf(dst), elemBytes[T](), p)
	if err != nil {
		return nil, wrap("coll: start recv", err)
	}
	c.messages.try()
	return p, nil
}

// check validates a member's number, or Any.
func (m *messages) check(member, tag int, any bool) error {
	c := m.c
	if any && member == Any {
		member = c.rank
	}
	if any && tag == Any {
		tag = 0
	}
	if member < 0 || member >= c.n {
		return fmt.Errorf("member %d of %d: %w", member, c.n, pe.ErrPeer)
	}
	if tag < 0 || int64(tag) > math.MaxInt32 {
		return fmt.Errorf("tag %d: %w", tag, pe.ErrRange)
	}
	if c.closed.Load() {
		return &pe.ClosedError{PE: -1}
	}
	return c.health.failed()
}

func (m *messages) postSend(to, tag int, src []byte, p *Pending) (*message, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(to, tag, false); err != nil { // with the lock, which Free's last look takes
		return nil, err
	}
	op := m.take()
	op.peer, op.tag, op.buf, op.p = to, tag, src, p
	m.began(op)
	if to == m.c.rank {
		if !m.c.ctx.Use() {
			m.finish(op, &pe.ClosedError{PE: m.c.p.Rank()})
			return op, nil
		}
		defer m.c.ctx.Unuse()
		m.toSelf(op)
		return op, nil
	}
	l := &m.links[to]
	l.queue = append(l.queue, op)
	m.sends++
	return op, nil
}

func (m *messages) postRecv(from, tag int, dst []byte, elem int, p *Pending) (*message, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(from, tag, true); err != nil {
		return nil, err
	}
	op := m.take()
	op.recv, op.peer, op.tag, op.buf, op.elem, op.p = true, from, tag, dst, elem, p
	m.began(op)
	if u := m.unmatched(op); u != nil {
		m.adopt(op, u)
	} else {
		m.posted = append(m.posted, op)
	}
	return op, nil
}
