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
		return waitErr(c, op, heap.Ref{}, nil, c.Refusal())
	}
	defer c.Unuse()
	if _, err := c.BuiltinWord(index); err != nil { // there may be no source to tell
		return waitErr(c, op, heap.Ref{}, nil, err)
	}
	k := claim{c: c, index: index, n: n, sources: sourcesOf(c, from)}
	for _, s := range k.sources {
		w, err := c.OwnWord(s, index)
		if err != nil {
			return waitErr(c, op, heap.Ref{}, nil, fmt.Errorf("built-in word %d of pe %d: %w", index, s, err))
		}
		k.words = append(k.words, w)
	}
	if err := k.begin(); err != nil {
		return waitErr(c, op, heap.Ref{}, from, err)
	}
	if len(k.sources) == 0 {
		return nil
	}
	if err := c.Wait(ctx, false, from, k.try); err != nil {
		return waitErr(c, op, heap.Ref{}, from, k.dress(err))
	}
	return nil
}

// claim is a wait that consumes n notifications from each source, of all at once
// and only when all have come: one that ends early takes nothing away from the
// other waits of its context.
type claim struct {
	c       *pe.Context
	index   int
	n       uint64
	sources []int
	words   []*atomic.Uint64
	want    []uint64 // that each word must reach, as last known: it only grows
	next    int      // the words before have reached it
	taken   bool
}

// begin takes aim, and refuses what no word can reach.
func (k *claim) begin() error {
	k.want = make([]uint64, len(k.words))
	k.c.Lock()
	defer k.c.Unlock()
	for i, s := range k.sources {
		e := *k.c.Expected(s, k.index)
		if k.want[i] = e + k.n; k.want[i] < k.n {
			return tooMany(k.n, e)
		}
	}
	return nil
}

// try consumes if everything has come; it may be asked again afterwards.
func (k *claim) try() bool {
	if k.taken {
		return true
	}
	for ; k.next < len(k.words); k.next++ {
		if k.words[k.next].Load() < k.want[k.next] {
			return false
		}
	}
	k.c.Lock()
	defer k.c.Unlock()
	k.next = len(k.words)
	for i, s := range k.sources { // another wait may have consumed since
		k.want[i] = max(*k.c.Expected(s, k.index)+k.n, k.want[i])
		if k.words[i].Load() < k.want[i] {
			k.next = min(k.next, i)
		}
	}
	if k.next < len(k.words) {
		return false
	}
	for i, s := range k.sources {
		*k.c.Expected(s, k.index) = k.want[i]
	}
	k.taken = true
	return true
}

// dress names, in a timeout, the source that was missing.
func (k *claim) dress(err error) error {
	i := min(k.next, len(k.words)-1)
	return timeout(err, "notifications", k.sources[i:i+1], k.want[i], k.words[i].Load())
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
		return waitErr(c, op, heap.Ref{}, nil, c.Refusal())
	}
	defer c.Unuse()
	w, err := c.OwnWord(source, index)
	if err != nil {
		return opErr(c, op, source, heap.Ref{}, -1, fmt.Errorf("built-in word %d: %w", index, err))
	}
	want, ok := take(c, w, index, source, n)
	if ok {
		return nil
	}
	if want < n {
		return opErr(c, op, source, heap.Ref{}, -1, tooMany(n, want-n))
	}
	spinWord(c, heap.OneCell(w), GE, want)
	if err := c.WaitOn(ctx, source, func() bool {
		if !ok && w.Load() >= want {
			want, ok = take(c, w, index, source, n) // another wait may have consumed since
		}
		return ok
	}); err != nil {
		return opErr(c, op, source, heap.Ref{}, -1, timeout(err, "notifications", []int{source}, want, w.Load()))
	}
	return nil
}

// take consumes n notifications of one word if they have come. want is what the
// word must reach; less than n: it cannot.
func take(c *pe.Context, w *atomic.Uint64, index, source int, n uint64) (want uint64, ok bool) {
	c.Lock()
	defer c.Unlock()
	e := c.Expected(source, index)
	want = *e + n
	if ok = want >= n && w.Load() >= want; ok {
		*e = want
	}
	return want, ok
}
