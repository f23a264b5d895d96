package exchange

import (
	"goshmem/heap"
	"goshmem/rma"
)

// sendAll goes on with near and straight transfers whose credits are there.
func (e *Engine) sendAll() error {
	kept := 0
	var failed error
	for i, j := range e.sendTo {
		p := &e.peers[j]
		done := false
		if failed == nil && e.budget > 0 {
			if done, failed = e.look(p); done && !e.l.ch.Carried(e.rows.sendN[j]) {
				done, failed = e.put(p, p.to, e.rows.send(j), &p.pos, e.data)
			}
		}
		if !done {
			if kept != i {
				e.sendTo[kept] = j
			}
			kept++
		}
	}
	e.sendTo = e.sendTo[:kept]
	return failed
}

// put goes on with a put to a peer, of which pos bytes were done before; sig (if
// it is one) is raised with the last. It reports whether all is done.
func (e *Engine) put(p *peer, to heap.Ref, b []byte, pos *int64, sig heap.Signal) (bool, error) {
	if debug && !p.ready {
		return false, broken(4, p.rank, "a put before its receiver entered the call")
	}
	signal := sig != heap.Signal{}
	for {
		rest := b[*pos:]
		n := len(rest)
		if p.inline && n > e.piece {
			if !e.prompt && e.idle(p) {
				// The caller's own stores, in the copy's best size.
				return true, e.putWhole(p, to.Add(uint64(*pos)), rest, pos, sig)
			}
			n = e.piece
		}
		last := n == len(rest)
		var t rma.Ticket
		var err error
		switch {
		case last && signal && n == 0:
			err = rma.TrySignal(e.c, sig, rma.SignalAdd, 1, p.rank)
		case last && signal:
			t, err = rma.TryPutMemSignalNBI(e.c, to.Add(uint64(*pos)), rest[:n], sig, rma.SignalAdd, 1, p.rank)
		case n > 0:
			t, err = rma.TryPutMemNBI(e.c, to.Add(uint64(*pos)), rest[:n], p.rank)
		}
		if err != nil {
			return false, blocked(err)
		}
		e.track(t)
		e.moved = true
		e.budget -= int64(n) + perPut
		*pos += int64(n)
		if last {
			return true, nil
		}
		if e.budget <= 0 {
			return false, nil
		}
	}
}

// perPut is what a put costs of a step's budget besides its bytes.
const perPut = 4 << 10

// idle tells whether a put to a peer is done at once.
func (e *Engine) idle(p *peer) bool {
	l := e.c.Lane(p.rank)
	return l != nil && l.Pending() == 0
}

func (e *Engine) putWhole(p *peer, to heap.Ref, b []byte, pos *int64, sig heap.Signal) error {
	*pos += int64(len(b))
	e.moved = true
	e.budget -= int64(len(b))
	signal := sig != heap.Signal{}
	if signal && !e.stream {
		return rma.PutMemSignal(e.c, to, b, sig, rma.SignalAdd, 1, p.rank)
	}
	if err := e.store(to, b, p.rank); err != nil || !signal {
		return err
	}
	return rma.Signal(e.c, sig, rma.SignalAdd, 1, p.rank)
}

// store puts by this PE's own stores, past the caches if the call does not fit them.
func (e *Engine) store(to heap.Ref, b []byte, rank int) error {
	if !e.stream {
		return rma.PutMem(e.c, to, b, rank)
	}
	t, err := rma.PutMemStream(e.c, to, b, rank)
	e.track(t)
	return err
}

// copySelf goes on with the own part.
func (e *Engine) copySelf() error {
	r := e.rows
	src := r.send(e.rank)
	dst := r.local[r.recvAt[e.rank]:][:len(src)]
	if &src[0] == &dst[0] {
		e.self = int64(len(src)) // in place
		return nil
	}
	p := &e.peers[e.rank]
	for int(e.self) < len(src) && e.budget > 0 {
		n := min(len(src)-int(e.self), copyPiece)
		if p.inline && !e.prompt {
			if err := e.store(r.dst.Add(uint64(r.recvAt[e.rank]+e.self)), src[e.self:][:n], e.rank); err != nil {
				return err
			}
		} else {
			n = copy(dst[e.self:], src[e.self:][:min(n, e.piece)])
		}
		e.self += int64(n)
		e.budget -= int64(n)
		e.moved = true
		if len(e.sendTo) > 0 && e.self < int64(len(src)) {
			return nil // look whether somebody may be sent to
		}
	}
	return nil
}

// copyPiece is the most of the own part that is copied between two looks at the
// others.
const copyPiece = 1 << 20
