package ibrc

import (
	"errors"
	"fmt"

	"goshmem/channel"
	"goshmem/internal/errs"
)

// Poll takes completions in, goes on with what waits for room, and reports.
func (t *Transport) Poll(out []channel.Completion) int {
	if t.receive() || len(t.connecting)+len(t.refusals) > 0 {
		t.connectAll()
	}
	n := t.p.Poll(t.wcs[:])
	for i := range n {
		wc := &t.wcs[i]
		if int(wc.Tag) < len(t.byTag) {
			t.complete(t.byTag[wc.Tag], wc)
		}
		*wc = WC{}
	}
	t.answer()
	t.resume()
	return t.report(out)
}

func (t *Transport) complete(q *pair, wc *WC) {
	switch {
	case wc.Err != nil:
		t.fail(q, wc.ID, wc.Err)
	case wc.Msg != nil:
		if err := t.message(q, wc.Msg); err != nil {
			t.fail(q, 0, err)
		}
	case wc.ID > q.done && wc.ID < q.next:
		t.cq -= int(wc.ID - q.done)
		q.done = wc.ID
		t.reap(q)
	}
}

// reap takes off the requests that are complete.
func (t *Transport) reap(q *pair) {
	for q.built > 0 && q.reqs.At(0).last <= q.done {
		q.reqs.Pop()
		q.built--
		q.finished++
	}
	if q.finished > 0 && !q.isDirty {
		q.isDirty = true
		t.dirty = append(t.dirty, q)
	}
}

// fail puts a queue pair into error: what was complete before work request id is
// reported so, the rest with the error. Where the peer does not answer any more the rest
// waits for Abort: whether that one is lost, or has left, is for Env.Lost to find out.
func (t *Transport) fail(q *pair, id uint64, err error) {
	if q.failed != nil {
		return
	}
	if id > q.done+1 && id < q.next {
		t.cq -= int(id - 1 - q.done)
		q.done = id - 1
		t.reap(q)
	}
	if errors.Is(err, errs.ErrPeerLost) {
		lost := &errs.PeerLostError{PE: q.remote, Cause: err.Error()}
		q.failed, q.cut = lost, true
		t.env.Lost(q.remote, lost)
	} else if errors.Is(err, errs.ErrClosed) {
		q.failed = &errs.ClosedError{PE: q.remote}
	} else {
		q.failed = fmt.Errorf("ibrc: queue pair from pe %d to pe %d: %w", q.local, q.remote, err)
	}
	if !q.cut {
		q.reported = q.failed
		if !q.ready && !q.refused && q.local != q.remote {
			t.refuse(q.pairKey, q.failed)
		}
	}
	q.qp.Destroy()
	t.release(q)
	if q.reqs.Len()+q.finished > 0 && !q.isDirty {
		q.isDirty = true
		t.dirty = append(t.dirty, q)
	}
}

// setPartial remembers a pair whose last request is not posted whole.
func (t *Transport) setPartial(q *pair) {
	if !q.isPartial {
		q.isPartial = true
		t.partial = append(t.partial, q)
	}
}

// resume goes on with requests that are not posted whole.
func (t *Transport) resume() {
	kept := t.partial[:0]
	for _, q := range t.partial {
		if q.failed == nil {
			if err := t.advance(q); err != nil {
				t.fail(q, 0, err)
			}
		}
		if q.failed == nil && q.built < q.reqs.Len() {
			kept = append(kept, q)
		} else {
			q.isPartial = false
		}
	}
	clear(t.partial[len(kept):])
	t.partial = kept
}

// report fills in completions of the pairs that have some.
func (t *Transport) report(out []channel.Completion) int {
	n := 0
	kept := t.dirty[:0]
	for _, q := range t.dirty {
		if n < len(out) && q.finished > 0 {
			out[n] = channel.Completion{Lane: q.lane, N: q.finished}
			q.finished = 0
			n++
		}
		for n < len(out) && q.finished == 0 && q.reported != nil && q.reqs.Len() > 0 {
			out[n] = channel.Completion{Lane: q.lane, N: 1, Err: q.reported}
			q.reqs.Pop()
			n++
		}
		if q.finished > 0 || q.reported != nil && q.reqs.Len() > 0 {
			kept = append(kept, q)
			continue
		}
		q.isDirty = false
		if q.failed != nil {
			q.built, q.at = 0, 0
		}
	}
	clear(t.dirty[len(kept):])
	t.dirty = kept
	return n
}
