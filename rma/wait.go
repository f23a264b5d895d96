package rma

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/spin"
	"goshmem/pe"
)

// WaitOption narrows a wait.
type WaitOption struct {
	from    []int
	index   int
	indexed bool
}

// From names the PEs (numbers in the context's team) that a wait depends on: the
// loss of another does not end it. Without it a wait depends on the whole team.
func From(pes ...int) WaitOption {
	if pes == nil {
		pes = []int{}
	}
	return WaitOption{from: pes}
}

// Index chooses which of the eight built-in words WaitSignals waits on; 0
// without it.
func Index(i int) WaitOption { return WaitOption{index: i, indexed: true} }

// indexOf is the built-in word that the options choose, the last of them.
func indexOf(opts []WaitOption) int {
	index := 0
	for i := range opts {
		if opts[i].indexed {
			index = opts[i].index
		}
	}
	return index
}

// fromOf collects what the options name; nil: the whole team.
func fromOf(c *pe.Context, opts []WaitOption) ([]int, error) {
	var from []int
	for _, o := range opts {
		for _, p := range o.from {
			if p < 0 || p >= c.Size() {
				return nil, fmt.Errorf("from pe %d: %w", p, errs.ErrPeer)
			}
		}
		if o.from != nil {
			from = append(from, o.from...)
			if from == nil {
				from = []int{}
			}
		}
	}
	return from, nil
}

// WaitSignal returns when sig of this PE compares as asked with v: everything
// ordered before the signal is visible then. It consumes nothing. It fails at
// ctx's deadline (GOSHMEM_TIMEOUT where it has none) with ErrTimeout, when ctx
// is cancelled, when a PE it depends on is lost (ErrPeerLost) or the world closed.
func WaitSignal(ctx context.Context, c *pe.Context, sig heap.Signal, cmp Cmp, v uint64, opts ...WaitOption) error {
	if !c.Use() {
		return waitErr(c, "rma: wait signal", sig.Ref(), nil, c.Refusal())
	}
	w := c.OwnSignal(sig)
	spun := w != nil && cmp < numCmp && len(opts) == 0
	var err error
	if !spun || !spinOnly(c, w, cmp, v) {
		err = waitSignal(ctx, c, sig, cmp, v, opts, spun)
	}
	c.Unuse() // not deferred: that is a nanosecond of every signal
	return err
}

func waitSignal(ctx context.Context, c *pe.Context, sig heap.Signal, cmp Cmp, v uint64, opts []WaitOption, spun bool) error {
	w, err := signalWord(c, sig, cmp)
	if err != nil {
		return waitErr(c, "rma: wait signal", sig.Ref(), nil, err)
	}
	var from []int
	if len(opts) > 0 {
		if from, err = fromOf(c, opts); err != nil {
			return waitErr(c, "rma: wait signal", sig.Ref(), nil, err)
		}
	}
	if holds(w.Load(), cmp, v) || !spun && spinWord(c, w, cmp, v) {
		return nil
	}
	if err := c.Wait(ctx, false, from, func() bool { return holds(w.Load(), cmp, v) }); err != nil {
		return waitErr(c, "rma: wait signal", sig.Ref(), from, timeout(err, "signal", from, v, w.Load()))
	}
	return nil
}

// lookEvery is after how many turns spinWord looks at the proxy: a cache line of
// its own, and a tenth of the time of a signal if looked at every turn.
const lookEvery = 8

// spinWord is the first turns of a wait, with nothing in the loop but the word:
// what is looked at between two looks at it is latency. It gives up soon when the
// proxy has work, which the wait proper drives.
func spinWord(c *pe.Context, w heap.Cells, cmp Cmp, v uint64) bool {
	for i := range uint32(c.SpinTurns()) {
		if holds(w.Load(), cmp, v) {
			return true
		}
		if i%lookEvery == lookEvery-1 && c.Busy() {
			return false
		}
		spin.Turn(i)
	}
	return holds(w.Load(), cmp, v)
}

// spinOnly is spinWord of a signal that only CPUs change. A loop of its own: summing
// cells costs 3 ns of every signal.
func spinOnly(c *pe.Context, w *atomic.Uint64, cmp Cmp, v uint64) bool {
	for i := range uint32(c.SpinTurns()) {
		if holds(w.Load(), cmp, v) {
			return true
		}
		if i%lookEvery == lookEvery-1 && c.Busy() {
			return false
		}
		spin.Turn(i)
	}
	return holds(w.Load(), cmp, v)
}

// ReadSignal is the value of a signal of this PE.
func ReadSignal(c *pe.Context, sig heap.Signal) (uint64, error) {
	if !c.Use() {
		return 0, waitErr(c, "rma: read signal", sig.Ref(), nil, c.Refusal())
	}
	defer c.Unuse()
	w, err := signalWord(c, sig, EQ)
	if err != nil {
		return 0, waitErr(c, "rma: read signal", sig.Ref(), nil, err)
	}
	return w.Load(), nil
}

// TestSignal reports whether sig of this PE compares as asked with v; it drives
// the world's progress when it does not.
func TestSignal(c *pe.Context, sig heap.Signal, cmp Cmp, v uint64) (bool, error) {
	if !c.Use() {
		return false, waitErr(c, "rma: test signal", sig.Ref(), nil, c.Refusal())
	}
	defer c.Unuse()
	w, err := signalWord(c, sig, cmp)
	if err != nil {
		return false, waitErr(c, "rma: test signal", sig.Ref(), nil, err)
	}
	if holds(w.Load(), cmp, v) {
		return true, nil
	}
	c.Progress()
	return holds(w.Load(), cmp, v), nil
}

// signalWord is a signal of this PE.
func signalWord(c *pe.Context, sig heap.Signal, cmp Cmp) (heap.Cells, error) {
	if cmp >= numCmp {
		return heap.Cells{}, fmt.Errorf("%v: %w", cmp, errs.ErrConfig)
	}
	return c.SignalCells(sig)
}

// timeout dresses a bare deadline with what was wanted and what was there.
func timeout(err error, what string, from []int, want, have uint64) error {
	if !errors.Is(err, errs.ErrTimeout) {
		return err
	}
	p := -1
	if len(from) == 1 {
		p = from[0]
	}
	return &timedOut{errs.TimeoutError{What: what, PE: p, Want: want, Have: have}, err}
}

// timedOut is a TimeoutError that also is what ended the wait.
type timedOut struct {
	errs.TimeoutError
	cause error
}

func (t *timedOut) Unwrap() error { return t.cause }

func (t *timedOut) As(target any) bool {
	if p, ok := target.(**errs.TimeoutError); ok {
		*p = &t.TimeoutError
		return true
	}
	return false
}

func waitErr(c *pe.Context, op string, at heap.Ref, from []int, err error) error {
	p := -1
	if len(from) == 1 {
		p = from[0]
	}
	return opErr(c, op, p, at, -1, err)
}
