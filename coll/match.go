package coll

import (
	"fmt"
	"slices"

	"goshmem/pe"
)

// accepts reports whether a receive takes a message.
func (op *message) accepts(source, tag int) bool {
	return (op.peer == Any || op.peer == source) && (op.tag == Any || op.tag == tag)
}

// match finds what to do with a message that begins to come: the first receive
// that takes it, or memory to keep it in. false: there is none, and the message
// stays where it is.
func (m *messages) match(l *mailLink, tag, total int) bool {
	for i, op := range m.posted {
		if op.accepts(l.pe, tag) {
			m.posted = slices.Delete(m.posted, i, i+1)
			op.match(l.pe, tag, total)
			l.into = op
			return true
		}
	}
	if keepCost(total) > m.c.cfg.Unexpected-m.bytes {
		m.crowdedOut(l)
		return false
	}
	l.keep = m.keep(l.pe, tag, total)
	return true
}

func (op *message) match(source, tag, total int) {
	op.matched, op.total = true, total
	op.status = Status{Source: source, Tag: tag}
}

// crowdedOut fails the receives from a member whose next message is another one,
// for which there is no room.
func (m *messages) crowdedOut(l *mailLink) {
	for i := 0; i < len(m.posted); {
		op := m.posted[i]
		if op.peer != l.pe {
			i++
			continue
		}
		m.posted = slices.Delete(m.posted, i, i+1)
		m.finish(op, fmt.Errorf("another message is before it, and %d B (Config.Unexpected) are kept already: %w", m.bytes, pe.ErrCapacity))
	}
}

// keepCost is what a message without a receive counts: it takes memory without a
// byte too.
func keepCost(total int) int64 { return int64(total) + 64 }

// keep makes room for a message without a receive.
func (m *messages) keep(source, tag, total int) *unclaimed {
	u := &unclaimed{source: source, tag: tag, buf: make([]byte, total)}
	m.kept = append(m.kept, u)
	m.bytes += keepCost(total)
	return u
}

// unmatched finds the first kept message that a receive takes, and takes it out.
func (m *messages) unmatched(op *message) *unclaimed {
	for i, u := range m.kept {
		if op.accepts(u.source, u.tag) {
			m.kept = slices.Delete(m.kept, i, i+1)
			m.bytes -= keepCost(len(u.buf))
			return u
		}
	}
	return nil
}

// adopt gives a kept message to a receive.
func (m *messages) adopt(op *message, u *unclaimed) {
	op.match(u.source, u.tag, len(u.buf))
	copy(op.buf, u.buf)
	if u.whole {
		m.received(op)
		return
	}
	l := &m.links[u.source]
	l.into, l.keep = op, nil
}

// received ends a receive whose message is there.
func (m *messages) received(op *message) {
	op.status.Count = op.total / op.elem
	m.finish(op, op.unfit())
}

// unfit is what is wrong with the message of a receive.
func (op *message) unfit() error {
	if op.total <= len(op.buf) && op.total%op.elem == 0 {
		return nil
	}
	return fmt.Errorf("message of %d B with tag %d from member %d for %d elements of %d B: %w",
		op.total, op.status.Tag, op.status.Source, len(op.buf)/op.elem, op.elem, pe.ErrRange)
}

// toSelf delivers a message from this PE to itself.
func (m *messages) toSelf(op *message) {
	me := m.c.rank
	for i, r := range m.posted {
		if r.accepts(me, op.tag) {
			m.posted = slices.Delete(m.posted, i, i+1)
			r.match(me, op.tag, len(op.buf))
			copy(r.buf, op.buf)
			m.received(r)
			m.finish(op, nil)
			return
		}
	}
	if keepCost(len(op.buf)) > m.c.cfg.Unexpected-m.bytes {
		m.finish(op, fmt.Errorf("%d B to this PE itself, with no receive waiting and %d B (Config.Unexpected) kept already: %w", len(op.buf), m.bytes, pe.ErrCapacity))
		return
	}
	u := m.keep(me, op.tag, len(op.buf))
	copy(u.buf, op.buf)
	u.whole = true
	m.finish(op, nil)
}
