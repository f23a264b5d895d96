package spin

import (
	"runtime"
	"time"
)

// Policy says how a waiter spends its turns before it sleeps.
type Policy struct {
	Turns      int           // PAUSE turns before the first yield
	InProcess  bool          // those waited for are goroutines of this process: yield to them by Gosched
	Alone      bool          // each PE of the host has a core: nobody that is waited for wants this one
	SleepAfter time.Duration // time spent spinning and yielding before sleeping
}

// Auto is the measured policy: 150 turns where every PE has a core, 2 where PEs
// share them (8 cost a barrier of 16 PEs on two cores 2 us more). inProcess says
// that the PEs are goroutines of this process. turns > 0 overrides the number of
// turns.
func Auto(shared, inProcess bool, turns int, sleepAfter time.Duration) Policy {
	p := Policy{Turns: 150, InProcess: inProcess, Alone: !shared, SleepAfter: sleepAfter}
	if shared {
		p.Turns = 2
	}
	if turns > 0 {
		p.Turns = turns
	}
	return p
}

// Ladder is one wait's way down: spin, yield, then tell the caller to sleep.
// The zero value with a Policy is ready; it lives on the waiter's stack.
type Ladder struct {
	Policy
	i     uint32
	start time.Time
}

// Next spends one turn and reports whether it is time to sleep. It never sleeps
// itself.
func (l *Ladder) Next() (sleep bool) {
	l.i++
	if int(l.i) <= l.Turns {
		Turn(l.i)
		return false
	}
	return l.yield()
}

// Reset starts again from spinning, after something moved.
func (l *Ladder) Reset() { l.i = 0; l.start = time.Time{} }

// Rest gives the core away once, to whom the policy says.
func (p Policy) Rest() {
	if p.InProcess {
		runtime.Gosched()
	} else {
		Yield()
	}
}

// yield gives the core away: to other processes by the system call (Gosched does
// not), to goroutines of this process by Gosched. Where each PE has a core the system
// call gives it to strangers, for as long as the kernel lets them: seldom, but not
// never, since whoever is waited for may be bound to this core after all.
func (l *Ladder) yield() bool {
	if l.Alone && !l.InProcess {
		Turn(l.i)
		if l.i%4 == 0 {
			runtime.Gosched()
		}
		if l.i%64 == 0 {
			Yield()
		}
	} else if l.InProcess {
		runtime.Gosched()
		if l.i%64 == 0 {
			Yield()
		}
	} else {
		Yield()
		if l.i%4 == 0 {
			runtime.Gosched()
		}
	}
	if l.i%8 != 0 {
		return false
	}
	now := time.Now()
	if l.start.IsZero() {
		l.start = now
		return false
	}
	return now.Sub(l.start) >= l.SleepAfter
}
