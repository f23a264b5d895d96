package fabric

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"goshmem/channel"
	"goshmem/internal/errs"
)

// Fabric makes the transports of worlds and lets a test interfere with them. A
// world whose PEs join one by one has a transport for each; they share the
// fabric. Its methods may be called by anybody at any time.
type Fabric struct {
	cfg Config

	mu      sync.Mutex
	all     []*transport // not closed
	stalled map[[2]int]bool
	dead    map[int]error
	stats   Stats
	events  []Event
	next    int // of events, where the next goes
}

// Stats counts what a fabric did.
type Stats struct {
	Posted    uint64 // requests taken
	Refused   uint64 // offered and not taken
	Lost      uint64 // sendings lost
	Landed    uint64 // requests that took effect
	Overtaken uint64 // of these, behind a later one of another lane
	Unordered uint64 // of these, behind a later one of their own lane (Broken)
	Completed uint64 // reported
	Failed    uint64 // reported with an error
	Greeted   uint64 // pairs of PEs that exchanged handshakes
}

// Event is one thing that happened to a request.
type Event struct {
	Tick        int64
	What        string // "post", "sending", "lost", "raised", "arrived", "ended", "failed"
	Owner, Peer int
	Lane        int    // of this pair, from 0
	N           uint64 // number of the request in the lane, from 0
	Op          channel.Op
}

func (e Event) String() string {
	return fmt.Sprintf("%d %s %v %d>%d/%d #%d", e.Tick, e.What, e.Op, e.Owner, e.Peer, e.Lane, e.N)
}

// New makes a fabric.
func New(cfg Config) (*Fabric, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Fabric{cfg: cfg, stalled: map[[2]int]bool{}, dead: map[int]error{}}, nil
}

// Factory makes the fabric's transports, for pe.Config.Remote.
func (f *Fabric) Factory() channel.Factory {
	return func(_ context.Context, env channel.Env) (channel.Transport, error) {
		for what, m := range map[string]map[int]int{"slow": f.cfg.Slow, "late": f.cfg.Late, "dies": f.cfg.Dies} {
			for pe := range m {
				if pe >= env.Size {
					return nil, fmt.Errorf("fabric: %s pe %d of %d: %w", what, pe, env.Size, errs.ErrConfig)
				}
			}
		}
		t := newTransport(f, env)
		f.mu.Lock()
		f.all = append(f.all, t)
		dead := maps.Clone(f.dead)
		f.mu.Unlock()
		for pe, err := range dead {
			t.die(pe, err)
		}
		return t, nil
	}
}

// Stall stops everything of the lanes from owner to peer: what is under way
// stays there, and nothing more is taken. -1 stands for every PE.
func (f *Fabric) Stall(owner, peer int) { f.setStall(owner, peer, true) }

// Resume ends a Stall with the same arguments.
func (f *Fabric) Resume(owner, peer int) { f.setStall(owner, peer, false) }

func (f *Fabric) setStall(owner, peer int, on bool) {
	f.mu.Lock()
	if on {
		f.stalled[[2]int{owner, peer}] = true
	} else {
		delete(f.stalled, [2]int{owner, peer})
	}
	all := slices.Clone(f.all)
	f.mu.Unlock()
	for _, t := range all {
		t.release()
	}
}

// Stalled reports whether the lanes from owner to peer are stopped.
func (f *Fabric) Stalled(owner, peer int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.isStalled(owner, peer)
}

func (f *Fabric) isStalled(owner, peer int) bool {
	s := f.stalled
	return len(s) > 0 && (s[[2]int{owner, peer}] || s[[2]int{owner, -1}] || s[[2]int{-1, peer}] || s[[2]int{-1, -1}])
}

// Kill makes a PE dead: what is under way from and to it fails, nothing more
// gets through, and every transport reports it lost.
func (f *Fabric) Kill(pe int) { f.kill(pe, "killed in the fabric") }

func (f *Fabric) kill(pe int, cause string) {
	f.mu.Lock()
	if f.dead[pe] != nil {
		f.mu.Unlock()
		return
	}
	err := &errs.PeerLostError{PE: pe, Cause: cause}
	f.dead[pe] = err
	all := slices.Clone(f.all)
	f.mu.Unlock()
	for _, t := range all {
		t.die(pe, err)
	}
}

// Stats is what the fabric did so far.
func (f *Fabric) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// Events are the latest events, the oldest first, at most Config.Record.
func (f *Fabric) Events() []Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.events) < f.cfg.Record {
		return slices.Clone(f.events)
	}
	return append(slices.Clone(f.events[f.next:]), f.events[:f.next]...)
}

// count changes the statistics and records an event.
func (f *Fabric) count(e Event, change func(*Stats)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if change != nil {
		change(&f.stats)
	}
	switch n := f.cfg.Record; {
	case n == 0:
	case len(f.events) < n:
		f.events = append(f.events, e)
	default:
		f.events[f.next] = e
		f.next = (f.next + 1) % n
	}
}

func (f *Fabric) forget(t *transport) {
	f.mu.Lock()
	f.all = slices.DeleteFunc(f.all, func(o *transport) bool { return o == t })
	f.mu.Unlock()
}
