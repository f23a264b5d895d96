package ibrc

import (
	"errors"
	"fmt"
	"slices"

	"goshmem/channel"
	"goshmem/internal/errs"
)

// mail is a handle message on its way in.
type mail struct {
	local, from int
	h           handle
}

// Connect gets a lane its queue pair: one that the peer began, or a new one.
func (t *Transport) Connect(l *channel.Lane) (bool, error) {
	q, _ := l.State().(*pair)
	if q == nil {
		cfg := l.Config()
		k := pairKey{cfg.Owner, cfg.Peer, cfg.Slot}
		q = t.pairs[k]
		if q == nil {
			var err error
			if q, err = t.newPair(k); err != nil {
				return false, err
			}
		}
		if q.lane != nil && q.reqs.Len() > 0 {
			return false, nil // an earlier context's, which is about to end
		}
		q.lane = l
		l.SetState(q)
	}
	if !q.ready && q.failed == nil {
		t.progress(q)
	}
	if q.cut {
		return false, nil
	}
	return q.ready && q.failed == nil, q.failed
}

// progress takes a queue pair a step nearer to RTS.
func (t *Transport) progress(q *pair) {
	if q.failed != nil || q.ready {
		return
	}
	if q.local == q.remote {
		q.keys, q.peer, q.sent = t.keysOf(q.local), q.qp.Handle(), true
	}
	if !q.sent && !t.tell(q, handle{lane: q.pairKey.lane, keys: t.keysOf(q.local), qp: q.qp.Handle()}) {
		return
	}
	q.sent = true
	if q.peer == nil {
		return
	}
	ready, err := q.qp.Connect(q.peer)
	if err != nil {
		t.fail(q, 0, err)
		return
	}
	if !t.lim.Confirm || q.local == q.remote {
		q.ready = ready
		return
	}
	if ready && !q.told {
		q.told = t.tell(q, handle{lane: q.pairKey.lane, done: true})
	}
	q.ready = q.told && q.peerDone
}

// tell sends the peer a handle; false: not now, or the pair has failed.
func (t *Transport) tell(q *pair, h handle) bool {
	err := t.env.Send(q.local, q.remote, encodeHandle(h))
	if err != nil && !errors.Is(err, errs.ErrWouldBlock) {
		q.failed = fmt.Errorf("ibrc: handle to pe %d: %w", q.remote, err)
	}
	return err == nil
}

func (t *Transport) keysOf(pe int) (keys [regions]RemoteKey) {
	for r, mr := range t.mrs[pe] {
		keys[r] = mr.Key()
	}
	return keys
}

// Deliver takes a peer's handle, in any order, from the bootstrap's goroutine.
func (t *Transport) Deliver(local, from int, msg []byte) error {
	h, err := decodeHandle(msg)
	if err != nil {
		return err
	}
	if !slices.Contains(t.env.Local, local) || from < 0 || from >= t.env.Size {
		return fmt.Errorf("ibrc: handle from pe %d to pe %d: %w", from, local, errs.ErrPeer)
	}
	t.mu.Lock()
	t.inbox = append(t.inbox, mail{local, from, h})
	t.mu.Unlock()
	t.goLive()
	t.env.Kick()
	return nil
}

// receive takes in the handles that were delivered.
func (t *Transport) receive() bool {
	t.mu.Lock()
	box := t.inbox
	t.inbox = nil
	t.mu.Unlock()
	for _, m := range box {
		k := pairKey{m.local, m.from, m.h.lane}
		q := t.pairs[k]
		if q == nil {
			var err error
			if m.h.refused != "" {
				continue // by its own choice
			}
			if q, err = t.newPair(k); err != nil {
				t.env.Log.Warn("ibrc: a peer's queue pair refused", "err", err)
				t.refuse(k, err)
				continue
			}
		}
		if m.h.refused != "" {
			if !q.ready {
				q.refused = true
				t.fail(q, 0, fmt.Errorf("its end says: %s: %w", m.h.refused, errs.ErrUnsupported))
			}
			continue
		}
		if m.h.done {
			q.peerDone = q.peer != nil
			continue
		}
		if q.peer != nil {
			t.env.Log.Warn("ibrc: a second handle dropped", "from", m.from, "lane", m.h.lane)
			continue
		}
		q.peer, q.keys = m.h.qp, m.h.keys
		if q.failed != nil && !q.cut {
			t.refuse(k, q.failed) // for good, here; the peer has found a way since
		}
	}
	return len(box) > 0
}

// refuse tells a peer that this end will not connect: it would wait for ever.
func (t *Transport) refuse(k pairKey, err error) {
	t.refusals = append(t.refusals, refusal{k, err.Error()})
}

// refusal is one that is not sent yet.
type refusal struct {
	pairKey
	why string
}

// connectAll goes on with what is not connected yet, and says what will not be.
func (t *Transport) connectAll() {
	t.refusals = slices.DeleteFunc(t.refusals, func(r refusal) bool {
		err := t.env.Send(r.local, r.remote, encodeHandle(handle{lane: r.lane, refused: r.why}))
		return !errors.Is(err, errs.ErrWouldBlock)
	})
	t.connecting = slices.DeleteFunc(t.connecting, func(q *pair) bool {
		t.progress(q)
		return q.ready || q.failed != nil
	})
}

// Abort gives a lane up, and its queue pair with it.
func (t *Transport) Abort(l *channel.Lane) {
	q, _ := l.State().(*pair)
	if q == nil {
		q = t.pairs[pairKey{l.Config().Owner, l.Config().Peer, l.Config().Slot}]
	}
	if q == nil || q.lane != nil && q.lane != l {
		return
	}
	t.destroy(q)
	q.reqs.Drop(q.reqs.Len())
	q.lane, q.cut, q.built, q.at, q.finished, q.reported = nil, false, 0, 0, 0, nil
}
