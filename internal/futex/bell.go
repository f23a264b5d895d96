package futex

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// MaxNap bounds one sleep: agents that ring nobody are noticed after it even
// where nobody knew that they exist.
const MaxNap = 100 * time.Millisecond

// Bell wakes the sleepers of one PE. armed and bell are words of that PE's
// segment header, so that any process that maps the segment can ring.
//
// Protocol (store, fence, load on both sides): the waiter reads bell, increments
// armed, checks its condition again and sleeps only while bell is unchanged; the
// ringer makes its change with, or follows it by, a locked instruction and then
// loads armed.
type Bell struct {
	armed, bell *atomic.Uint32
	raw         *uint32  // bell, for the futex system call
	local       *Sleeper // sleepers of a world that lives in one process; nil: ring by futex
}

// NewBell binds the two words. A world whose PEs all live in this process passes
// the PE's sleeper and is rung without system calls.
func NewBell(armed, bell *uint32, local *Sleeper) *Bell {
	return &Bell{armed: word(armed), bell: word(bell), raw: bell, local: local}
}

// Check rings if somebody may sleep. Call it after a locked instruction that
// followed, or was, the change.
func (b *Bell) Check() {
	if b.armed.Load() != 0 {
		b.Ring()
	}
}

// Armed is the word to look at, for callers that inline Check.
func (b *Bell) Armed() *atomic.Uint32 { return b.armed }

// Ring wakes all sleepers of the PE, whatever they wait for.
func (b *Bell) Ring() {
	b.bell.Add(1)
	if b.local != nil {
		b.local.broadcast()
		return
	}
	// A failing FUTEX_WAKE means that the mapping is gone: nobody sleeps there.
	_, _ = Wake(b.raw, 1<<30)
}

// Sleeper is where the goroutines of one PE sleep. At most one of them is in
// FUTEX_WAIT; the others park on a channel behind it.
type Sleeper struct {
	bell   *Bell
	shared bool // rung from other processes: somebody must be in FUTEX_WAIT

	mu     sync.Mutex
	leader bool
	gen    chan struct{} // closed and replaced at each broadcast
}

// NewSleeper makes the sleeper of the PE whose header holds the two words;
// shared tells whether other processes ring it.
func NewSleeper(armed, bell *uint32, shared bool) *Sleeper {
	s := &Sleeper{shared: shared, gen: make(chan struct{})}
	if shared {
		s.bell = NewBell(armed, bell, nil)
	} else {
		s.bell = NewBell(armed, bell, s)
	}
	return s
}

// Bell is the bell that wakes this sleeper's goroutines.
func (s *Sleeper) Bell() *Bell { return s.bell }

// Sleep sleeps until the bell rings, nap passes, or ctx ends, unless recheck
// (called once armed) says that there is no need to. It returns early for no
// reason at times: callers check their condition in a loop.
func (s *Sleeper) Sleep(ctx context.Context, nap time.Duration, recheck func() bool) {
	if nap > MaxNap {
		nap = MaxNap
	}
	if nap <= 0 {
		return
	}
	seen := s.bell.bell.Load()
	s.bell.armed.Add(1)
	defer s.bell.armed.Add(^uint32(0))
	if recheck() {
		return
	}
	s.mu.Lock()
	if s.bell.bell.Load() != seen {
		s.mu.Unlock()
		return
	}
	if s.shared && !s.leader {
		s.leader = true
		s.mu.Unlock()
		s.lead(ctx, seen, nap)
		return
	}
	gen := s.gen
	s.mu.Unlock()
	t := time.NewTimer(nap)
	defer t.Stop()
	select {
	case <-gen:
	case <-t.C:
	case <-ctx.Done():
	}
}

// lead sleeps in FUTEX_WAIT for everybody behind it and wakes them when it
// leaves: one of them leads next.
func (s *Sleeper) lead(ctx context.Context, seen uint32, nap time.Duration) {
	stop := func() bool { return true }
	rung := make(chan struct{})
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, func() {
			defer close(rung)
			s.bell.Ring()
		})
	}
	// An error of the system call ends the nap: the caller's loop checks on.
	_, _ = Wait(s.bell.raw, seen, nap)
	if !stop() {
		<-rung // nothing of this sleep touches the bell when it is over
	}
	s.mu.Lock()
	s.leader = false
	s.wakeLocked()
	s.mu.Unlock()
}

func (s *Sleeper) broadcast() {
	s.mu.Lock()
	s.wakeLocked()
	s.mu.Unlock()
}

func (s *Sleeper) wakeLocked() {
	close(s.gen)
	s.gen = make(chan struct{})
}
