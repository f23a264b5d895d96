package suite

import (
	"errors"
	"sync/atomic"

	"goshmem/amo"
	"goshmem/pe"
	"goshmem/rma"
)

func hookCases() []Case {
	return []Case{
		{Name: "hook relays", Run: hookRelay},
		{Name: "hook never blocks", Run: hookFull},
	}
}

// A token runs round the PEs, carried by hooks alone, while their callers do
// something else.
func hookRelay(e *Env) {
	rounds := uint64(Times(80))
	ref := e.Mem(64)
	token, done := e.Signals(1).At(0), e.Signals(1).At(0)
	to := e.Next(1)
	var failed atomic.Pointer[error]
	var seen atomic.Uint64
	payload := make([]byte, 8)
	h := e.P.AddHook(func() bool {
		v, err := rma.ReadSignal(e.C, token)
		if err != nil {
			failed.CompareAndSwap(nil, &err)
			return false
		}
		if v <= seen.Load() {
			return false
		}
		if e.Rank() == 0 && v >= rounds {
			// The end, told to everybody.
			if err = rma.TrySignal(e.C, done, rma.SignalAdd, 1, to); err == nil {
				seen.Store(v)
			}
		} else {
			fill(payload, int(v), 0)
			if _, err = rma.TryPutMemSignalNBI(e.C, ref, payload, token, rma.SignalAdd, 1, to); err == nil {
				seen.Store(v)
			}
		}
		if err != nil && !errors.Is(err, pe.ErrWouldBlock) {
			failed.CompareAndSwap(nil, &err)
		}
		return err == nil
	})
	defer h.Remove()
	e.Barrier()
	h.Arm()
	if e.Rank() == 0 {
		e.OK(rma.Signal(e.C, token, rma.SignalAdd, 1, to))
	}
	// Something else: work that calls nothing, then operations of its own.
	sum := 0
	for i := range 100_000 {
		sum += i * sum
	}
	word := Calloc[uint64](e, 1).At(0)
	for range 20 {
		_, err := amo.FetchAdd(e.C, word, 1, e.Next(2))
		e.OK(err)
	}
	if e.Rank() == 1%e.Size() {
		e.OK(rma.WaitSignal(e.Ctx, e.C, done, rma.GE, 1))
	}
	e.Barrier()
	if err := failed.Load(); err != nil {
		e.OK(*err)
	}
	h.Disarm()
	e.OK(rma.Quiet(e.Ctx, e.C))
	want := rounds
	v, err := rma.ReadSignal(e.C, token)
	e.OK(err)
	e.Equal(want, v)
	e.Barrier()
}

// A hook that offers more than there is room for gets ErrWouldBlock and goes on
// later; nothing is lost and nobody waits for ever.
func hookFull(e *Env) {
	total := Times(2000)
	word := Calloc[uint64](e, 1).At(0)
	sig := e.Signals(1).At(0)
	to := e.Next(1)
	sent, refused := 0, 0
	var over atomic.Bool
	var failed atomic.Pointer[error]
	h := e.P.AddHook(func() bool {
		moved := false
		for sent < total {
			err := rma.TrySignal(e.C, sig, rma.SignalAdd, 1, to)
			if err == nil {
				// The word is behind the signal; it may find no room by itself.
				err = amo.TryAdd(e.C, word, 1, to)
				for k := 0; errors.Is(err, pe.ErrWouldBlock) && k < 3; k++ {
					err = amo.TryAdd(e.C, word, 1, to)
				}
				if errors.Is(err, pe.ErrWouldBlock) {
					err = nil // counted by the signal alone
				}
				sent++
				moved = true
			}
			if errors.Is(err, pe.ErrWouldBlock) {
				refused++
				return moved
			}
			if err != nil {
				failed.CompareAndSwap(nil, &err)
				over.Store(true)
				return moved
			}
		}
		over.Store(true)
		return moved
	})
	defer h.Remove()
	e.Barrier()
	h.Arm()
	e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.GE, uint64(total)))
	for !over.Load() {
		e.C.Progress()
		e.OK(e.Ctx.Err())
	}
	h.Disarm()
	if err := failed.Load(); err != nil {
		e.OK(*err)
	}
	e.OK(rma.Quiet(e.Ctx, e.C))
	e.Barrier()
	v, err := rma.ReadSignal(e.C, sig)
	e.OK(err)
	e.Equal(uint64(total), v)
	n, err := amo.Fetch(e.C, word, e.Rank())
	e.OK(err)
	e.True(n <= uint64(total), "more than were added")
	if e.Inline(to) {
		e.Equal(0, refused)
	}
	if e.Inline(e.Next(-1)) {
		e.Equal(uint64(total), n)
	}
	e.Barrier()
}
