package coll

import (
	"goshmem/channel"
)

// StartSync begins a Sync of the Comm's team: it is complete when every member
// has started it.
func StartSync(c *Comm) (*Pending, error) {
	if c == nil {
		return nil, wrap("coll: start sync", errNoComm)
	}
	return c.start(&rounds{call: "sync", sig: sign(kindSync, 0, 0, 0, 0)}, nil)
}

// StartBarrier begins a Barrier of the Comm's team: it is complete when every
// member has started it and every operation that any of them issued before is
// complete and visible.
func StartBarrier(c *Comm) (*Pending, error) {
	if c == nil {
		return nil, wrap("coll: start barrier", errNoComm)
	}
	r := &rounds{call: "barrier", sig: sign(kindBarrier, 0, 0, 0, 0)}
	for _, x := range c.p.Contexts() {
		r.groups = append(r.groups, x.Group())
		for i := range x.Size() {
			if l := x.Lane(i); l != nil && l.Pending() > 0 {
				r.marks = append(r.marks, mark{l, l.LastQueued()})
			}
		}
	}
	return c.start(r, nil)
}

// rounds is a dissemination barrier (see barrier) of messages, after this PE's
// operations until then are complete.
type rounds struct {
	call   string
	sig    signature
	marks  []mark
	groups []*channel.Group
	failed error // an operation did before
	ready  bool
	d      int  // distance of the round
	told   bool // the round's message is sent
}

// mark is a place in a lane.
type mark struct {
	l *channel.Lane
	n uint64
}

func (r *rounds) name() string { return r.call }

func (r *rounds) signature() signature { return r.sig }

func (r *rounds) step(c *Comm) (bool, error) {
	for len(r.marks) > 0 {
		if m := r.marks[0]; m.l.Pending() > 0 && m.l.QueuedAcked() < m.n {
			c.stuck = true
			return false, nil
		}
		r.marks = r.marks[1:]
	}
	for len(r.groups) > 0 {
		if err := r.groups[0].TakeFailure(); err != nil && r.failed == nil {
			r.failed = err
		}
		r.groups = r.groups[1:]
	}
	if !r.ready {
		r.ready, r.d = true, 1
		c.ctx.MemoryBarrier()
	}
	for r.d < c.n {
		if !r.told {
			ok, err := c.send(&c.core.links[(c.rank+r.d)%c.n], r, 0, uint64(r.d), nil, nil)
			if !ok {
				return false, err
			}
			r.told = true
		}
		l := &c.core.links[(c.rank-r.d+c.n)%c.n]
		h, err := c.peek(l, 0, true)
		if h == nil {
			return false, err
		}
		if h.arg != uint64(r.d) {
			return false, c.wrongLength(l, r.d, h.arg)
		}
		if err := c.pop(l); err != nil {
			return false, err
		}
		r.d *= 2
		r.told = false
	}
	c.ctx.MemoryBarrier()
	c.result = r.failed
	return c.flush()
}
