package rma

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/pe"
)

// WaitSignals waits for n further notifications (Notify, PutMemNotify) from each
// named PE, or from every PE of the team but this one and those whose loss was
// acknowledged, and consumes them: the next wait counts from there. The words
// themselves only grow. Index chooses the built-in word. On an error nothing is
// consumed.
func WaitSignals(ctx context.Context, c *pe.Context, n uint64, opts ...WaitOption) error {
	const op = "rma: wait signals"
	from, err := fromOf(c, opts)
	if err != nil {
		return waitErr(c, op, heap.Ref{}, nil, err)
	}
	index := indexOf(opts)
	if !c.Use() {
		return waitErr(c, op, heap.Ref{}, nil, &errs.ClosedError{PE: c.PE().Rank()})
	}
	defer c.Unuse()
	sources := sourcesOf(c, from)
	words := make([]*atomic.Uint64, len(sources))
	for i, s := range sources {
		w, err := c.OwnWord(s, index)
		if err != nil {
			return waitErr(c, op, heap.Ref{}, nil, fmt.Errorf("built-in word %d of pe %d: %w", index, s, err))
		}
		words[i] = w
	}
	// The expectation is taken at once, so that two waits of one context wait
	// for different notifications; it is given back if the wait fails.
	want := make([]uint64, len(sources))
	c.Lock()
	for i, s := range sources {
		e := c.Expected(s, index)
		if want[i] = *e + n; want[i] < n {
			c.Unlock()
			return waitErr(c, op, heap.Ref{}, from, tooMany(n, *e))
		}
	}
	for _, s := range sources {
		*c.Expected(s, index) += n
	}
	c.Unlock()
	if len(sources) == 0 {
		return nil
	}
	next := 0
	err = c.Wait(ctx, false, from, func() bool {
		for ; next < len(words); next++ {
			if words[next].Load() < want[next] {
				return false
			}
		}
		return true
	})
	if err == nil {
		return nil
	}
	c.Lock()
	for _, s := range sources {
		*c.Expected(s, index) -= n
	}
	c.Unlock()
	if next == len(words) {
		next--
	}
	missing := sources[next]
	return waitErr(c, op, heap.Ref{}, from, timeout(err, "notifications", []int{missing}, want[next], words[next].Load()))
}

// sourcesOf are the PEs that a wait counts from, each once.
func sourcesOf(c *pe.Context, from []int) []int {
	if from != nil {
		sources := slices.Clone(from)
		slices.Sort(sources)
		return slices.Compact(sources)
	}
	var sources []int
	for i := range c.Size() {
		if i != c.Rank() && !c.Acknowledged(i) {
			sources = append(sources, i)
		}
	}
	return sources
}

// tooMany refuses an expectation that no word can reach.
func tooMany(n, consumed uint64) error {
	return fmt.Errorf("%d notifications after %d: %w", n, consumed, errs.ErrRange)
}

// WaitNotify is WaitSignals for one source PE: it waits for n further
// notifications from it on built-in word index and consumes them. It does not
// allocate while it spins.
func WaitNotify(ctx context.Context, c *pe.Context, index, source int, n uint64) error {
	const op = "rma: wait notify"
	if !c.Use() {
		return waitErr(c, op, heap.Ref{}, nil, &errs.ClosedError{PE: c.PE().Rank()})
	}
	defer c.Unuse()
	w, err := c.OwnWord(source, index)
	if err != nil {
		return opErr(c, op, source, heap.Ref{}, -1, fmt.Errorf("built-in word %d: %w", index, err))
	}
	c.Lock()
	e := c.Expected(source, index)
	want := *e + n
	if want < n {
		c.Unlock()
		return opErr(c, op, source, heap.Ref{}, -1, tooMany(n, want-n))
	}
	*e = want
	c.Unlock()
	if w.Load() >= want || spinWord(c, heap.OneCell(w), GE, want) {
		return nil
	}
	if err := c.WaitOn(ctx, source, func() bool { return w.Load() >= want }); err != nil {
		c.Lock()
		*e -= n
		c.Unlock()
		return opErr(c, op, source, heap.Ref{}, -1, timeout(err, "notifications", []int{source}, want, w.Load()))
	}
	return nil
}
