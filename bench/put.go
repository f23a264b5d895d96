package bench

import (
	"context"

	"goshmem/rma"
)

func putProgram() program {
	return program{
		name: "put", text: "put and quiet: latency, rate of non-blocking puts, bandwidth",
		pes: 2, least: 1, smallest: 1,
		sizes: []int64{8, 64, 512, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20},
		work:  putWork, cuda: putDevice,
	}
}

func putWork(ctx context.Context, e *env) error {
	o, err := newOneSided(ctx, e)
	if err != nil {
		return err
	}
	defer closeTCP(o.raw)
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
		src, remote = o.private[:size], o.remote[:min(size, int64(len(o.remote)))]
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
				o.libc.plain(remote, src)
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
	if size >= queuedFrom || o.overNet() && size >= bandwidthFrom {
		all = append(all, trial{line: line{metric: "nbi-bandwidth", unit: unitGBs, bytes: size}, algo: o.libc.algo, work: nbi, floor: memcpy})
	}
	for i := range all {
		all[i].size = size
		all[i].batch = batchFor(size)
		all[i].verify = o.putCheck(all[i].work, size)
	}
	o.tcpFloors(o.raw, all)
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
