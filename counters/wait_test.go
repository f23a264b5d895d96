package counters

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"goshmem/internal/errs"
	"goshmem/internal/futex"
	"goshmem/internal/spin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a waiter and what it is made of.
type rig struct {
	Waiter
	armed, bell uint32
	epoch       atomic.Uint32
	polls       atomic.Int64
	inside      atomic.Int64 // Begin less End
	begun       atomic.Int64
	moved       atomic.Bool // what Progress reports
	silent      atomic.Bool
}

func newRig(shared bool, p spin.Policy) *rig {
	r := &rig{}
	r.Waiter = Waiter{
		Policy:  p,
		Timeout: time.Minute,
		Sleeper: futex.NewSleeper(&r.armed, &r.bell, shared),
		Progress: func() bool {
			r.polls.Add(1)
			return r.moved.Load()
		},
		Begin:  func() { r.inside.Add(1); r.begun.Add(1) },
		End:    func() { r.inside.Add(-1) },
		Epoch:  &r.epoch,
		Silent: r.silent.Load,
	}
	return r
}

func (r *rig) asleep() bool { return atomic.LoadUint32(&r.armed) != 0 }

// change makes every waiter look again, as a loss does.
func (r *rig) change() {
	r.epoch.Add(1)
	r.Sleeper.Bell().Check()
}

// The ways in which a waiter spends its time: spinning, yielding, asleep.
func phases() map[string]spin.Policy {
	return map[string]spin.Policy{
		"spins":                {Turns: 1 << 30, SleepAfter: time.Hour},
		"yields":               {Turns: 0, SleepAfter: time.Hour},
		"yields to goroutines": {Turns: 0, InProcess: true, SleepAfter: time.Hour},
		"sleeps":               {Turns: 0, SleepAfter: 1},
	}
}

func eachPhase(t *testing.T, f func(t *testing.T, r *rig)) {
	for name, p := range phases() {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/shared %v", name, shared), func(t *testing.T) {
				r := newRig(shared, p)
				f(t, r)
				require.Zero(t, r.inside.Load(), "Begin without End")
				require.False(t, r.asleep())
			})
		}
	}
}

// underway returns when a waiter is in the phase that its policy is for.
func (r *rig) underway(t *testing.T) {
	t.Helper()
	if r.Policy.SleepAfter == 1 {
		require.Eventually(t, r.asleep, time.Minute, 100*time.Microsecond)
		return
	}
	from := r.polls.Load()
	require.Eventually(t, func() bool { return r.polls.Load() > from+100 }, time.Minute, 100*time.Microsecond)
}

func good() error { return nil }
func no() bool    { return false }

func TestUntilHoldsAtOnce(t *testing.T) {
	eachPhase(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the condition wins
		hopeless := func() error { t.Error("asked though it holds"); return nil }
		require.NoError(t, r.Until(ctx, false, func() bool { return true }, hopeless))
		require.Zero(t, r.begun.Load())
		require.Zero(t, r.polls.Load())
	})
}

func TestUntilSeesChange(t *testing.T) {
	eachPhase(t, func(t *testing.T, r *rig) {
		for _, ctx := range []context.Context{context.Background(), t.Context()} {
			var word atomic.Bool
			var wg sync.WaitGroup
			wg.Go(func() {
				r.underway(t)
				word.Store(true)
				r.Sleeper.Bell().Check()
			})
			require.NoError(t, r.Until(ctx, false, word.Load, good))
			wg.Wait()
		}
	})
}

// Words that are changed without a ring are seen too: soon where such are
// expected, after a nap where not.
func TestUntilSeesSilentChange(t *testing.T) {
	eachPhase(t, func(t *testing.T, r *rig) {
		for _, how := range []string{"polled", "silent agents", "unexpected"} {
			r.silent.Store(how == "silent agents")
			var word atomic.Bool
			var wg sync.WaitGroup
			wg.Go(func() {
				if how == "unexpected" {
					r.underway(t)
				}
				word.Store(true)
			})
			require.NoError(t, r.Until(t.Context(), how == "polled", word.Load, good), how)
			wg.Wait()
			require.Zero(t, r.bell)
		}
	})
}

func TestUntilFails(t *testing.T) {
	lost := &errs.PeerLostError{PE: 3}
	eachPhase(t, func(t *testing.T, r *rig) {
		// Hopeless from the beginning.
		require.ErrorIs(t, r.Until(t.Context(), false, no, func() error { return lost }), errs.ErrPeerLost)
		require.Zero(t, r.begun.Load())
		// Hopeless, but it held in the meantime.
		held := false
		require.NoError(t, r.Until(t.Context(), false, func() bool { return held }, func() error {
			held = true
			return lost
		}))
		// It becomes so.
		var bad atomic.Bool
		var asked atomic.Int64
		fail := func() error {
			asked.Add(1)
			if bad.Load() {
				return lost
			}
			return nil
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			r.underway(t)
			r.change() // something else happened
			for asked.Load() < 2 {
				runtime.Gosched()
			}
			bad.Store(true)
			r.change()
		})
		require.ErrorIs(t, r.Until(t.Context(), false, no, fail), errs.ErrPeerLost)
		wg.Wait()
		require.EqualValues(t, 3, asked.Load(), "asked without a change")
		// It becomes so as the condition comes to hold.
		var word atomic.Bool
		bad.Store(false)
		wg.Go(func() {
			r.underway(t)
			bad.Store(true)
			r.change()
		})
		require.NoError(t, r.Until(t.Context(), false, word.Load, func() error {
			if bad.Load() {
				word.Store(true)
				return lost
			}
			return nil
		}))
		wg.Wait()
	})
}

func TestUntilCancelled(t *testing.T) {
	cause := errors.New("as told")
	eachPhase(t, func(t *testing.T, r *rig) {
		for _, busy := range []bool{false, true} {
			if busy && r.Policy.SleepAfter == 1 {
				continue // one that always finds work never sleeps
			}
			r.moved.Store(busy)
			for _, c := range []error{nil, cause} {
				ctx, cancel := context.WithCancelCause(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() {
					r.underway(t)
					cancel(c)
				})
				err := r.Until(ctx, false, no, good)
				wg.Wait()
				require.ErrorIs(t, err, context.Canceled)
				require.NotErrorIs(t, err, errs.ErrTimeout)
				if c != nil {
					require.ErrorIs(t, err, c)
					require.ErrorContains(t, err, "as told")
				}
				// And before it began.
				require.ErrorIs(t, r.Until(ctx, false, no, good), context.Canceled)
			}
		}
	})
}

func TestUntilDeadline(t *testing.T) {
	eachPhase(t, func(t *testing.T, r *rig) {
		check := func(err error) {
			t.Helper()
			require.ErrorIs(t, err, errs.ErrTimeout)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, context.Canceled)
			var timeout interface{ Timeout() bool }
			require.ErrorAs(t, err, &timeout)
			require.True(t, timeout.Timeout())
			require.ErrorContains(t, err, "timed out")
		}
		r.Timeout = time.Nanosecond // the context's own deadline counts
		for _, busy := range []bool{false, true} {
			r.moved.Store(busy)
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
			check(r.Until(ctx, false, no, good))
			require.GreaterOrEqual(t, time.Since(start), 3*time.Millisecond)
			check(r.Until(ctx, false, no, good))
			cancel()
		}
	})
}

func TestUntilOptionTimeout(t *testing.T) {
	eachPhase(t, func(t *testing.T, r *rig) {
		for _, busy := range []bool{false, true} {
			for _, polled := range []bool{false, true} {
				r.moved.Store(busy)
				r.Timeout = 3 * time.Millisecond
				start := time.Now()
				require.ErrorIs(t, r.Until(t.Context(), polled, no, good), errs.ErrTimeout)
				require.GreaterOrEqual(t, time.Since(start), 3*time.Millisecond)
			}
		}
	})
}

// While a waiter sleeps, the proxy's background goroutine may have the role.
func TestUntilSleepsOutsideTheProxy(t *testing.T) {
	r := newRig(true, spin.Policy{SleepAfter: 1})
	var word atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		r.underway(t)
		require.Eventually(t, func() bool { return r.inside.Load() == 0 }, time.Minute, 100*time.Microsecond)
		word.Store(true)
		r.Sleeper.Bell().Check()
	})
	require.NoError(t, r.Until(t.Context(), false, word.Load, good))
	wg.Wait()
}

// Many wait at once, each for its own word.
func TestUntilMany(t *testing.T) {
	const n = 12
	eachPhase(t, func(t *testing.T, r *rig) {
		var words [n]atomic.Bool
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := r.Until(t.Context(), false, words[i].Load, good); err != nil {
					t.Error(err)
				}
			})
		}
		for i := range n {
			words[n-1-i].Store(true)
			r.Sleeper.Bell().Check()
		}
		wg.Wait()
	})
}

// A waiter that finds work every turn does not sleep over it.
func TestUntilDrivesProgress(t *testing.T) {
	r := newRig(true, spin.Policy{SleepAfter: 1})
	r.moved.Store(true)
	require.NoError(t, r.Until(t.Context(), false, func() bool { return r.polls.Load() >= 5000 }, good))
	require.EqualValues(t, 1, r.begun.Load(), "it slept")
}

func TestUntilAllocatesNothingWhileItSpins(t *testing.T) {
	r := newRig(true, spin.Policy{Turns: 1 << 30, SleepAfter: time.Hour})
	ctx := context.Background()
	left := 0
	cond := func() bool { left--; return left < 0 }
	allocs := testing.AllocsPerRun(100, func() {
		left = 500
		if err := r.Until(ctx, false, cond, good); err != nil {
			t.Error(err)
		}
	})
	require.Zero(t, allocs)
}
