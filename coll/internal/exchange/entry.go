package exchange

import (
	"encoding/binary"
	"fmt"

	"goshmem/coll/internal/plan"
	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// sendEntry lets a peer send: so many credits, behind what it has to know, and
// what is for it if that is short. With counts are those that the PEs of this
// node, all of which have entered the call, expect from it.
func (e *Engine) sendEntry(p *peer, credits uint64, counts *serve) (bool, error) {
	le, b := binary.LittleEndian, p.entryOut
	r := e.rows
	le.PutUint64(b, e.call)
	le.PutUint64(b[8:], uint64(r.dst.Region()))
	le.PutUint64(b[16:], r.dst.Offset()+uint64(r.recvAt[p.rank]))
	le.PutUint64(b[24:], uint64(r.recvN[p.rank]))
	n := plan.CreditBytes
	if !e.l.ch.Rounds {
		le.PutUint64(b[n:], uint64(r.sendN[p.rank]))
		n += plan.CountBytes
		if e.l.ch.Carried(r.sendN[p.rank]) {
			n += copy(b[n:], r.send(p.rank))
		}
	}
	if counts != nil {
		for d := range e.on {
			_, expected := e.expects(counts, d)
			le.PutUint64(b[n:], uint64(expected))
			n += plan.CountBytes
		}
	}
	t, err := rma.TryPutMemSignalNBI(e.c, e.mem.Ref.Add(uint64(e.l.entryAt(e.rank, e.parity))), b[:n], e.credit, rma.SignalAdd, credits, p.rank)
	if err != nil {
		return false, blocked(err)
	}
	e.track(t)
	e.moved = true
	return true, nil
}

// look reads a peer's entry, once its first credit is there, compares it with what
// this PE wants to send, and takes what it carries.
func (e *Engine) look(p *peer) (bool, error) {
	if p.ready {
		return true, nil
	}
	if e.creditsOf(p) == 0 {
		return false, nil
	}
	le, b := binary.LittleEndian, e.mem.Local[e.l.entryAt(p.rank, e.parity):][:e.l.entry]
	call, region := le.Uint64(b), le.Uint64(b[8:])
	at, n := le.Uint64(b[16:]), le.Uint64(b[24:])
	if call != e.call {
		return false, e.otherCall(p, call)
	}
	if n != uint64(e.rows.sendN[p.rank]) {
		return false, mismatch(e.c, p.rank, e.rank, p.rank, e.rows.sendN[p.rank], int64(n))
	}
	if region > 1<<16-1 {
		return false, &plan.HeaderError{What: "region", Want: 0, Have: int64(region)}
	}
	if p.round != nil {
		for d, j := range p.round.on {
			if n := le.Uint64(b[plan.CreditBytes+plan.CountBytes*d:]); n != uint64(e.rows.sendN[j]) {
				return false, mismatch(e.c, j, e.rank, j, e.rows.sendN[j], int64(n))
			}
		}
	}
	if !e.l.ch.Rounds {
		if err := e.takeCarried(p, b[plan.CreditBytes:]); err != nil {
			return false, err
		}
	}
	p.region = heap.MakeRef(e.mem.Ref.World(), uint16(region), 0)
	p.to = p.region.Add(at)
	p.ready = true
	return true, nil
}

// takeCarried copies what an entry carries to its place.
func (e *Engine) takeCarried(p *peer, b []byte) error {
	r := e.rows
	want := r.recvN[p.rank]
	if n := binary.LittleEndian.Uint64(b); n != uint64(want) {
		return mismatch(e.c, p.rank, p.rank, e.rank, int64(n), want)
	}
	if want > 0 && e.l.ch.Carried(want) {
		copy(r.local[r.recvAt[p.rank]:][:want], b[plan.CountBytes:])
	}
	return nil
}

func (e *Engine) otherCall(p *peer, call uint64) error {
	w, _ := e.c.Team().WorldRank(p.rank)
	return &pe.MismatchError{PE: w, Field: "call", Want: fmt.Sprint("alltoallv, number ", e.call), Have: fmt.Sprint("alltoallv, number ", call)}
}

// creditsOf is how many credits of this call a peer gave.
func (e *Engine) creditsOf(p *peer) uint64 {
	v := p.credits.Load()
	if debug {
		e.grew(p, v, &p.creditSeen)
	}
	return v - p.creditBase
}

// datasOf is how many data signals of this call a peer sent.
func (e *Engine) datasOf(p *peer) uint64 {
	v := p.datas.Load()
	if debug {
		e.grew(p, v, &p.dataSeen)
	}
	return v - p.dataBase
}
