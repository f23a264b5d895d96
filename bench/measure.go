package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// line is a figure of a trial.
type line struct {
	metric, unit string
	bytes        int64 // that an operation moves, for a bandwidth
	noFloor      bool  // the floor does not measure this
}

// trial is one measurement: an operation beside its floor.
type trial struct {
	line
	more []line // further figures of the same times
	algo string
	size int64
	per  float64 // one-way trips, hops or items that one operation counts as; 0: 1

	// work and floor do so many operations. floor may be nil. before is called
	// ahead of each batch of work, untimed; it may be nil.
	work, floor func(ops int) error
	before      func() error
	// all says that every PE takes part in lockstep; else PE 0 works alone.
	all bool
	// batch is how long a batch should take at least; 0: defaultBatch.
	batch time.Duration
	// verify looks at this PE's side after the run; nil: the trial is one of
	// several whose last one verifies.
	verify func() (bool, error)
}

const (
	defaultBatch = 50 * time.Microsecond
	maxOps       = 4096  // of a batch
	maxBatches   = 20000 // of a figure
	minBatches   = 5
	attempts     = 4 // at a figure on a machine that does not keep still

	// nearLimit is the one-way time of a cache line from which a placement is
	// thought to be a far one, and flip the ratio of two times that tells a change.
	nearLimit = 120.0
	flip      = 1.5
)

// taken is what one attempt measured.
type taken struct {
	work, floor   series
	before, after float64
}

// flipped reports whether the machine changed between the two calibrations.
func (t *taken) flipped() bool {
	return max(t.before, t.after) > flip*min(t.before, t.after)
}

func (t *taken) far() bool { return max(t.before, t.after) > nearLimit }

// better says which of two attempts to keep: steady before flipped, near before
// far, a fast floor before a slow one. The operation's own times have no say.
func (t *taken) better(o *taken) bool {
	switch {
	case o == nil:
		return true
	case t.flipped() != o.flipped():
		return !t.flipped()
	case t.far() != o.far():
		return !t.far()
	}
	return t.level() < o.level()
}

// level is how slow the machine was: a processor is slower while another one
// shares its core, also one of another machine's.
func (t *taken) level() float64 {
	if len(t.floor) > 0 {
		return t.floor.quantile(0.5)
	}
	return t.before + t.after
}

// uneven reports whether the floor had better times than most of the attempt's.
func (t *taken) uneven() bool {
	return len(t.floor) >= minBatches && t.floor.quantile(0.5) > 1.2*t.floor.quantile(0.05)
}

// measure runs a trial and emits its result. Collective.
func (e *env) measure(t trial) error {
	if e.apart && t.algo != rawTCP {
		t.floor = nil
	}
	ops, err := e.batchOf(&t)
	if err != nil {
		return fmt.Errorf("bench: %s %s of %d B: %w", e.cfg.Name, t.metric, t.size, err)
	}
	var best *taken
	for range attempts {
		got, err := e.attempt(&t, ops)
		if err != nil {
			return fmt.Errorf("bench: %s %s of %d B: %w", e.cfg.Name, t.metric, t.size, err)
		}
		if got.better(best) {
			best = got
		}
		again := e.cfg.Iters == 0 && (best.flipped() || best.far() || best.uneven())
		if v, err := e.first0(bit(again)); err != nil {
			return err
		} else if v == 0 {
			break
		}
	}
	ok := true
	if t.verify != nil {
		mine, err := t.verify()
		if err != nil {
			return err
		}
		if ok, err = e.all(mine); err != nil {
			return err
		}
	}
	for _, l := range append([]line{t.line}, t.more...) {
		r := e.base
		r.Metric, r.Algo, r.Unit, r.Size = l.metric, t.algo, l.unit, t.size
		floor := best.floor
		if l.noFloor {
			floor = nil
		}
		r.fill(best.work, floor, l.bytes)
		r.CalibBefore, r.CalibAfter, r.Flipped = best.before, best.after, best.flipped()
		if err := e.report(r, ok); err != nil {
			return err
		}
	}
	return nil
}

// report emits a result; PE 0 alone does.
func (e *env) report(r Result, ok bool) error {
	if e.p.Rank() != 0 {
		return nil
	}
	if !ok {
		e.wrong++
	}
	r.Verified = ok
	return e.emit(r)
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// batchOf finds how many operations make a batch long enough, which warms up.
func (e *env) batchOf(t *trial) (int, error) {
	want := t.batch
	if want == 0 {
		want = defaultBatch
	}
	least, most := 1, maxOps
	if e.cfg.Iters > 0 {
		least = (e.cfg.Iters + maxBatches - 1) / maxBatches // all of them, whatever a batch takes
		most = max(min(most, e.cfg.Iters), least)
	}
	// One of each goes first: it makes the lane, and meets whatever is cold.
	if _, err := e.timed(t, t.floor, 1); err != nil {
		return 0, err
	}
	if _, err := e.timedWork(t, 1); err != nil {
		return 0, err
	}
	for n := least; ; {
		// Two looks: who lost the processor during one would settle for less.
		took, err := e.timedWork(t, n)
		if err != nil {
			return 0, err
		}
		again, err := e.timedWork(t, n)
		if err != nil {
			return 0, err
		}
		took = min(took, again)
		next := n
		if took < want {
			next = grow(n, took, want, most)
		}
		if t.all {
			v, err := e.first0(uint64(next))
			if err != nil {
				return 0, err
			}
			next = int(v)
		} else if e.p.Rank() != 0 {
			next = n
		}
		if next == n {
			return n, nil
		}
		n = next
	}
}

// grow is the next guess at the size of a batch: at most ten times the last.
func grow(n int, took, want time.Duration, most int) int {
	factor := 10.0
	if took > 0 {
		factor = min(factor, 1.1*float64(want)/float64(took))
	}
	return min(max(int(float64(n)*factor)+1, n), most)
}

// timed runs n operations if this PE takes part, and says how long they took.
func (e *env) timed(t *trial, f func(int) error, n int) (time.Duration, error) {
	if f == nil || !t.all && e.p.Rank() != 0 {
		return 0, nil
	}
	start := time.Now()
	err := f(n)
	return time.Since(start), err
}

// timedWork is timed for the work, with what goes before it.
func (e *env) timedWork(t *trial, n int) (time.Duration, error) {
	if t.before != nil {
		if _, err := e.timed(t, func(int) error { return t.before() }, 1); err != nil {
			return 0, err
		}
	}
	return e.timed(t, t.work, n)
}

// more is how many batches fit into what is left of a figure's time; none of less
// than a quarter of it.
func (e *env) more(done int, took time.Duration) int {
	left := e.cfg.Time - took
	if e.cfg.Iters > 0 || done >= maxBatches || left < e.cfg.Time/4 {
		return 0
	}
	return min(maxBatches-done, int(float64(done)*float64(left)/float64(took)))
}

// batches takes n pairs of batches.
func (e *env) batches(t *trial, ops, n int, got *taken) error {
	per := t.per
	if per == 0 {
		per = 1
	}
	per *= float64(ops)
	got.work, got.floor = slices.Grow(got.work, n), slices.Grow(got.floor, n)
	for range n {
		if e.ctx.Err() != nil {
			return context.Cause(e.ctx)
		}
		if t.floor != nil {
			d, err := e.timed(t, t.floor, ops)
			if err != nil {
				return err
			}
			got.floor = append(got.floor, float64(d)/per)
		}
		d, err := e.timedWork(t, ops)
		if err != nil {
			return err
		}
		got.work = append(got.work, float64(d)/per)
	}
	return nil
}

// attempt measures once: batches of floor and work in turns, between two
// calibrations. Collective.
func (e *env) attempt(t *trial, ops int) (*taken, error) {
	got := &taken{}
	var err error
	if got.before, err = e.calibrate(); err != nil {
		return nil, err
	}
	// The first pair warms up, and tells how many fit.
	floor, err := e.timed(t, t.floor, ops)
	if err != nil {
		return nil, err
	}
	work, err := e.timedWork(t, ops)
	if err != nil {
		return nil, err
	}
	batches := maxBatches
	switch {
	case e.cfg.Iters > 0:
		batches = min(batches, (e.cfg.Iters+ops-1)/max(ops, 1))
	case floor+work > 0:
		batches = min(batches, max(minBatches, int(e.cfg.Time/(floor+work))))
	}
	began := time.Now()
	for {
		n, err := e.first0(uint64(batches))
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		if err := e.batches(t, ops, int(n), got); err != nil {
			return nil, err
		}
		// The guess was from one pair: it may have been a bad one.
		batches = e.more(len(got.work), time.Since(began))
	}
	if got.after, err = e.calibrate(); err != nil {
		return nil, err
	}
	return got, nil
}
