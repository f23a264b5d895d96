package channel

import (
	"time"

	"goshmem/internal/spin"
)

// gatherNap is how often the background goroutine looks whether a producer is
// still gathering.
const gatherNap = 30 * time.Microsecond

// liveNap is how often the background goroutine looks whether callers still poll.
const liveNap = 250 * time.Microsecond

// Begin announces a caller that polls; End that it stopped. The background
// goroutine stays away between the two.
func (p *Proxy) Begin() { p.waiters.Add(1) }

// End is the other half of Begin. What may come in by itself is looked at by the
// background goroutine soon, without a wake-up now: the caller may be back before.
func (p *Proxy) End() {
	if p.waiters.Add(-1) == 0 && p.queued() {
		p.Kick()
	}
}

// Doze is End of a caller that goes to sleep.
func (p *Proxy) Doze() {
	if p.waiters.Add(-1) == 0 && p.Busy() {
		p.Kick()
	}
}

// Busy reports whether a turn could find something to do.
func (p *Proxy) Busy() bool { return p.live.Load() != 0 || p.queued() }

func (p *Proxy) queued() bool { return p.work.Load() != 0 || !p.ring.Empty() }

// SetLive counts a transport by which peers' requests come in: it is polled even
// when nothing is queued here.
func (p *Proxy) SetLive(on bool) {
	if on {
		p.live.Add(1)
		p.Kick()
		return
	}
	p.live.Add(-1)
}

// Kick makes somebody poll soon, by waking the background goroutine if it is parked.
// From any goroutine.
func (p *Proxy) Kick() {
	if p.parked.Load() != 0 && p.parked.CompareAndSwap(1, 0) {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// own is TryPoll of the background goroutine.
func (p *Proxy) own() bool {
	if !p.Busy() || !p.role.CompareAndSwap(roleFree, roleHeld) {
		return false
	}
	moved := p.turn()
	p.role.Store(roleFree)
	return moved
}

// background holds the role while nobody waits and there is work.
func (p *Proxy) background() {
	defer close(p.done)
	lad := spin.Ladder{Policy: p.policy}
	nap := time.NewTimer(time.Hour)
	nap.Stop()
	naps, seen, claimed := 0, uint64(0), uint64(0)
	for !p.closed.Load() {
		if n := p.ring.Claimed(); n != claimed && p.gathered.Load() {
			claimed = n
			spin.Nap(gatherNap)
			continue
		}
		if p.waiters.Load() == 0 && p.own() {
			lad.Reset()
			naps = 0
			continue
		}
		if !lad.Next() {
			continue
		}
		// Announce, look again, park: a producer claims first and looks at
		// parked afterwards, so one of the two sees the other.
		p.parked.Store(1)
		switch d := p.nap(&naps, &seen); {
		case d == 0:
			lad.Reset()
		case d < 0:
			// Announced before the look at polls, as a caller counts itself first.
			p.asleep.Store(p.live.Load() != 0)
			if p.polls.Load() == seen || !p.asleep.Load() {
				<-p.wake
			}
			p.asleep.Store(false)
			lad.Reset()
			naps = 0
		default:
			nap.Reset(d)
			select {
			case <-p.wake:
				naps = 0
				lad.Reset()
			case <-nap.C:
			}
		}
		p.parked.Store(0)
	}
}

// nap is how long the background goroutine, which has announced that it parks,
// may sleep: 0 not at all, less than that until it is woken.
func (p *Proxy) nap(naps *int, seen *uint64) time.Duration {
	const short, long = 50 * time.Microsecond, time.Millisecond
	idle := p.waiters.Load() == 0
	switch {
	case idle && !p.ring.Empty():
		if p.role.Load() == roleFree {
			return 0
		}
		return short // who holds the role may have looked at the ring before
	case idle && p.work.Load() != 0:
		// Work that waits for somebody else: look at it now and then.
		if *naps++; *naps > 20 {
			return long
		}
		return short
	case p.live.Load() == 0 || p.closed.Load():
		return -1
	}
	// What comes in is looked at by callers that wait while there are any; when
	// they no longer do, the transports are to wake this goroutine.
	if !p.role.CompareAndSwap(roleFree, roleHeld) {
		return short
	}
	defer p.role.Store(roleFree)
	n := p.polls.Load()
	polled := n != *seen
	*seen = n
	if !idle || polled {
		return liveNap
	}
	for _, t := range *p.transports.Load() {
		if r, ok := t.(Receiver); ok && !r.Arm() {
			return long
		}
	}
	return -1
}
