package channel

import "math"

// maxPumps is how many batches of one lane a turn posts to a transport that sends
// them together.
const maxPumps = 8

// batchBytes bounds what one turn posts for one lane, so that a synchronous
// transport that copies does not keep the others waiting.
const batchBytes = 1 << 20

// turn does everything that can be done now. Under the role.
func (p *Proxy) turn() bool {
	moved := p.drain()
	p.gathered.Store(false)
	for _, h := range *p.hooks.Load() {
		if h.armed.Load() && h.step() {
			moved = true
		}
	}
	for _, l := range p.active {
		if p.push(l) {
			moved = true
		}
	}
	for _, t := range *p.transports.Load() {
		if t.Caps().Synchronous {
			continue
		}
		r, receives := t.(Receiver)
		if receives {
			r.Flush(true)
		}
		n := t.Poll(p.comps[:])
		moved = moved || receives && r.Received()
		for i := range n {
			c := &p.comps[i]
			c.Lane.complete(c.N, c.Err)
			*c = Completion{}
		}
		moved = moved || n > 0
	}
	for i := 0; i < len(p.active); {
		l := p.active[i]
		if l.queue.Len() > 0 || l.flight.Len() > 0 {
			i++
			continue
		}
		l.active = false
		last := len(p.active) - 1
		p.active[i], p.active[last] = p.active[last], nil
		p.active = p.active[:last]
		p.work.Add(-1)
	}
	return moved
}

// push hands over what a lane's window and budget admit in this turn.
func (p *Proxy) push(l *Lane) bool {
	moved := p.pump(l)
	for n := 1; moved && n < maxPumps && l.queue.Len() > 0 && !l.caps.Synchronous; n++ {
		if !p.pump(l) {
			break
		}
	}
	return moved
}

// drain moves everything published in the ring to its lanes.
func (p *Proxy) drain() bool {
	n := 0
	for ; n < p.ring.Cap(); n++ {
		d, local, pos, ok := p.ring.Front()
		if !ok {
			break
		}
		// Looked up behind the request: its context may be newer than this turn.
		l := (*p.ctxs.Load())[d.Ctx][d.PE].Load()
		e := entry{desc: *d, pos: pos}
		if d.Flags&FlagLocalPtr != 0 {
			e.ptr = local.Ptr
		}
		l.queue.Push(e)
		if !l.active {
			l.active = true
			p.active = append(p.active, l)
			p.work.Add(1)
		}
		p.ring.Advance()
	}
	if n > 0 {
		p.ring.Release()
	}
	return n > 0
}

// pump hands requests of a lane to its transport, as many as fit.
func (p *Proxy) pump(l *Lane) bool {
	if l.gate.Load()&gateLost != 0 {
		return l.abandon()
	}
	if !l.ready {
		if lost := l.connect(); lost || !l.ready {
			return lost
		}
	}
	if l.queue.Len() == 0 {
		return false
	}
	k, bad := p.cut(l)
	n := 0
	var err error
	if k > 0 {
		n, err = l.cfg.Transport.Post(l, p.reqs[:k])
		l.posted.Add(uint64(n))
	}
	failed := n < k && err != nil
	if !failed && n == k && bad != nil {
		failed, err = true, bad
	}
	for i := range n {
		l.flight.Push(flight{pos: p.reqs[i].Seq, ptr: p.reqs[i].Local, last: p.lasts[i]})
		if p.lasts[i] {
			l.copied.Store(p.reqs[i].Seq)
		}
	}
	at := l.cur
	if n > 0 {
		at = p.cursors[n-1]
	}
	if failed {
		// Request n is not taken: its operation ends here, whatever of it is left.
		e := l.queue.At(at.entry)
		l.setErr(e.pos, err)
		l.flight.Push(flight{pos: e.pos, last: true, done: true})
		at = cursor{entry: at.entry + 1}
	}
	for i := range k {
		p.reqs[i].Local = nil
	}
	l.drop(at)
	if l.caps.Synchronous {
		l.complete(n, nil)
	} else if failed {
		l.complete(0, nil)
	}
	return n > 0 || failed
}

// cut makes the lane's next requests, as many as its window and budget admit. bad is
// why the one behind them cannot be made.
func (p *Proxy) cut(l *Lane) (k int, bad error) {
	caps := &l.caps
	window := l.cfg.Window
	if caps.Window > 0 {
		window = min(window, caps.Window)
	}
	room := min(maxBatch, window-l.flight.Len())
	most := uint64(batchBytes)
	if !caps.Synchronous && caps.MaxMessage == 0 {
		most = math.MaxUint64 // it begins them, whatever their size
	}
	bytes := uint64(0)
	for c := l.cur; k < room && c.entry < l.queue.Len() && bytes < most; k++ {
		c, p.lasts[k], bad = l.next(c, caps.MaxMessage, &p.reqs[k])
		p.cursors[k] = c
		if bad != nil {
			break
		}
		bytes += p.reqs[k].Size
	}
	return k, bad
}

// abandon fails all that is left of a lost lane, and reports whether there was any.
func (l *Lane) abandon() bool {
	if !l.aborted {
		l.aborted = true
		l.cfg.Transport.Abort(l)
	}
	left := l.queue.Len()+l.flight.Len() > 0
	l.failAll(l.Err())
	return left
}

// connect goes on connecting, and reports whether that is given up.
func (l *Lane) connect() (lost bool) {
	ready, err := l.cfg.Transport.Connect(l)
	if err == nil && !ready {
		if e := l.gone.Load(); e != nil {
			err = *e
		}
	}
	if err != nil {
		l.shut(gateLost, err)
		return true
	}
	if ready {
		l.ready, l.caps = true, l.cfg.Transport.Caps()
	}
	return false
}
