package bench

import (
	"context"
	"time"

	"goshmem/rma"
)

func overlapProgram() program {
	return program{
		name: "overlap", text: "share of a non-blocking put's time that a computation of the same length hides",
		pes: 2, least: 2, smallest: 1,
		sizes: []int64{4 << 10, 256 << 10, 1 << 20, 16 << 20},
		work:  overlapWork,
		// The proxy of a process bound to one core copies only while its PE does not
		// compute.
		unbound: true,
	}
}

// overlapRounds is how many times each of the three is timed.
const overlapRounds = 15

// overlapWork times on PE 0 a put with its quiet, a computation as long, and both:
// hidden is what the sum of the first two exceeds the third by, in per cent of the
// put. The other PEs wait, so that their proxies could help.
func overlapWork(ctx context.Context, e *env) error {
	o, err := newOneSided(ctx, e)
	if err != nil {
		return err
	}
	for _, size := range e.cfg.Sizes {
		if err := o.overlap(ctx, size); err != nil {
			return err
		}
	}
	return nil
}

func (o *oneSided) overlap(ctx context.Context, size int64) error {
	before, err := o.calibrate()
	if err != nil {
		return err
	}
	var hidden series
	put := func(between func()) error {
		if _, err := rma.PutMemNBI(o.c, o.dst, o.private[:size], o.target()); err != nil {
			return err
		}
		between()
		return rma.Quiet(ctx, o.c)
	}
	if o.p.Rank() == 0 {
		for range overlapRounds {
			alone, err := timeOf(func() error { return put(func() {}) })
			if err != nil {
				return err
			}
			both, err := timeOf(func() error { return put(func() { compute(alone) }) })
			if err != nil {
				return err
			}
			hidden = append(hidden, 100*min(max(float64(2*alone-both)/float64(alone), 0), 1))
		}
	}
	after, err := o.calibrate()
	if err != nil {
		return err
	}
	ok, err := o.putCheck(func(int) error { return put(func() {}) }, size)()
	if err != nil {
		return err
	}
	if ok, err = o.all(ok); err != nil {
		return err
	}
	r := o.base
	r.Metric, r.Unit, r.Size = "hidden", unitPercent, size
	r.P50, r.P99, r.Mean = hidden.quantile(0.5), hidden.quantile(0.01), hidden.mean()
	t := taken{before: before, after: after}
	r.CalibBefore, r.CalibAfter, r.Flipped = before, after, t.flipped()
	return o.report(r, ok)
}

func timeOf(f func() error) (time.Duration, error) {
	start := time.Now()
	err := f()
	return time.Since(start), err
}

// compute keeps a processor busy without touching memory.
func compute(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}
