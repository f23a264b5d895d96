package bench

import (
	"context"
	"errors"
	"time"

	"goshmem/coll"
	"goshmem/heap"
	"goshmem/rma"
)

// streamed is alltoallv on device memory in the order of a stream, a call behind the
// other. The floor is one copy of a PE's largest block by the driver.
type streamed struct {
	*onDevice
	s        *rma.Stream
	x        *coll.Streamed
	src, dst heap.Ref
	counts   []int
	round    uint64
}

func allToAllDevice(ctx context.Context, e *env) error {
	o, err := newOnDevice(ctx, e, e.target())
	if err != nil {
		return err
	}
	r := &streamed{onDevice: o, counts: make([]int, e.p.Size())}
	for _, ref := range []*heap.Ref{&r.src, &r.dst} {
		if *ref, err = e.p.AllocDevice(ctx, e.cfg.largest()*int64(e.p.Size()), 4096); err != nil {
			return err
		}
	}
	if r.s, err = rma.NewStream(ctx, e.c, o.q.Handle()); err != nil {
		return err
	}
	if r.x, err = coll.NewStreamed(r.s); err != nil {
		return err
	}
	for _, size := range e.cfg.Sizes {
		t := r.trial(size)
		if size <= rateUpTo {
			if err := r.measure(r.issue(t)); err != nil {
				return err
			}
		}
		if err := r.measure(t); err != nil {
			return err
		}
	}
	return r.s.Close(ctx)
}

// issue is what the calls of a trial cost the caller.
func (r *streamed) issue(t trial) trial {
	t.metric, t.more, t.floor, t.verify, t.batch = "issue", nil, nil, nil, 0
	t.work = r.calls
	t.before = func() error { return errors.Join(r.finish(), r.meet()) }
	return t
}

func (r *streamed) trial(size int64) trial {
	for i := range r.counts {
		r.counts[i] = int(size)
	}
	t := trial{
		line: line{metric: "on-stream", unit: unitNS}, size: size, algo: "d2d", all: true, batch: 2 * time.Millisecond,
		before: r.meet,
		work: func(ops int) error {
			if err := r.calls(ops); err != nil {
				return err
			}
			return r.finish()
		},
		floor: func(ops int) error {
			err := r.raw(func() error {
				for range ops {
					if err := r.q.Copy(r.far, r.near, uint64(size)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			return r.finish()
		},
		verify: func() (bool, error) { return r.verify(int(size)) },
	}
	if size >= bandwidthFrom {
		t.more = []line{{metric: "bandwidth", unit: unitGBs, bytes: size * int64(r.p.Size()-1)}}
	}
	return t
}

// meet makes all PEs begin together: their floors do not end at the same time.
func (r *streamed) meet() error { return coll.Barrier(r.ctx, r.p.Team()) }

func (r *streamed) calls(ops int) error {
	for range ops {
		if err := r.call(); err != nil {
			return err
		}
	}
	return nil
}

func (r *streamed) call() error {
	return r.x.AllToAllV(r.dst, r.counts, nil, r.src, r.counts, nil)
}

// verify makes one more call on other data and looks at every byte.
func (r *streamed) verify(size int) (bool, error) {
	r.round++
	me, n := r.p.Rank(), r.p.Size()
	seed := func(from, to int) uint64 { return r.round<<32 + uint64(from)<<16 + uint64(to) + 1 }
	b := make([]byte, n*size)
	for i := range n {
		pattern(b[i*size:(i+1)*size], seed(me, i))
	}
	if err := rma.PutLocal(r.c, r.src, rma.Bytes(b), me); err != nil {
		return false, err
	}
	if err := rma.Quiet(r.ctx, r.c); err != nil {
		return false, err
	}
	if err := r.call(); err != nil {
		return false, err
	}
	if err := r.finish(); err != nil {
		return false, err
	}
	if err := r.s.Err(); err != nil {
		return false, err
	}
	if err := rma.GetLocal(r.c, rma.Bytes(b), r.dst, me); err != nil {
		return false, err
	}
	if r.cfg.corrupt != nil {
		r.cfg.corrupt(b)
	}
	for i := range n {
		if !samePattern(b[i*size:(i+1)*size], seed(i, me)) {
			return false, nil
		}
	}
	return true, nil
}
