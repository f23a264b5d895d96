package bench

import (
	"context"
	"time"

	"goshmem/bench/rawtcp"
	"goshmem/heap"
)

// Which figures a size has beside its latency.
const (
	rateUpTo      = 4 << 10   // rate of small operations
	bandwidthFrom = 4 << 10   // bandwidth of large ones
	queuedFrom    = 256 << 10 // bandwidth of non-blocking ones, which go through the ring
)

// oneSided is what put and get share: a buffer on every PE and a private one.
type oneSided struct {
	*env
	dst     heap.Ref
	local   []byte // own copy of dst
	remote  []byte // the target's, for floors; on PE 0 alone
	private []byte
	fence   barrierWord
	libc    copier
	seed    uint64
	raw     *rawtcp.Link
}

func newOneSided(ctx context.Context, e *env) (*oneSided, error) {
	o := &oneSided{env: e, libc: newCopier()}
	n := e.cfg.largest()
	var err error
	if o.dst, err = e.p.AllocMem(ctx, n, 4096); err != nil {
		return nil, err
	}
	if o.local, err = e.p.LocalBytes(o.dst, int(n)); err != nil {
		return nil, err
	}
	if e.p.Rank() == 0 {
		if o.remote, err = rawBytes(e.c, o.dst, n, e.target()); err != nil {
			return nil, err
		}
		o.private = make([]byte, n)
	}
	o.raw, err = e.overTCP(ctx)
	return o, err
}

// batchFor is how long a batch should be: what floor and operation leave in the
// caches for each other must not matter.
func batchFor(size int64) time.Duration {
	if size < 64<<10 {
		return defaultBatch
	}
	return 10 * defaultBatch
}
