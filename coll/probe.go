package coll

import (
	"errors"

	"goshmem/amo"
	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// probe is a look at a member's word, on its way.
type probe struct {
	v     uint64
	t     rma.Ticket
	asked bool
	stale bool // the answer does not count
	last  uint64
	seen  bool // last is an answer
}

// probe looks at a member's word: got says that v is an answer, gone that there
// will be none. It asks again after each answer.
func (c *Comm) probe(i int) (v uint64, got, gone bool) {
	if c.probes == nil {
		c.probes = make([]probe, c.n)
	}
	p := &c.probes[i]
	if !p.asked {
		t, err := amo.TryFetchAddNBI(c.ctx, &p.v, heap.MakePtr[uint64](c.stateAt), 0, i)
		if err != nil {
			return 0, false, !errors.Is(err, pe.ErrWouldBlock)
		}
		p.t, p.asked, p.stale = t, true, false
	}
	if !p.t.Done() {
		return 0, false, false
	}
	p.asked = false
	if p.stale {
		p.stale = false
		return 0, false, false
	}
	if p.t.Err() == nil {
		p.last, p.seen = p.v, true
	}
	return p.v, p.t.Err() == nil, p.t.Err() != nil
}

// suspectMembers looks for a member that is in the call of this number and means
// another one. It would be noticed by its messages, but it may have none for this
// PE.
func (c *Comm) suspectMembers() error {
	mine := c.core.sig.word(c.calls)
	for i := range c.n {
		if i == c.rank {
			continue
		}
		v, got, _ := c.probe(i)
		if !got || v>>48 != mine>>48 || v&^inCall == mine || v>>42&0x3f == 0 {
			continue // in another call still, in the same one, or in a refused one
		}
		for _, f := range shown() {
			if mask := uint64(1)<<f.bits - 1; v>>f.shift&mask != mine>>f.shift&mask {
				return &pe.MismatchError{PE: c.world[i], Field: f.name}
			}
		}
	}
	return nil
}
