package exchange

import (
	"goshmem/coll/internal/plan"
	"goshmem/heap"
	"goshmem/rma"
)

// Begin takes a call: number call on every member, which tells calls of different
// kinds apart. prompt says that a hook steps it. rows belong to the engine until
// the call is over.
func (e *Engine) Begin(call uint64, rows *Rows, prompt bool) {
	e.call, e.rows, e.prompt = call, rows, prompt
	e.parity ^= 1
	e.told, e.open, e.arrived, e.self, e.rowed = 0, 0, 0, 0, false
	e.entered, e.owing = 0, 0
	e.sendTo, e.in = e.sendTo[:0], e.in[:0]
	for i := range e.relays {
		e.relays[i].want = 0
	}
	ch := &e.l.ch
	e.stream = rows.bytes()*int64(len(e.on)) > streamFrom
	for _, j := range e.order {
		p := &e.peers[j]
		p.ready, p.pos = false, 0
		switch ch.Way(e.rank, j, rows.sendN[j]) {
		case plan.Near, plan.Straight:
			e.sendTo = append(e.sendTo, j)
		}
		switch ch.Way(j, e.rank, rows.recvN[j]) {
		case plan.Near, plan.Straight:
			e.in = append(e.in, j)
		case plan.Relayed:
			e.relays[e.t.Local(e.t.Relay(j, e.rank))].want++
		}
	}
	if ch.Rounds {
		me := &e.peers[e.rank] // as a destination of its own relaying
		me.ready, me.region = true, heap.MakeRef(e.mem.Ref.World(), rows.dst.Region(), 0)
		e.beginRounds()
	}
}

// streamFrom is from how many bytes, read and written by the PEs of a node in a call,
// puts go past the caches; the others of a node are taken to have as many as this PE.
// On two cores with 32 MiB of L3, 2 and 8 PEs: up to 16 MiB in all that is slower or
// makes no difference, from 32 MiB on it takes a quarter of the time off.
const streamFrom = 24 << 20

// Moved tells whether the last step did anything.
func (e *Engine) Moved() bool { return e.moved }

// budgets of a step, in bytes: one under the proxy's role is prompt, one of a
// caller in its wait looks up now and then.
const (
	promptBytes  = 1 << 20
	patientBytes = 16 << 20
)

// Step goes on with the call as far as it can, and tells whether it is over:
// everything received, everything sent complete. It never waits.
func (e *Engine) Step() (done bool, err error) {
	e.moved = false
	e.budget = patientBytes
	if e.prompt {
		e.budget = promptBytes
	}
	if e.told < len(e.in) || e.open < len(e.banks) {
		if err := e.publish(); err != nil {
			return false, err
		}
	}
	if len(e.sendTo) > 0 {
		if err := e.sendAll(); err != nil {
			return false, err
		}
	}
	if e.self < e.rows.sendN[e.rank] {
		if err := e.copySelf(); err != nil {
			return false, err
		}
		if len(e.sendTo) > 0 {
			if err := e.sendAll(); err != nil { // credits that came meanwhile
				return false, err
			}
		}
	}
	if e.sources > 0 {
		if err := e.sendRounds(); err != nil {
			return false, err
		}
	}
	if e.serving > 0 || e.owing > 0 {
		if err := e.serveRounds(); err != nil {
			return false, err
		}
	}
	if e.told < len(e.in) || e.open < len(e.banks) || len(e.sendTo) > 0 || e.self < e.rows.sendN[e.rank] ||
		e.sources > 0 || e.serving > 0 || e.owing > 0 {
		return false, e.reap()
	}
	if ok, err := e.allArrived(); err != nil {
		return false, err
	} else if !ok {
		return false, e.reap()
	}
	if len(e.tickets) > 0 {
		if err := e.reap(); err != nil || len(e.tickets) > 0 {
			return false, err
		}
	}
	return true, e.end()
}

// publish sends the entry credits of near and straight sources, then opens the
// first banks.
func (e *Engine) publish() error {
	for e.told < len(e.in) {
		p := &e.peers[e.in[e.told]]
		if p.rowOut != nil && !e.rowed {
			if ok, err := e.putRow(p); !ok {
				return err
			}
			e.rowed = true
		}
		if ok, err := e.sendEntry(p, 1, nil); !ok {
			return err
		}
		e.rowed = false
		e.told++
	}
	return e.openBanks()
}

// allArrived tells whether everything for this PE is there, its own duties as a
// relay apart.
func (e *Engine) allArrived() (bool, error) {
	for e.arrived < len(e.in) {
		p := &e.peers[e.in[e.arrived]]
		if e.l.ch.Carried(e.rows.recvN[p.rank]) {
			if ok, err := e.look(p); !ok {
				return false, err
			}
		} else if e.datasOf(p) == 0 {
			return false, nil
		}
		e.arrived++
		e.moved = true
	}
	for i := range e.relays {
		if r := &e.relays[i]; r.want > 0 && r.words.Load()-r.base < r.want {
			return false, nil
		}
	}
	return true, nil
}

// track remembers an operation that is not complete.
func (e *Engine) track(t rma.Ticket) {
	if !t.Done() || t.Err() != nil {
		e.tickets = append(e.tickets, t)
	}
}

// reap forgets operations that are complete; the error is of one that failed.
func (e *Engine) reap() error {
	n := 0
	for n < len(e.tickets) && e.tickets[n].Done() {
		if err := e.tickets[n].Err(); err != nil {
			return err
		}
		n++
	}
	if n > 0 {
		e.tickets = e.tickets[:copy(e.tickets, e.tickets[n:])]
		e.moved = true
	}
	return nil
}

// end counts what this call used up.
func (e *Engine) end() error {
	r := e.rows
	ch := &e.l.ch
	for _, j := range e.order {
		p := &e.peers[j]
		switch ch.Way(e.rank, j, r.sendN[j]) {
		case plan.Near, plan.Straight:
			p.creditBase++
		}
		switch ch.Way(j, e.rank, r.recvN[j]) {
		case plan.Near, plan.Straight:
			if !e.l.ch.Carried(r.recvN[j]) {
				p.dataBase++
			}
		}
	}
	e.endRounds()
	if debug {
		return e.settled()
	}
	return nil
}
