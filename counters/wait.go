package counters

import (
	"context"
	"sync/atomic"
	"time"

	"goshmem/internal/errs"
	"goshmem/internal/futex"
	"goshmem/internal/spin"
)

// Waiter is how the goroutines of one PE wait. It is shared by them and holds no
// state of a single wait.
type Waiter struct {
	Policy   spin.Policy
	Timeout  time.Duration // deadline of a wait whose context has none
	Sleeper  *futex.Sleeper
	Progress func() bool    // drives the world's proxy one step; reports whether something moved
	Begin    func()         // a wait that does more than look begins and
	End      func()         // ends: the proxy's background goroutine stays away meanwhile
	Doze     func()         // ends by going to sleep; nil: as End
	Epoch    *atomic.Uint32 // changes on every loss, close and acknowledgement
	Silent   func() bool    // whether agents that ring nobody reach this PE (NICs, streams, kernels)
}

// SilentNap is how long who slept for some time without being rung may sleep on,
// where agents that ring nobody may end the wait: 50 us in the first milliseconds, up
// to a millisecond later, so that a long copy ends late by a fiftieth at most.
func SilentNap(asleep time.Duration) time.Duration {
	return min(max(50*time.Microsecond, asleep/64), time.Millisecond)
}

// Until waits for cond. fail says whether the wait has become hopeless (a lost
// PE, a closed world); it is asked at the beginning and whenever Epoch changed.
// cond wins over fail, and may be asked again after it held. polled says that the
// awaited word may be written by an agent that does not ring, such as a plain put.
//
// It returns nil, fail's error, the context's cause when cancelled, or
// errs.ErrTimeout, which the caller dresses with what it wanted.
func (w *Waiter) Until(ctx context.Context, polled bool, cond func() bool, fail func() error) error {
	if cond() {
		return nil
	}
	epoch := w.Epoch.Load()
	if err := fail(); err != nil {
		if cond() {
			return nil
		}
		return err
	}
	if ctx == nil {
		return errs.ErrNoContext
	}
	if ctx.Err() != nil {
		return ctxError(ctx)
	}
	w.Begin()
	defer w.End()
	done := ctx.Done()
	lad := spin.Ladder{Policy: w.Policy}
	timeout := w.Timeout
	if _, has := ctx.Deadline(); has {
		timeout = 0 // the context's own deadline decides
	}
	var (
		deadline time.Time
		asleep   time.Duration
		turn     uint32
	)
	for {
		moved := w.Progress()
		if cond() {
			return nil
		}
		if e := w.Epoch.Load(); e != epoch {
			epoch = e
			if err := fail(); err != nil {
				if cond() {
					return nil
				}
				return err
			}
		}
		if turn++; done != nil && turn%16 == 0 {
			select {
			case <-done:
				return ctxError(ctx)
			default:
			}
		}
		sleep := false
		if moved {
			lad.Reset()
		} else {
			sleep = lad.Next()
		}
		// A proxy that always finds work must not hide the deadline.
		if !sleep && turn%1024 != 0 {
			continue
		}
		now := time.Now()
		if deadline.IsZero() {
			deadline = now.Add(timeout)
		}
		left := deadline.Sub(now)
		if left <= 0 && timeout > 0 {
			return errs.ErrTimeout
		}
		if !sleep {
			continue
		}
		nap := futex.MaxNap
		if timeout > 0 && left < nap {
			nap = left
		}
		if polled || w.Silent() {
			nap = min(nap, SilentNap(asleep))
		}
		if w.Doze != nil {
			w.Doze()
		} else {
			w.End()
		}
		w.Sleeper.Sleep(ctx, nap, func() bool { return cond() || w.Epoch.Load() != epoch })
		w.Begin()
		asleep += time.Since(now) // less than nap where somebody rang
		if ctx.Err() != nil {
			if cond() {
				return nil
			}
			return ctxError(ctx)
		}
	}
}

// ctxError turns a context's end into the errors of the contract: a deadline is
// ErrTimeout, a cancellation satisfies errors.Is(err, context.Canceled).
func ctxError(ctx context.Context) error {
	err := context.Cause(ctx)
	if ctx.Err() == context.DeadlineExceeded {
		return &deadlineError{}
	}
	if err == nil || err == ctx.Err() {
		return ctx.Err()
	}
	return &cancelError{cause: err}
}

// deadlineError is both ErrTimeout and context.DeadlineExceeded.
type deadlineError struct{}

func (*deadlineError) Error() string { return "timed out: context deadline exceeded" }
func (*deadlineError) Is(t error) bool {
	return t == errs.ErrTimeout || t == context.DeadlineExceeded
}
func (*deadlineError) Timeout() bool { return true }

// cancelError is context.Canceled with the cause its canceller gave.
type cancelError struct{ cause error }

func (e *cancelError) Error() string   { return "canceled: " + e.cause.Error() }
func (e *cancelError) Unwrap() error   { return e.cause }
func (e *cancelError) Is(t error) bool { return t == context.Canceled }
