package rdma

import (
	"fmt"

	"goshmem/ibrc"
	"goshmem/internal/verbs"
)

// Poll reaps completions of requests, then messages.
func (p *Provider) Poll(out []ibrc.WC) (n int) {
	if len(p.early) > 0 {
		n = copy(out, p.early)
		p.early = append(p.early[:0], p.early[n:]...)
		return n
	}
	p.inbox = p.inbox[:0]
	if p.polls++; p.polls%eventEvery == 0 {
		p.events()
	}
	for n < len(out) && len(p.lost) > 0 {
		out[n] = p.lost[0]
		p.lost = p.lost[1:]
		n++
	}
	p.stats.Polls++
	wcs, err := p.cq.Poll(len(out) - n)
	if err != nil {
		p.failAll(err)
	}
	for i := range wcs {
		if p.completed(&wcs[i], &out[n]) {
			n++
		}
	}
	if n == len(out) || len(p.qps) == 0 {
		return n
	}
	wcs, err = p.rcq.Poll(len(out) - n)
	if err != nil {
		p.failAll(err)
	}
	for i := range wcs {
		if p.received(&wcs[i], &out[n]) {
			n++
		}
	}
	return n
}

// of is the queue pair that a completion belongs to; nil: it was destroyed.
func (p *Provider) of(wc *verbs.WC) *qp {
	if tag := wc.ID >> idBits; tag < uint64(len(p.qps)) {
		return p.qps[tag]
	}
	return nil
}

// completed turns a completion of a request into ibrc's. Of a queue pair that
// failed the first one counts.
func (p *Provider) completed(wc *verbs.WC, out *ibrc.WC) bool {
	q := p.of(wc)
	if q == nil || q.failed {
		return false
	}
	id := q.last&^uint64(idMask) | wc.ID&idMask
	if id > q.last {
		id -= 1 << idBits
	}
	*out = ibrc.WC{Tag: q.cfg.Tag, ID: id}
	if wc.Status == verbs.WCSuccess {
		q.settle(id)
		return true
	}
	if id > 0 {
		q.settle(id - 1)
	}
	q.failed, q.state = true, ibrc.StateError
	out.Err = &ibrc.StatusError{
		Op: q.ops[id%uint64(len(q.ops))], Status: ibrc.Status(wc.Status),
		Detail: fmt.Sprintf("%s, vendor error %#x; from %s port %d (%v) to pe %d (%v)",
			p.lib.StatusText(wc.Status), wc.VendorErr, p.c.Name, p.e.port, q.me, q.cfg.Remote, q.peer),
	}
	return true
}

// received turns a message into ibrc's completion and posts its buffer anew. The
// copy is good until the next Poll.
func (p *Provider) received(wc *verbs.WC, out *ibrc.WC) bool {
	q := p.of(wc)
	if q == nil || wc.Status != verbs.WCSuccess {
		return false // flushed, or of a queue pair that is gone
	}
	i, at := int(wc.ID&idMask), len(p.inbox)
	p.inbox = append(p.inbox, q.mem[i*sendMax:][:wc.ByteLen]...)
	*out = ibrc.WC{Tag: q.cfg.Tag, Msg: p.inbox[at:]}
	if err := q.receive(i); err != nil {
		p.fail(q, err)
	}
	return true
}

// events looks for asynchronous events: a queue pair in error, a port that went
// down, a device that died.
func (p *Provider) events() {
	for {
		ev, ok, err := p.c.Event()
		if err != nil {
			p.env.Log.Error("rdma: events", "err", err)
		}
		if !ok || err != nil {
			return
		}
		text := p.lib.EventText(ev.Type)
		p.env.Log.Warn("rdma: event", "device", p.c.Name, "event", text, "port", ev.Port, "qp", ev.QPN)
		p.happened(ev, fmt.Errorf("%s: %s", p.c.Name, text))
	}
}

// happened fails the queue pairs that an event is fatal to. A port that went down is not:
// what is under way is sent again when it is back, or ends by its retries.
func (p *Provider) happened(ev verbs.Event, why error) {
	switch ev.Type {
	case verbs.EventDeviceFatal, verbs.EventCQErr:
		p.failAll(why)
	case verbs.EventQPFatal, verbs.EventQPAccessErr, verbs.EventQPReqErr:
		for _, q := range p.qps {
			if q != nil && q.me.qpn == ev.QPN {
				p.fail(q, why)
			}
		}
	}
}

// failAll reports an error of the device at every queue pair, once.
func (p *Provider) failAll(err error) {
	for _, q := range p.qps {
		if q != nil {
			p.fail(q, err)
		}
	}
}

// fail reports a queue pair's error with the next completions.
func (p *Provider) fail(q *qp, err error) {
	if q.failed {
		return
	}
	q.failed, q.state = true, ibrc.StateError
	p.lost = append(p.lost, ibrc.WC{Tag: q.cfg.Tag, ID: q.last + 1, Err: fmt.Errorf("rdma: %w", err)})
}
