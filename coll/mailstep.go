package coll

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"goshmem/pe"
	"goshmem/rma"
)

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
