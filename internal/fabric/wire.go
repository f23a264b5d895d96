package fabric

import (
	"fmt"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
)

// flight is one request on its way.
type flight struct {
	lane *lane
	n    uint64 // its number in the lane, from 0
	post uint64 // its number in the transport
	req  channel.Request

	from   unsafe.Pointer // what it carries: elements stride apart
	stride uintptr
	buf    []byte // where from points, if that is a copy
	old    uint64 // the old value of an AMO

	landed bool // took effect
	done   bool // complete; err says how
	err    error
	gone   bool // its lane was given up: its events are nobody's
}

// lane is a channel.Lane as the fabric sees it.
type lane struct {
	l           *channel.Lane
	owner, peer int
	k           int // how many lanes of this pair were there before
	posted      uint64
	flights     []*flight // not yet reported, oldest first
	held        []event   // of a lane that is stalled
	dead        error     // why nothing gets through any more

	sent, landing, acked int64 // times of the latest request's
	newest               uint64
	tries                uint64 // of Post
	calls                int    // of Connect
}

// wire is what the fabric and the simulated link share: requests under way, the
// events to come, and completions to report. It has no clock of its own.
type wire struct {
	env      channel.Env
	buffered bool // data is read when it is sent, and lies on the wire meanwhile
	events   queue
	seq      uint64
	posts    uint64
	lanes    map[*channel.Lane]*lane
	order    []*lane // by first use
}

func newWire(env channel.Env, buffered bool) wire {
	return wire{env: env, buffered: buffered, lanes: map[*channel.Lane]*lane{}}
}

// lane is the state of a lane, made on first use.
func (w *wire) lane(l *channel.Lane) *lane {
	if ln := w.lanes[l]; ln != nil {
		return ln
	}
	cfg := l.Config()
	ln := &lane{l: l, owner: cfg.Owner, peer: cfg.Peer}
	for _, o := range w.order {
		if o.owner == ln.owner && o.peer == ln.peer {
			ln.k++
		}
	}
	w.lanes[l] = ln
	w.order = append(w.order, ln)
	return ln
}

// reachable checks that a lane's peer is mapped: the wire is this process.
func (w *wire) reachable(l *channel.Lane) error {
	if peer := l.Config().Peer; w.env.Table.Region(peer, heap.RegionHeap).Base == nil {
		return fmt.Errorf("fabric: pe %d is on another host: %w", peer, errs.ErrUnsupported)
	}
	return nil
}

func (w *wire) launch(ln *lane, r *channel.Request) *flight {
	f := &flight{lane: ln, n: ln.posted, post: w.posts, req: *r}
	ln.posted++
	w.posts++
	ln.flights = append(ln.flights, f)
	return f
}

func (w *wire) schedule(at int64, tie uint64, what moment, f *flight) {
	w.push(event{at: at, tie: tie, what: what, f: f})
}

func (w *wire) push(e event) {
	w.seq++
	e.seq = w.seq
	w.events.push(e)
}

// due takes the next event that is not after now.
func (w *wire) due(now int64) (event, bool) {
	for len(w.events) > 0 && w.events[0].at <= now {
		if e := w.events.pop(); e.f == nil || !e.f.gone {
			return e, true
		}
	}
	return event{}, false
}

// next is when the next event is due; false: there is none.
func (w *wire) next() (at int64, ok bool) {
	for len(w.events) > 0 {
		if f := w.events[0].f; f == nil || !f.gone {
			return w.events[0].at, true
		}
		w.events.pop()
	}
	return 0, false
}

// ready counts a lane's oldest requests that are complete; one that failed ends
// the count, or is alone in it.
func (ln *lane) ready() int {
	n := 0
	for _, f := range ln.flights {
		if !f.done {
			break
		}
		if f.err != nil {
			return max(n, 1)
		}
		n++
	}
	return n
}

// report takes n of a lane's oldest requests, which are ready, off the wire.
func (ln *lane) report(n int) channel.Completion {
	c := channel.Completion{Lane: ln.l, N: n, Err: ln.flights[0].err}
	clear(ln.flights[:n])
	ln.flights = ln.flights[n:]
	return c
}

// drop forgets everything of a lane that is under way.
func (ln *lane) drop() {
	for _, f := range ln.flights {
		f.gone = true
	}
	ln.flights, ln.held = nil, nil
}
