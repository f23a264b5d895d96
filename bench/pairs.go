package bench

import (
	"context"

	"goshmem/heap"
	"goshmem/rma"
)

func pairsProgram() program {
	return program{
		name: "pairs", text: "puts between several pairs at once, one way and both ways: rate and bandwidth of all",
		pes: 4, least: 2, smallest: 1,
		sizes: []int64{8, 4 << 10, 64 << 10, 1 << 20},
		work:  pairsWork,
	}
}

// pairs is a PE's part: PE i of the first half and PE i of the second are a pair. An
// odd one looks on.
type pairs struct {
	*env
	dst     heap.Ref
	mine    []byte // own copy of dst
	theirs  []byte
	out     []byte
	half    int
	partner int // -1: none
	libc    copier
	fence   barrierWord
	plain   *plainBarrier
	seed    uint64
}

func pairsWork(ctx context.Context, e *env) error {
	s := &pairs{env: e, half: e.p.Size() / 2, partner: -1, libc: newCopier()}
	if r := e.p.Rank(); r < 2*s.half {
		s.partner = (r + s.half) % (2 * s.half)
	}
	n := e.cfg.largest()
	var err error
	if s.dst, err = e.p.AllocMem(ctx, n, 4096); err != nil {
		return err
	}
	if s.mine, err = e.p.LocalBytes(s.dst, int(n)); err != nil {
		return err
	}
	if s.partner >= 0 {
		if info, _ := e.p.Peer(s.partner); e.apart {
			e.base.Path = info.Path
		}
		if s.theirs, err = rawBytes(e.c, s.dst, n, s.partner); err != nil {
			return err
		}
		s.out = make([]byte, n)
	}
	if s.plain, err = newPlainBarrier(e); err != nil {
		return err
	}
	for _, size := range e.cfg.Sizes {
		for _, both := range []bool{false, true} {
			if err := s.measure(s.trial(ctx, size, both)); err != nil {
				return err
			}
		}
	}
	return nil
}

// trial is one size. A batch ends when every pair is done; its figure is of all
// pairs together.
func (s *pairs) trial(ctx context.Context, size int64, both bool) trial {
	streams := int64(s.half)
	t := trial{line: line{metric: "rate", unit: unitMs}, algo: "one-way", size: size, all: true, batch: batchFor(size)}
	if both {
		streams *= 2
		t.algo = "both-ways"
	}
	if s.p.World().Oversubscribed() {
		t.batch = max(t.batch, oversubscribedBatch)
	}
	t.per = float64(streams)
	if size > rateUpTo {
		t.line = line{metric: "bandwidth", unit: unitGBs, bytes: size}
	}
	sends := s.partner >= 0 && (both || s.p.Rank() < s.half)
	t.work = s.lockstep(func(ops int) error {
		if !sends {
			return nil
		}
		for range ops {
			if _, err := rma.PutMemNBI(s.c, s.dst, s.out[:size], s.partner); err != nil {
				return err
			}
		}
		return rma.Quiet(ctx, s.c)
	})
	t.floor = s.lockstep(func(ops int) error {
		if sends {
			s.libc.copies(s.theirs[:size], s.out[:size], ops)
			s.fence.full()
		}
		return nil
	})
	t.verify = func() (bool, error) { return s.check(ctx, size, both) }
	return t
}

// lockstep begins and ends f with all PEs.
func (s *pairs) lockstep(f func(ops int) error) func(int) error {
	return func(ops int) error {
		if err := s.plain.run(1); err != nil {
			return err
		}
		if err := f(ops); err != nil {
			return err
		}
		return s.plain.run(1)
	}
}

func (s *pairs) check(ctx context.Context, size int64, both bool) (bool, error) {
	s.seed++
	sends := s.partner >= 0 && (both || s.p.Rank() < s.half)
	if sends {
		pattern(s.out[:size], s.seed+uint64(s.p.Rank()))
		if err := rma.PutMem(s.c, s.dst, s.out[:size], s.partner); err != nil {
			return false, err
		}
		if err := rma.Quiet(ctx, s.c); err != nil {
			return false, err
		}
	}
	if _, err := s.share(0); err != nil {
		return false, err
	}
	if s.partner < 0 || !both && s.p.Rank() < s.half {
		return true, nil
	}
	got := s.mine[:size]
	if s.cfg.corrupt != nil {
		s.cfg.corrupt(got)
	}
	return samePattern(got, s.seed+uint64(s.partner)), nil
}
