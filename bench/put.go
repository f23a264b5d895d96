package bench

import (
	"context"
	"time"

	"goshmem/heap"
	"goshmem/rma"
)

func putProgram() program {
	return program{
		name: "put", text: "put and quiet: latency, rate of non-blocking puts, bandwidth",
		pes: 2, least: 1, smallest: 1,
		sizes: []int64{8, 64, 512, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20},
		work:  putWork,
	}
}

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
	return o, nil
}

// plain is one copy. The builtin one turns to stores around the cache at 1 MiB,
// which spoils what is measured next; the call into C costs as much as a copy of
// some KiB.
func (o *oneSided) plain(dst, src []byte) {
	if len(src) < queuedFrom {
		copy(dst, src)
	} else {
		o.libc.copies(dst, src, 1)
	}
}

// batchFor is how long a batch should be: what floor and operation leave in the
// caches for each other must not matter.
func batchFor(size int64) time.Duration {
	if size < 64<<10 {
		return defaultBatch
	}
	return 10 * defaultBatch
}

func putWork(ctx context.Context, e *env) error {
	o, err := newOneSided(ctx, e)
	if err != nil {
		return err
	}
	for _, size := range e.cfg.Sizes {
		for _, t := range o.putTrials(ctx, size) {
			if err := o.measure(t); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *oneSided) putTrials(ctx context.Context, size int64) []trial {
	c, dst, to := o.c, o.dst, o.target()
	var src, remote []byte
	if o.private != nil {
		src, remote = o.private[:size], o.remote[:size]
	}
	put := func(ops int) error {
		for range ops {
			if err := rma.PutMem(c, dst, src, to); err != nil {
				return err
			}
		}
		return rma.Quiet(ctx, c)
	}
	nbi := func(ops int) error {
		for range ops {
			if _, err := rma.PutMemNBI(c, dst, src, to); err != nil {
				return err
			}
		}
		return rma.Quiet(ctx, c)
	}
	memcpy := func(ops int) error { o.libc.copies(remote, src, ops); return nil }
	all := []trial{{
		line: line{metric: "latency", unit: unitNS},
		work: func(ops int) error {
			for range ops {
				if err := rma.PutMem(c, dst, src, to); err != nil {
					return err
				}
				if err := rma.Quiet(ctx, c); err != nil {
					return err
				}
			}
			return nil
		},
		floor: func(ops int) error {
			for range ops {
				o.plain(remote, src)
				o.fence.full()
			}
			return nil
		},
	}}
	if size <= rateUpTo {
		all = append(all, trial{
			line: line{metric: "rate", unit: unitMs}, work: nbi,
			floor: func(ops int) error {
				for range ops {
					copy(remote, src)
				}
				o.fence.full()
				return nil
			},
		})
	}
	if size >= bandwidthFrom {
		all = append(all, trial{line: line{metric: "bandwidth", unit: unitGBs, bytes: size}, algo: o.libc.algo, work: put, floor: memcpy})
	}
	if size >= queuedFrom {
		all = append(all, trial{line: line{metric: "nbi-bandwidth", unit: unitGBs, bytes: size}, algo: o.libc.algo, work: nbi, floor: memcpy})
	}
	for i := range all {
		all[i].size = size
		all[i].batch = batchFor(size)
		all[i].verify = o.putCheck(all[i].work, size)
	}
	return all
}

// putCheck sends another payload the same way and compares it at the target.
func (o *oneSided) putCheck(work func(int) error, size int64) func() (bool, error) {
	return func() (bool, error) {
		o.seed++
		if o.p.Rank() == 0 {
			pattern(o.private[:size], o.seed)
			if err := work(1); err != nil {
				return false, err
			}
		}
		if _, err := o.share(0); err != nil {
			return false, err
		}
		if o.p.Rank() != o.target() {
			return true, nil
		}
		got := o.local[:size]
		if o.cfg.corrupt != nil {
			o.cfg.corrupt(got)
		}
		return samePattern(got, o.seed), nil
	}
}

func getProgram() program {
	return program{
		name: "get", text: "get: latency and bandwidth",
		pes: 2, least: 1, smallest: 1,
		sizes: []int64{8, 64, 512, 4 << 10, 64 << 10, 1 << 20, 16 << 20},
		work:  getWork,
	}
}

func getWork(ctx context.Context, e *env) error {
	o, err := newOneSided(ctx, e)
	if err != nil {
		return err
	}
	for _, size := range e.cfg.Sizes {
		for _, t := range o.getTrials(ctx, size) {
			if err := o.measure(t); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *oneSided) getTrials(ctx context.Context, size int64) []trial {
	c, src, from := o.c, o.dst, o.target()
	var dst, remote []byte
	if o.private != nil {
		dst, remote = o.private[:size], o.remote[:size]
	}
	get := func(ops int) error {
		for range ops {
			if err := rma.GetMem(c, dst, src, from); err != nil {
				return err
			}
		}
		return nil
	}
	nbi := func(ops int) error {
		for range ops {
			if _, err := rma.GetMemNBI(c, dst, src, from); err != nil {
				return err
			}
		}
		return rma.Quiet(ctx, c)
	}
	memcpy := func(ops int) error { o.libc.copies(dst, remote, ops); return nil }
	all := []trial{{
		line: line{metric: "latency", unit: unitNS}, work: get,
		floor: func(ops int) error {
			for range ops {
				o.plain(dst, remote)
			}
			return nil
		},
	}}
	if size >= bandwidthFrom {
		all = append(all, trial{line: line{metric: "bandwidth", unit: unitGBs, bytes: size}, algo: o.libc.algo, work: get, floor: memcpy})
	}
	if size >= queuedFrom {
		all = append(all, trial{line: line{metric: "nbi-bandwidth", unit: unitGBs, bytes: size}, algo: o.libc.algo, work: nbi, floor: memcpy})
	}
	for i := range all {
		all[i].size = size
		all[i].batch = batchFor(size)
		all[i].verify = o.getCheck(all[i].work, size)
	}
	return all
}

// getCheck fetches another payload the same way and compares it here.
func (o *oneSided) getCheck(work func(int) error, size int64) func() (bool, error) {
	return func() (bool, error) {
		o.seed++
		if o.p.Rank() == o.target() {
			pattern(o.local[:size], o.seed)
		}
		if _, err := o.share(0); err != nil {
			return false, err
		}
		if o.p.Rank() != 0 {
			return true, nil
		}
		if err := work(1); err != nil {
			return false, err
		}
		got := o.private[:size]
		if o.cfg.corrupt != nil {
			o.cfg.corrupt(got)
		}
		return samePattern(got, o.seed), nil
	}
}
