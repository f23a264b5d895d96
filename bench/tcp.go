package bench

import (
	"context"
	"time"

	"goshmem/bench/rawtcp"
)

// overTCP makes the floors of what goes over TCP between PE 0 and PE 1: nil where
// they reach each other otherwise, or this is another PE. Collective.
func (e *env) overTCP(ctx context.Context) (*rawtcp.Link, error) {
	info, ok := e.p.Peer(e.target())
	if e.p.Rank() == 1 {
		info, ok = e.p.Peer(0)
	}
	if !ok || e.cfg.Path != "tcp" || info.Path != "tcp" || e.p.Size() < 2 {
		return nil, nil
	}
	var l *rawtcp.Listener
	var addr string
	var err error
	if e.p.Rank() == 1 {
		if l, addr, err = rawtcp.Listen(); err != nil {
			addr = ""
		}
	}
	all, gerr := e.p.Team().Gather(ctx, "bench rawtcp", []byte(addr))
	switch {
	case err != nil || gerr != nil:
		return nil, firstOf(err, gerr)
	case e.p.Rank() == 0:
		return rawtcp.Dial(string(all[1]))
	case e.p.Rank() == 1:
		return l.Accept()
	}
	return nil, nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// tcpAMO is tcpFloors for atomics, which PE 0 alone does: the floor is one way.
func (e *env) tcpAMO(k *rawtcp.Link, t *trial) {
	msg := make([]byte, t.size)
	t.floor, t.batch, t.algo = nil, remoteBatch, "rawtcp"
	if t.metric == "add" {
		return
	}
	t.floor = func(ops int) error { return k.Echo(msg, (ops+1)/2) }
}

// closeTCP ends the floors' connections.
func closeTCP(k *rawtcp.Link) {
	if k != nil {
		_ = k.Close() // nothing is measured any more
	}
}

// remoteBatch is how long a batch over TCP takes at least: one round trip at its
// end must not matter. Nor must it be long: an end that loses its core for a moment
// spoils a batch, and the median is to be one that was not.
const remoteBatch = 2 * time.Millisecond

// lockstepBatch is the same for exchanges: one start of both ends.
const lockstepBatch = 500 * time.Microsecond

// tcpFloors puts floors over TCP in the place of copies. Latencies of one-sided
// operations are compared with one way.
func (e *env) tcpFloors(k *rawtcp.Link, all []trial) {
	if k == nil {
		return
	}
	for i := range all {
		t := &all[i]
		msg := make([]byte, max(t.size, 1))
		switch {
		case t.all:
			t.floor, t.batch = func(ops int) error { return k.Bounce(msg, ops, e.p.Rank() == 0) }, lockstepBatch
		case t.metric == "latency":
			t.floor = nil
			continue
		case t.metric == "rate":
			t.floor, t.batch = nil, remoteBatch
			continue
		default:
			t.floor, t.batch = func(ops int) error { return k.Stream(msg, ops) }, remoteBatch
		}
		t.algo = "rawtcp"
	}
}
