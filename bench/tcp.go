package bench

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"goshmem/bench/rawtcp"
	"goshmem/channel"
)

// overNet reports whether PE 0 and PE 1 are meant to be far from each other; the same
// on every PE.
func (e *env) overNet() bool { return e.cfg.Path == "tcp" || e.apart }

// rawTCP is the floor's name.
const rawTCP = "rawtcp"

// overTCP makes the floors of what goes over TCP between PE 0 and PE 1: nil where
// they reach each other otherwise, or this is another PE. Collective.
func (e *env) overTCP(ctx context.Context) (*rawtcp.Link, error) {
	if e.p.Size() < 2 || !e.overNet() {
		return nil, nil
	}
	var l *rawtcp.Listener
	var addr string
	var err error
	if info, _ := e.p.Peer(0); e.p.Rank() == 1 && info.Path == "tcp" {
		if l, addr, err = rawtcp.Listen(listenHost(e.p.World().Transports())); err != nil {
			addr = ""
		}
	}
	all, gerr := e.p.Team().Gather(ctx, "bench rawtcp", []byte(addr))
	switch {
	case err != nil || gerr != nil:
		return nil, firstOf(err, gerr)
	case e.p.Rank() == 0 && len(all[1]) > 0:
		return rawtcp.Dial(ctx, string(all[1]))
	case l != nil:
		return l.Accept(ctx)
	}
	return nil, nil
}

// listenHost is where the world takes its connections, as it describes that: the floor
// is to take the same way.
func listenHost(all []channel.Description) string {
	for _, d := range all {
		for part := range strings.SplitSeq(d.Detail, ", ") {
			if at, err := netip.ParseAddrPort(part); err == nil {
				return at.Addr().String()
			}
		}
	}
	return "127.0.0.1"
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
	t.floor, t.batch, t.algo = nil, remoteBatch, rawTCP
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
		t.algo = rawTCP
	}
}
