package coll

import "goshmem/rma"

// core is what the collectives that talk by messages keep.
type core struct {
	links   []link
	slots   uint64
	enough  uint64 // messages taken that are told of by themselves
	piece   int    // most payload of a message
	sig     signature
	tickets []rma.Ticket // operations on callers' buffers, oldest first
	owed    int          // links that owe word of it
	trees   []*tree      // by root and shape

	// The blocking calls' machines.
	flow    flow
	strided strided
	collect collect
	red     reduction
	chain   chain

	// Memory that calls get when they first need it, and keep.
	acc   []float32 // bf16: the sums of one piece
	spare []byte    // a piece of sums where the destination may not be used yet
	sums  []byte    // of a scan: a piece for each slot
	read  [2][]byte // pieces of offered sources
	pack  []byte    // strided buffers, packed
}

// row is where a source's queue is among those of a receiver.
func row(source, receiver int) int {
	if source < receiver {
		return source
	}
	return source - 1
}

func coreNeed(g geometry, cfg Config) need {
	slots := int64(g.n-1) * int64(cfg.Slots)
	return need{
		signals: 2 * g.n, // data and credit of each member
		zeroed:  lineBytes + slots*headBytes,
		bytes:   slots * int64(cfg.SlotBytes),
	}
}

func (c *Comm) attachCore(r region) (err error) {
	if c.state, err = wordAt(c.ctx, r.zeroed); err != nil {
		return err
	}
	c.stateAt = r.zeroed
	k := &c.core
	k.slots, k.piece = uint64(c.cfg.Slots), c.cfg.SlotBytes
	k.enough = (k.slots + 1) / 2
	k.links = alone[link](c.n)
	for q := range k.links {
		if l := &k.links[q]; q != c.rank {
			l.pe = q
			if err := c.attachLink(r, l); err != nil {
				return err
			}
		}
	}
	k.flow.make(c.n)
	k.collect.make(c.n)
	k.red.make(c.n)
	return nil
}

func (c *Comm) attachLink(r region, l *link) (err error) {
	q, slots := l.pe, c.cfg.Slots
	// Signal i is what member i writes, here as there: as a sender in the first
	// half, as a receiver in the second.
	if l.arrived, err = c.ctx.SignalCells(r.sigs.At(q)); err != nil {
		return err
	}
	if l.credit, err = c.ctx.SignalCells(r.sigs.At(c.n + q)); err != nil {
		return err
	}
	l.data, l.back = r.sigs.At(c.rank), r.sigs.At(c.n+c.rank)
	there, here := row(c.rank, q)*slots, row(q, c.rank)*slots // first slots
	heads := r.zeroed.Add(lineBytes)
	l.heads = heads.Add(uint64(there * headBytes))
	l.slots = r.ref.Add(uint64(there) * uint64(c.cfg.SlotBytes))
	l.head = r.zeroMem[lineBytes+here*headBytes:][:slots*headBytes]
	l.mem = r.mem[here*c.cfg.SlotBytes:][:slots*c.cfg.SlotBytes]
	l.stage = alone[byte](slots * headBytes)
	l.tickets = alone[rma.Ticket](slots)
	l.flagged = alone[uint64](slots)
	l.near = c.near(q)
	if !c.nearTo(q) {
		return nil
	}
	for i := range slots {
		w, err := wordAt(c.ctx, heads.Add(uint64((here+i)*headBytes)))
		if err != nil {
			return err
		}
		l.flags = append(l.flags, w)
	}
	return nil
}

// near reports whether this PE reaches a member's memory by load and store.
func (c *Comm) near(q int) bool {
	info, _ := c.p.Peer(c.world[q])
	return info.Path == "direct"
}

// nearTo reports whether a member said so of this PE.
func (c *Comm) nearTo(q int) bool {
	b := c.reach[q]
	return len(b) > c.rank/8 && b[c.rank/8]>>(c.rank%8)&1 == 1
}

// reaches are the members near this PE, a bit each.
func (c *Comm) reaches() []byte {
	b := make([]byte, (c.n+7)/8)
	for q := range c.n {
		if c.near(q) {
			b[q/8] |= 1 << (q % 8)
		}
	}
	return b
}
