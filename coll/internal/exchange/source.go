package exchange

import (
	"goshmem/coll/internal/plan"
	"goshmem/heap"
	"goshmem/rma"
)

// round is this PE as a source: what it sends to one node, through its rail peer
// there, in one round.
type round struct {
	k       int
	rail    *peer
	node    int
	on      []int
	own     []byte  // for the rail peer, if that does not go through its slots
	relayed []int64 // by local index on the node
	subs    int
	sub     int // next to send

	// Of that sub-round: what was done of it.
	stage   *stage // its header, and what is collected behind it; nil: not begun
	pieces  []plan.Piece
	length  int  // of the header, with what is collected
	headed  bool // header put, pieces follow one by one
	next    int  // piece
	slot    heap.Ref
	payload int64 // of the slot that was put
}

// stage is a buffer of this PE's symmetric memory, in use until its put is
// complete.
type stage struct {
	mem    []byte
	busy   bool
	ticket rma.Ticket
}

func (s *stage) free() bool {
	if s.busy {
		return false
	}
	return s.ticket.Done()
}

func (e *Engine) makeRounds() error {
	t := e.t
	e.rounds = make([]round, t.Rounds())
	for i := range e.rounds {
		k := i + 1
		q := t.Target(e.rank, k)
		node := t.Node(q)
		e.rounds[i] = round{
			k: k, rail: &e.peers[q], node: node, on: t.On(node),
			relayed: make([]int64, len(t.On(node))), pieces: make([]plan.Piece, 0, len(t.On(node))),
		}
		e.peers[q].round = &e.rounds[i]
	}
	e.stages = make([]stage, e.l.count)
	for i := range e.stages {
		e.stages[i].mem = e.mem.Local[e.l.stages+int64(i)*e.l.stage:][:e.l.stage:e.l.stage]
	}
	return e.makeBanks()
}

func (e *Engine) beginRounds() {
	e.sources = len(e.rounds)
	for i := range e.rounds {
		r := &e.rounds[i]
		sum := e.l.ch.Relayed(r.relayed, e.rank, r.node, func(d int) int64 { return e.rows.sendN[r.on[d]] })
		r.subs, r.sub, r.stage, r.own = e.l.z.Subs(sum), 0, nil, nil
		if q := r.rail.rank; e.l.ch.Way(e.rank, q, e.rows.sendN[q]) == plan.Rail {
			r.own = e.rows.send(q)
		}
	}
	e.beginBanks()
}

func (e *Engine) endRounds() {
	for i := range e.rounds {
		r := &e.rounds[i]
		r.rail.creditBase += uint64(max(e.grants(), r.subs))
	}
	e.endBanks()
	for i := range e.relays {
		e.relays[i].base += e.relays[i].want
	}
}

// sendRounds goes on with every round that has grants: a missing grant of one
// holds up no other.
func (e *Engine) sendRounds() error {
	for i := range e.rounds {
		r := &e.rounds[i]
		if r.sub == r.subs {
			continue
		}
		if err := e.sendRound(r); err != nil {
			return err
		}
		if r.sub == r.subs {
			e.sources--
		}
	}
	return nil
}

func (e *Engine) sendRound(r *round) error {
	for r.sub < r.subs && e.budget > 0 {
		if ok, err := e.mayPut(r); !ok {
			return err
		}
		if r.sub == r.subs-1 && r.rail.pos < int64(len(r.own)) {
			// The rail peer's own bytes are there before the last data signal.
			if ok, err := e.put(r.rail, r.rail.to, r.own, &r.rail.pos, heap.Signal{}); !ok {
				return err
			}
		}
		if r.stage == nil && !e.compose(r) {
			return nil // every buffer is on its way
		}
		if ok, err := e.putSlot(r); !ok {
			return err
		}
		r.stage = nil
		r.sub++
		e.moved = true
	}
	return nil
}

// mayPut tells whether the next sub-round's slot is granted, and its receiver
// known to expect as many bytes.
func (e *Engine) mayPut(r *round) (bool, error) {
	if e.mutation == NoGrants && (r.sub < r.subs-1 || len(r.own) == 0) {
		return true, nil
	}
	if ok, err := e.look(r.rail); !ok {
		return false, err
	}
	granted := e.creditsOf(r.rail)
	if debug && granted > uint64(max(e.grants(), r.subs)) {
		return false, broken(2, r.rail.rank, "more grants than a call can use")
	}
	return uint64(r.sub) < granted, nil
}

// compose makes the slot's header in a free buffer, and collects its pieces
// behind it if they are short.
func (e *Engine) compose(r *round) bool {
	r.stage = nil
	for i := range e.stages {
		if e.stages[i].free() {
			r.stage = &e.stages[i]
			break
		}
	}
	if r.stage == nil {
		return false
	}
	r.stage.busy = true
	z := &e.l.z
	r.pieces = z.Cut(r.pieces[:0], r.relayed, r.sub)
	h := plan.Header{Call: e.call, Round: r.k, Source: e.rank, Sub: r.sub, Subs: r.subs}
	r.payload = 0
	for _, p := range r.pieces {
		r.payload += p.Bytes
		if debug {
			h.Sum = plan.Checksum(h.Sum, e.bytesOf(r, p))
		}
	}
	r.length = h.EncodeTo(r.stage.mem, len(r.on), func(d int) int64 { return e.rows.sendN[r.on[d]] }, r.pieces)
	r.headed, r.next = false, 0
	if r.payload <= plan.GatherMax {
		for _, p := range r.pieces {
			r.length += copy(r.stage.mem[r.length:], e.bytesOf(r, p))
		}
		r.next = len(r.pieces)
	}
	at := z.At(r.k, e.t.Stream(e.rank, r.rail.rank), r.sub)
	r.slot = e.mem.Ref.Add(uint64(e.l.arena + at))
	return true
}

func (e *Engine) bytesOf(r *round, p plan.Piece) []byte {
	return e.rows.send(r.on[p.Dst])[p.Offset:][:p.Bytes]
}

// putSlot puts header and pieces, and raises the data signal behind them.
func (e *Engine) putSlot(r *round) (bool, error) {
	q := r.rail.rank
	if debug && uint64(r.sub) >= e.creditsOf(r.rail) {
		return false, broken(6, q, "a put goes into the lane before its grant is there")
	}
	if !r.headed {
		b := r.stage.mem[:r.length]
		var t rma.Ticket
		var err error
		if r.next == len(r.pieces) {
			t, err = rma.TryPutMemSignalNBI(e.c, r.slot, b, e.data, rma.SignalAdd, 1, q)
		} else {
			t, err = rma.TryPutMemNBI(e.c, r.slot, b, q)
		}
		if err != nil {
			return false, blocked(err)
		}
		e.track(t)
		r.stage.ticket, r.stage.busy = t, false
		r.headed = true
		r.slot = r.slot.Add(uint64(r.length))
		e.budget -= int64(r.length) + perPut
	}
	for r.next < len(r.pieces) {
		// Pieces that lie side by side in the source make one put.
		n := 1
		for r.next+n < len(r.pieces) && e.adjoins(r, r.pieces[r.next+n-1], r.pieces[r.next+n]) {
			n++
		}
		first := r.pieces[r.next]
		bytes := int64(0)
		for _, p := range r.pieces[r.next : r.next+n] {
			bytes += p.Bytes
		}
		b := e.rows.src[e.rows.sendAt[r.on[first.Dst]]+first.Offset:][:bytes]
		var t rma.Ticket
		var err error
		if r.next+n == len(r.pieces) {
			t, err = rma.TryPutMemSignalNBI(e.c, r.slot, b, e.data, rma.SignalAdd, 1, q)
		} else {
			t, err = rma.TryPutMemNBI(e.c, r.slot, b, q)
		}
		if err != nil {
			return false, blocked(err)
		}
		e.track(t)
		r.next += n
		r.slot = r.slot.Add(uint64(bytes))
		e.budget -= bytes + perPut
	}
	return true, nil
}

func (e *Engine) adjoins(r *round, a, b plan.Piece) bool {
	at := e.rows.sendAt
	return at[r.on[a.Dst]]+a.Offset+a.Bytes == at[r.on[b.Dst]]+b.Offset
}
