package fabric

import (
	"context"
	"fmt"
	"time"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/fabric/sim"
)

// LinkConfig is a network between simulated nodes.
type LinkConfig struct {
	sim.Link
	Sharing sim.Sharing
}

// NewLink makes transports that carry requests as fast as a network would, in
// real time, by copies between segments that this process maps. A process knows
// of its own traffic only: what others send through the same port is not in its
// way. The copies cost real time too, and a request is carried out when the
// process of its source looks, which is later the busier the machine is.
func NewLink(cfg LinkConfig) channel.Factory {
	return func(_ context.Context, env channel.Env) (channel.Transport, error) {
		start := time.Now()
		return newLink(cfg, env, func() time.Duration { return time.Since(start) })
	}
}

// linkPiece is the most bytes of one request: of what one copy does.
const linkPiece = 1 << 20

// linkTurn bounds the bytes that one Poll copies, so that the proxy's role is
// not held for long.
const linkTurn = 2 << 20

// link is a simulated link in one world of one process. Its clock is real, in
// nanoseconds. All but Deliver run under the proxy's role.
type link struct {
	cfg   LinkConfig
	w     wire
	ports *sim.Ports
	clock func() time.Duration
}

var _ channel.Transport = (*link)(nil)

func newLink(cfg LinkConfig, env channel.Env, clock func() time.Duration) (*link, error) {
	node := make([]int, env.Size)
	for i, p := range env.Peers {
		node[i] = p.Node
	}
	ports, err := sim.NewPorts(cfg.Link, cfg.Sharing, node)
	if err != nil {
		return nil, fmt.Errorf("fabric: %w", err)
	}
	return &link{cfg: cfg, w: newWire(env, false), ports: ports, clock: clock}, nil
}

// Describe tells what the link costs.
func (k *link) Describe() channel.Description {
	return channel.Description{
		Name:   "simulated link",
		Detail: fmt.Sprintf("%v, %v", k.cfg.Link, k.cfg.Sharing),
		Notes:  []string{"stands for a network between simulated nodes of one host"},
	}
}

// Caps is what a transport of copies can do.
func (k *link) Caps() channel.Caps {
	return channel.Caps{MaxMessage: linkPiece, Kinds: hostKinds[:], RingsBells: true}
}

// Register has nothing to do for memory of the host.
func (k *link) Register(_ context.Context, _ int, _ uint16, mem heap.Memory) ([]byte, error) {
	return register(mem)
}

// Deregister has nothing to undo.
func (k *link) Deregister(context.Context, int, uint16) error { return nil }

// Map never lets the caller operate inline: the nodes stand for hosts.
func (k *link) Map(int, uint16) (heap.Memory, bool) { return heap.Memory{}, false }

// Connect succeeds where the peer is mapped.
func (k *link) Connect(l *channel.Lane) (bool, error) {
	if err := k.w.reachable(l); err != nil {
		return false, err
	}
	return true, nil
}

// Deliver refuses: this transport exchanges no handles.
func (k *link) Deliver(_, from int, msg []byte) error {
	return fmt.Errorf("fabric: %d B of handles from pe %d, none are expected: %w", len(msg), from, errs.ErrUnsupported)
}

// Post takes everything: what has no room yet waits for its port.
func (k *link) Post(l *channel.Lane, reqs []channel.Request) (int, error) {
	now := k.clock()
	ln := k.w.lane(l)
	if ln.dead != nil {
		return 0, ln.dead
	}
	for i := range reqs {
		f := k.w.launch(ln, &reqs[i])
		out, _ := f.bytes()
		t := k.ports.Post(now, ln.owner)
		k.at(k.ports.Send(t, ln.owner, ln.peer, out), entered, f)
	}
	return len(reqs), nil
}

// bytes is how much a request takes there, and brings back.
func (f *flight) bytes() (out, back int64) {
	r := &f.req
	switch {
	case r.Op == channel.OpPut:
		out = int64(r.Size)
	case r.Op == channel.OpIPut:
		out = int64(r.Size * r.Type.Size())
	case r.Op == channel.OpGet:
		back = int64(r.Size)
	case r.Op == channel.OpIGet:
		back = int64(r.Size * r.Type.Size())
	case r.Flags&channel.FlagFetch != 0:
		back = int64(r.Size)
	}
	return out, back
}

func (k *link) at(t time.Duration, what moment, f *flight) { k.w.schedule(int64(t), 0, what, f) }

// Poll carries out what has arrived and reports what is acknowledged.
func (k *link) Poll(out []channel.Completion) int {
	if len(k.w.order) == 0 {
		return 0
	}
	now := int64(k.clock())
	for copied := int64(0); copied < linkTurn; {
		e, ok := k.w.due(now)
		if !ok {
			break
		}
		copied += k.happen(e)
	}
	n := 0
	for i := 0; i < len(k.w.order); {
		ln := k.w.order[i]
		if r := ln.ready(); r > 0 && n < len(out) {
			out[n] = ln.report(r)
			n++
		}
		if len(ln.flights) == 0 && ln.dead == nil {
			k.w.forget(i)
			continue
		}
		i++
	}
	return n
}

// happen lets one event happen, at its own time, and says how many bytes were
// copied.
func (k *link) happen(e event) int64 {
	f, t := e.f, time.Duration(e.at)
	ln := f.lane
	out, back := f.bytes()
	switch e.what {
	case entered:
		k.at(k.ports.Receive(t, ln.owner, ln.peer, out), arrived, f)
	case arrived:
		k.w.send(f)
		if f.err = k.w.land(f); f.err == nil {
			k.w.finish(f)
		}
		if back == 0 {
			k.at(t+k.cfg.Latency, ended, f)
		} else {
			// The target's port sends it, its processor has no part in it.
			k.at(k.ports.Send(t, ln.peer, ln.owner, back), replied, f)
		}
		return out + back
	case replied:
		k.at(k.ports.Receive(t, ln.peer, ln.owner, back), ended, f)
	case ended:
		f.done = true
	}
	return 0
}

// forget lets go of an idle lane, which may be of a context that was freed.
func (w *wire) forget(i int) {
	delete(w.lanes, w.order[i].l)
	last := len(w.order) - 1
	w.order[i], w.order[last] = w.order[last], nil
	w.order = w.order[:last]
}

// Abort forgets a lane.
func (k *link) Abort(l *channel.Lane) {
	ln := k.w.lane(l)
	ln.drop()
	ln.dead = &errs.ClosedError{PE: -1}
}

// Close ends the transport.
func (k *link) Close(context.Context) error {
	for _, ln := range k.w.order {
		ln.drop()
	}
	return nil
}
