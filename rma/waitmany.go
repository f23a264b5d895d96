package rma

import (
	"context"
	"fmt"
	"unsafe"

	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/pe"
)

// Status excludes elements of an array from a wait where it is not 0, as in
// OpenSHMEM; nil excludes none.
type Status []int

// WaitAll returns when every signal of the array compares as asked with v.
func WaitAll(ctx context.Context, c *pe.Context, sigs heap.Signals, status Status, cmp Cmp, v uint64, opts ...WaitOption) error {
	return WaitAllVector(ctx, c, sigs, status, cmp, same(sigs.Len(), v), opts...)
}

// WaitAny returns the index of a signal that compares as asked with v; the
// search begins behind start, so that a caller who passes the last index is fair.
// -1 if every one is excluded.
func WaitAny(ctx context.Context, c *pe.Context, sigs heap.Signals, status Status, start int, cmp Cmp, v uint64, opts ...WaitOption) (int, error) {
	return WaitAnyVector(ctx, c, sigs, status, start, cmp, same(sigs.Len(), v), opts...)
}

// WaitSome appends to out the indices of the signals that compare as asked with
// v, once there is one; none if every one is excluded.
func WaitSome(ctx context.Context, c *pe.Context, sigs heap.Signals, status Status, out []int, cmp Cmp, v uint64, opts ...WaitOption) ([]int, error) {
	return WaitSomeVector(ctx, c, sigs, status, out, cmp, same(sigs.Len(), v), opts...)
}

// WaitAllVector is WaitAll with a value for each signal.
func WaitAllVector(ctx context.Context, c *pe.Context, sigs heap.Signals, status Status, cmp Cmp, v []uint64, opts ...WaitOption) error {
	s, err := scan(c, "rma: wait all", sigs, status, cmp, v, opts)
	if err != nil {
		return err
	}
	defer c.Unuse()
	next := 0 // everything before has been seen
	return s.wait(ctx, func() bool {
		for ; next < sigs.Len(); next++ {
			if !s.excluded(next) && !s.holds(next) {
				return false
			}
		}
		return true
	}, func() int { return next })
}

// WaitAnyVector is WaitAny with a value for each signal.
func WaitAnyVector(ctx context.Context, c *pe.Context, sigs heap.Signals, status Status, start int, cmp Cmp, v []uint64, opts ...WaitOption) (int, error) {
	s, err := scan(c, "rma: wait any", sigs, status, cmp, v, opts)
	if err != nil {
		return -1, err
	}
	defer c.Unuse()
	if s.empty() {
		return -1, nil
	}
	n := sigs.Len()
	start = ((start % n) + n) % n
	found := -1
	err = s.wait(ctx, func() bool {
		for i := 1; i <= n; i++ {
			if k := (start + i) % n; !s.excluded(k) && s.holds(k) {
				found = k
				return true
			}
		}
		return false
	}, s.first)
	return found, err
}

// WaitSomeVector is WaitSome with a value for each signal.
func WaitSomeVector(ctx context.Context, c *pe.Context, sigs heap.Signals, status Status, out []int, cmp Cmp, v []uint64, opts ...WaitOption) ([]int, error) {
	s, err := scan(c, "rma: wait some", sigs, status, cmp, v, opts)
	if err != nil {
		return out, err
	}
	defer c.Unuse()
	if s.empty() {
		return out, nil
	}
	before := len(out)
	err = s.wait(ctx, func() bool {
		out = s.appendHolding(out[:before])
		return len(out) > before
	}, s.first)
	return out, err
}

// TestAll reports whether every signal compares as asked with v.
func TestAll(c *pe.Context, sigs heap.Signals, status Status, cmp Cmp, v uint64) (bool, error) {
	return TestAllVector(c, sigs, status, cmp, same(sigs.Len(), v))
}

// TestAny is WaitAny that does not wait: -1 if none compares.
func TestAny(c *pe.Context, sigs heap.Signals, status Status, start int, cmp Cmp, v uint64) (int, error) {
	return TestAnyVector(c, sigs, status, start, cmp, same(sigs.Len(), v))
}

// TestSome is WaitSome that does not wait.
func TestSome(c *pe.Context, sigs heap.Signals, status Status, out []int, cmp Cmp, v uint64) ([]int, error) {
	return TestSomeVector(c, sigs, status, out, cmp, same(sigs.Len(), v))
}

// TestAllVector is TestAll with a value for each signal.
func TestAllVector(c *pe.Context, sigs heap.Signals, status Status, cmp Cmp, v []uint64) (bool, error) {
	s, err := scan(c, "rma: test all", sigs, status, cmp, v, nil)
	if err != nil {
		return false, err
	}
	defer c.Unuse()
	c.Progress()
	for i := range sigs.Len() {
		if !s.excluded(i) && !s.holds(i) {
			return false, nil
		}
	}
	return true, nil
}

// TestAnyVector is TestAny with a value for each signal.
func TestAnyVector(c *pe.Context, sigs heap.Signals, status Status, start int, cmp Cmp, v []uint64) (int, error) {
	s, err := scan(c, "rma: test any", sigs, status, cmp, v, nil)
	if err != nil {
		return -1, err
	}
	defer c.Unuse()
	c.Progress()
	n := sigs.Len()
	for i := 1; i <= n; i++ {
		if k := (((start % n) + n) + i) % n; !s.excluded(k) && s.holds(k) {
			return k, nil
		}
	}
	return -1, nil
}

// TestSomeVector is TestSome with a value for each signal.
func TestSomeVector(c *pe.Context, sigs heap.Signals, status Status, out []int, cmp Cmp, v []uint64) ([]int, error) {
	s, err := scan(c, "rma: test some", sigs, status, cmp, v, nil)
	if err != nil {
		return out, err
	}
	defer c.Unuse()
	c.Progress()
	return s.appendHolding(out), nil
}

// scanner is a wait or test over an array of signals.
type scanner struct {
	c      *pe.Context
	op     string
	sigs   heap.Signals
	base   unsafe.Pointer
	status Status
	cmp    Cmp
	v      []uint64 // to compare with
	from   []int
}

func same(n int, v uint64) []uint64 {
	s := make([]uint64, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// scan validates; on success the caller must Unuse the context.
func scan(c *pe.Context, op string, sigs heap.Signals, status Status, cmp Cmp, v []uint64, opts []WaitOption) (*scanner, error) {
	fail := func(err error) (*scanner, error) { return nil, waitErr(c, op, sigs.Ref(), nil, err) }
	if cmp >= numCmp {
		return fail(fmt.Errorf("%v: %w", cmp, errs.ErrConfig))
	}
	if status != nil && len(status) != sigs.Len() {
		return fail(fmt.Errorf("%d states for %d signals: %w", len(status), sigs.Len(), errs.ErrConfig))
	}
	if len(v) != sigs.Len() {
		return fail(fmt.Errorf("%d values for %d signals: %w", len(v), sigs.Len(), errs.ErrConfig))
	}
	from, err := fromOf(c, opts)
	if err != nil {
		return fail(err)
	}
	if !c.Use() {
		return fail(c.Refusal())
	}
	s := &scanner{c: c, op: op, sigs: sigs, status: status, cmp: cmp, v: v, from: from}
	if sigs.Len() > 0 {
		if err = c.CheckLocal(sigs.Ref(), uint64(sigs.Bytes())); err == nil {
			s.base, err = c.LocalWord(sigs.Ref(), 8)
		}
	} else if sigs.Ref().OutOfRange() {
		err = errs.ErrRange
	}
	if err != nil {
		c.Unuse()
		return fail(err)
	}
	return s, nil
}

func (s *scanner) word(i int) heap.Cells {
	return heap.CellsAt(unsafe.Add(s.base, i*heap.SignalSize))
}

func (s *scanner) holds(i int) bool { return holds(s.word(i).Load(), s.cmp, s.v[i]) }

func (s *scanner) excluded(i int) bool { return s.status != nil && s.status[i] != 0 }

// empty reports whether there is nothing to wait for.
func (s *scanner) empty() bool { return s.first() >= s.sigs.Len() }

// first is the first signal that is not excluded.
func (s *scanner) first() int {
	i := 0
	for i < s.sigs.Len() && s.excluded(i) {
		i++
	}
	return i
}

func (s *scanner) appendHolding(out []int) []int {
	for i := range s.sigs.Len() {
		if !s.excluded(i) && s.holds(i) {
			out = append(out, i)
		}
	}
	return out
}

// wait waits for cond; which tells, for a timeout's error, the signal waited for.
func (s *scanner) wait(ctx context.Context, cond func() bool, which func() int) error {
	err := s.c.Wait(ctx, false, s.from, cond)
	if err == nil {
		return nil
	}
	var want, have uint64
	if i := which(); i < s.sigs.Len() {
		want, have = s.v[i], s.word(i).Load()
	}
	return waitErr(s.c, s.op, s.sigs.Ref(), s.from, timeout(err, "signals", s.from, want, have))
}
