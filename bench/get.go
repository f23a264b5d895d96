package bench

import (
	"context"

	"goshmem/rma"
)

func getProgram() program {
	return program{
		name: "get", text: "get: latency and bandwidth",
		pes: 2, least: 1, smallest: 1,
		sizes: []int64{8, 64, 512, 4 << 10, 64 << 10, 1 << 20, 16 << 20},
		work:  getWork, cuda: getDevice,
	}
}

func getWork(ctx context.Context, e *env) error {
	o, err := newOneSided(ctx, e)
	if err != nil {
		return err
	}
	defer closeTCP(o.raw)
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
		dst, remote = o.private[:size], o.remote[:min(size, int64(len(o.remote)))]
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
				o.libc.plain(dst, remote)
			}
			return nil
		},
	}}
	if size >= bandwidthFrom {
		all = append(all, trial{line: line{metric: "bandwidth", unit: unitGBs, bytes: size}, algo: o.libc.algo, work: get, floor: memcpy})
	}
	if size >= queuedFrom || o.overNet() && size >= bandwidthFrom {
		all = append(all, trial{line: line{metric: "nbi-bandwidth", unit: unitGBs, bytes: size}, algo: o.libc.algo, work: nbi, floor: memcpy})
	}
	for i := range all {
		all[i].size = size
		all[i].batch = batchFor(size)
		all[i].verify = o.getCheck(all[i].work, size)
	}
	o.tcpFloors(o.raw, all)
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
