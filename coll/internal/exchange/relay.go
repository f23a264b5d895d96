package exchange

import (
	"encoding/binary"

	"goshmem/coll/internal/plan"
	"goshmem/heap"
	"goshmem/rma"
)

// bank is one round of this PE as a relay.
type bank struct {
	k       int
	serves  []serve // its sources, by stream
	free    bool    // the round before it in the bank is over
	granted int     // sources that have their first grants
	open    bool    // all have
	left    int     // sources not wholly forwarded
}

// serve is one source of a round.
type serve struct {
	source *peer
	stream int
	k      int
	subs   int // 0: not known yet

	granted   int // slots granted
	forwarded int // sub-rounds whose puts are begun
	released  int // of these, in order: complete, slots free
	done      bool

	got   []int64 // by local index: bytes forwarded
	slots []slot

	// Of the slot being forwarded.
	head plan.Header
	read bool  // head is decoded
	dst  int   // local index
	at   int64 // of its piece in the slot
	pos  int64 // bytes of the piece that were put
}

// slot is what is on the way out of one.
type slot struct{ tickets []rma.Ticket }

func (e *Engine) makeBanks() error {
	t := e.t
	e.banks = make([]bank, t.Rounds())
	for i := range e.banks {
		b := &e.banks[i]
		b.k = i + 1
		for stream, p := range t.Sources(nil, e.rank, b.k) {
			b.serves = append(b.serves, serve{
				source: &e.peers[p], stream: stream, k: b.k,
				got: make([]int64, len(e.on)), slots: make([]slot, e.l.z.Slots),
				head: plan.Header{Entries: make([]plan.Entry, len(e.on))},
			})
		}
	}
	e.scratch.relayed = make([]int64, len(e.on))
	e.scratch.pieces = make([]plan.Piece, 0, len(e.on))
	e.relays = make([]relay, len(e.on))
	for i := range e.relays {
		w, err := e.c.SignalCells(e.mem.Signals.At(2*len(e.peers) + i))
		if err != nil {
			return err
		}
		e.relays[i].words = w
	}
	return nil
}

func (e *Engine) beginBanks() {
	e.serving = 0
	for i := range e.relays {
		e.relays[i].owed = 0
	}
	for i := range e.banks {
		b := &e.banks[i]
		b.granted, b.free, b.open, b.left = 0, i < e.l.z.Banks, false, len(b.serves)
		for j := range b.serves {
			s := &b.serves[j]
			s.subs, s.granted, s.forwarded, s.released, s.done, s.read = 0, 0, 0, 0, false, false
			clear(s.got)
		}
		e.serving += len(b.serves)
	}
}

func (e *Engine) endBanks() {
	for i := range e.banks {
		for j := range e.banks[i].serves {
			s := &e.banks[i].serves[j]
			s.source.dataBase += uint64(s.subs)
		}
	}
}

// openBanks sends the first grants of rounds whose bank is free, once every rank
// of the node has entered the call: a round's entry, with as many grants as there
// are slots. The entry tells the counts that all of them expect, so that the
// source finds every disagreement before it sends, and nobody is through with a
// call in which there is one.
func (e *Engine) openBanks() error {
	for e.entered < len(e.on) {
		if j := e.on[e.entered]; j != e.rank {
			if ok, err := e.look(&e.peers[j]); !ok {
				return err
			}
		}
		e.entered++
	}
	for i := range e.banks {
		b := &e.banks[i]
		if !b.free || b.open {
			continue
		}
		for b.granted < len(b.serves) {
			s := &b.serves[b.granted]
			if ok, err := e.sendEntry(s.source, uint64(e.grants()), s); !ok {
				return err
			}
			s.granted = e.grants()
			b.granted++
		}
		b.open = true
		e.open++
		if len(b.serves) == 0 {
			e.over(b)
		}
	}
	return nil
}

// grants is how many slots a source is granted when its round begins.
func (e *Engine) grants() int {
	if e.mutation == TooManyGrants {
		return 2 * e.l.z.Slots
	}
	return e.l.z.Slots
}

// over frees the bank of a round whose sources are all forwarded.
func (e *Engine) over(b *bank) {
	if next := b.k - 1 + e.l.z.Banks; next < len(e.banks) {
		e.banks[next].free = true
	}
}

// serveRounds goes on with the duties of a relay.
func (e *Engine) serveRounds() error {
	for i := range e.banks {
		b := &e.banks[i]
		if !b.open || b.left == 0 {
			continue
		}
		for j := range b.serves {
			s := &b.serves[j]
			if s.done {
				continue
			}
			if err := e.serve(s); err != nil {
				return err
			}
			if s.done {
				e.serving--
				if b.left--; b.left == 0 {
					e.over(b)
				}
			}
		}
	}
	if e.owing > 0 {
		if err := e.tellEmpty(); err != nil {
			return err
		}
	}
	return e.openBanks()
}

// tellEmpty raises the forwarded signals of transfers without bytes, those to one
// destination together.
func (e *Engine) tellEmpty() error {
	for d := range e.relays {
		r := &e.relays[d]
		if r.owed == 0 {
			continue
		}
		if err := rma.TrySignal(e.c, e.forwarded, rma.SignalAdd, r.owed, e.on[d]); err != nil {
			return blocked(err)
		}
		e.owing -= int(r.owed)
		r.owed = 0
		e.moved = true
	}
	return nil
}

// serve goes on with one source: forwards what has come, releases what is
// forwarded.
func (e *Engine) serve(s *serve) error {
	for {
		before := s.forwarded + s.released
		if e.budget > 0 && (s.subs == 0 || s.forwarded < s.subs) && s.forwarded-s.released < e.l.z.Slots {
			sent := e.datasOf(s.source)
			if debug && sent > uint64(s.granted) {
				return broken(2, s.source.rank, "a slot was written without a grant")
			}
			if sent > uint64(s.forwarded) {
				if err := e.forward(s); err != nil {
					return err
				}
			}
		}
		if err := e.release(s); err != nil {
			return err
		}
		if s.forwarded+s.released == before {
			return nil
		}
		e.moved = true
	}
}

// release gives slots back, in order, whose bytes are where they belong.
func (e *Engine) release(s *serve) error {
	for s.released < s.forwarded {
		tickets := s.slots[s.released%len(s.slots)].tickets
		for _, t := range tickets {
			if !t.Done() {
				return nil
			}
			if err := t.Err(); err != nil {
				return err
			}
		}
		if s.granted < s.subs {
			if err := rma.TrySignal(e.c, e.credit, rma.SignalAdd, 1, s.source.rank); err != nil {
				return blocked(err)
			}
			s.granted++
		}
		s.slots[s.released%len(s.slots)].tickets = tickets[:0]
		s.released++
	}
	s.done = s.subs > 0 && s.released == s.subs
	return nil
}

// forward goes on with the next slot of a source: each piece to its destination.
// With the first slot the source's counts for all ranks of the node are compared
// with what they expect; it has done that itself, but is not trusted.
func (e *Engine) forward(s *serve) error {
	z := &e.l.z
	at := z.At(s.k, s.stream, s.forwarded)
	mem := e.mem.Local[e.l.arena+at:][:z.SlotBytes]
	if !s.read {
		if err := e.readHead(s, mem); err != nil {
			return err
		}
	}
	for ; s.dst < len(e.on); s.dst++ {
		n := s.head.Entries[s.dst]
		if n.Bytes == 0 && s.forwarded > 0 {
			continue
		}
		to, ok, err := e.place(s, n)
		if !ok {
			return err
		}
		if n.Bytes == 0 {
			if n.Total == 0 && e.l.ch.Way(s.source.rank, e.on[s.dst], 0) == plan.Relayed {
				e.relays[s.dst].owed++
				e.owing++
			}
			continue
		}
		p := &e.peers[e.on[s.dst]]
		var sig heap.Signal
		if n.Offset+n.Bytes == n.Total {
			sig = e.forwarded // the last byte of the pair
		}
		held := len(e.tickets)
		ok, err = e.put(p, to.Add(uint64(n.Offset)), mem[s.at:][:n.Bytes], &s.pos, sig)
		slot := &s.slots[s.forwarded%len(s.slots)]
		slot.tickets = append(slot.tickets, e.tickets[held:]...)
		e.tickets = e.tickets[:held]
		if !ok {
			return err
		}
		if debug && n.Offset != s.got[s.dst] {
			return broken(3, s.source.rank, "bytes of a pair with a gap or twice")
		}
		s.got[s.dst] += n.Bytes
		s.at += n.Bytes
		s.pos = 0
	}
	s.read = false
	s.forwarded++
	return nil
}

// readHead decodes and checks the header of the next slot.
func (e *Engine) readHead(s *serve, mem []byte) error {
	z := &e.l.z
	if err := s.head.Decode(mem, z.Payload); err != nil {
		return err
	}
	if s.head.Call != e.call {
		return e.otherCall(s.source, s.head.Call)
	}
	x := plan.Expect{Call: e.call, Round: s.k, Source: s.source.rank, Sub: s.forwarded}
	if err := s.head.Check(x, z, &e.l.ch, e.node, e.scratch.relayed, e.scratch.pieces); err != nil {
		return err
	}
	s.at, s.dst, s.pos, s.read = s.head.Bytes(), 0, 0, true
	s.subs = s.head.Subs
	if debug {
		n := int64(0)
		for i := range s.head.Entries {
			n += s.head.Entries[i].Bytes
		}
		if plan.Checksum(0, mem[s.at:][:n]) != s.head.Sum {
			return broken(1, s.source.rank, "a slot's bytes are not there when its data signal is")
		}
	}
	return nil
}

// place is where a source's bytes go to at the destination that is next, which
// must have entered the call; false: not yet. The source's count is compared with
// the destination's.
func (e *Engine) place(s *serve, n plan.Entry) (to heap.Ref, ok bool, err error) {
	j := e.on[s.dst]
	p := &e.peers[j]
	if j != e.rank {
		if ok, err := e.look(p); !ok {
			return heap.Ref{}, false, err
		}
	}
	at, want := e.expects(s, s.dst)
	if want != n.Total {
		return heap.Ref{}, false, mismatch(e.c, s.source.rank, s.source.rank, j, want, n.Total)
	}
	return p.region.Add(at), true, nil
}

// expects is where a rank of the node, which has entered the call, wants the
// bytes of a source, and how many.
func (e *Engine) expects(s *serve, local int) (at uint64, n int64) {
	if e.on[local] == e.rank {
		return e.rows.dst.Offset() + uint64(e.rows.recvAt[s.source.rank]), e.rows.recvN[s.source.rank]
	}
	row := e.mem.Local[e.l.rowAt(local, e.parity):]
	b := row[int64((s.k-1)*e.t.Streams()+s.stream)*plan.RowBytes:]
	return binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:]))
}

// putRow tells a near peer, which relays for this PE, where the bytes of each
// source that it serves belong.
func (e *Engine) putRow(p *peer) (bool, error) {
	if len(p.served) == 0 {
		return true, nil
	}
	end := 0
	for _, v := range p.served {
		b := p.rowOut[v.index*plan.RowBytes:]
		binary.LittleEndian.PutUint64(b, e.rows.dst.Offset()+uint64(e.rows.recvAt[v.source]))
		binary.LittleEndian.PutUint64(b[8:], uint64(e.rows.recvN[v.source]))
		end = (v.index + 1) * plan.RowBytes
	}
	at := e.mem.Ref.Add(uint64(e.l.rowAt(e.t.Local(e.rank), e.parity)))
	t, err := rma.TryPutMemNBI(e.c, at, p.rowOut[:end], p.rank)
	if err != nil {
		return false, blocked(err)
	}
	e.track(t)
	return true, nil
}
