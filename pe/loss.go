package pe

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"goshmem/channel"
	"goshmem/internal/bootstrap"
	"goshmem/internal/errs"
)

// peerState is what is known of one PE's life. Sticky.
type peerState struct {
	flags atomic.Uint32
	err   atomic.Pointer[error] // why it is lost
	nth   atomic.Uint32         // of the losses known here, from 1
}

const (
	peerLost uint32 = 1 << iota // died, or was silent past the failure deadline
	peerGone                    // said goodbye
	peerCut                     // a connection to it broke; whether it is lost or gone is not known yet
)

// onEvent is where the bootstrap's events arrive.
func (w *World) onEvent(p *PE, e bootstrap.Event) {
	switch e.Kind {
	case bootstrap.EventLost:
		w.markLost(e.PE, &errs.PeerLostError{PE: e.PE, Cause: e.Cause})
	case bootstrap.EventGoodbye:
		p.eachLane(func(l *channel.Lane) {
			if l.Config().Peer == e.PE {
				l.PeerGone(&errs.ClosedError{PE: e.PE})
			}
		})
		if e.PE >= 0 && e.PE < w.size {
			was := w.state[e.PE].flags.Or(peerGone)
			if was&peerCut != 0 {
				w.cutOff(e.PE, &errs.ClosedError{PE: e.PE})
			}
			if was&peerGone == 0 {
				w.changed()
			}
		}
		p.gone.note()
	case bootstrap.EventHubLost, bootstrap.EventHubClosed:
		p.gone.deaf.Store(true)
		p.gone.note()
		if !p.closing.Load() {
			cause := e.Cause
			if e.Kind == bootstrap.EventHubClosed {
				cause = "it closed the hub"
			}
			w.fail(&bootstrap.HubLostError{Cause: cause})
		}
	case bootstrap.EventMessage:
		if err := w.deliver(p.rank, e.PE, e.Blob); err != nil {
			w.log.Warn("message dropped", "from", e.PE, "err", err)
		}
	}
}

// markLost records a loss once: lanes to it fail, waits that depend on it end.
// With the holder of the hub goes who would tell of further losses: no wait may
// rely on it any more, and the world is closed.
func (w *World) markLost(pe int, err error) {
	if pe < 0 || pe >= w.size {
		return
	}
	st := &w.state[pe]
	if st.flags.Load()&peerLost != 0 {
		return
	}
	st.err.CompareAndSwap(nil, &err)
	st.nth.CompareAndSwap(0, w.losses.Add(1))
	if st.flags.Or(peerLost)&peerLost != 0 {
		return
	}
	elsewhere := w.localPE(pe) == nil
	for _, p := range w.locals() {
		if p.rank == pe {
			p.dropLanes(err) // nobody may be left to take what is queued
		} else {
			p.loseLanes(pe, err)
		}
		p.gone.note()
		if elsewhere && p.member.Holder() == pe {
			w.fail(err)
		}
	}
	w.changed()
}

// lostLink is a transport's word that it reaches a PE no more. What that means for
// all the hub decides, which knows who died and who left: a PE that closes when its time
// is up may not get a farewell through.
func (w *World) lostLink(pe int, err error) {
	p := w.localPE(pe)
	if p != nil && !p.closing.Load() {
		w.markLost(pe, err)
		return
	}
	if w.state[pe].flags.Or(peerCut)&peerGone != 0 {
		w.cutOff(pe, &errs.ClosedError{PE: pe})
		return
	}
	if e := w.failed.Load(); e != nil { // nobody is left to decide
		w.cutOff(pe, *e)
		return
	}
	if p != nil {
		return // its goodbye, or its loss, is on the way
	}
	for _, p := range w.locals() {
		// Who cannot be told any more is gone, which ends the world, or this PE has left.
		if e := p.member.Accuse(pe, err.Error()); e != nil {
			w.log.Warn("a broken connection is not told", "peer", pe, "err", e)
		}
	}
}

// cutOff fails what is pending to a PE that is not reached any more.
func (w *World) cutOff(pe int, err error) {
	for _, p := range w.locals() {
		p.loseLanes(pe, err)
	}
}

// told takes note of a loss that an exchange failed with: its event may be on
// the way still, and the caller is about to acknowledge it.
func (w *World) told(err error) error {
	if e, ok := errors.AsType[*errs.PeerLostError](err); ok {
		w.markLost(e.PE, e)
	}
	return err
}

// NoteLoss takes note of the loss that err tells of, if it does: by the word of
// another PE, which may come before the news itself. A loss is decided once for
// all; after a call that failed by it, AckLost must know it.
func (p *PE) NoteLoss(err error) { _ = p.world.told(err) }

// lossOf is why a PE is lost; nil if it is not.
func (w *World) lossOf(pe int) error {
	st := &w.state[pe]
	if st.flags.Load()&peerLost == 0 {
		return nil
	}
	return *st.err.Load()
}

// Lost lists the PEs known to be lost, by world rank.
func (p *PE) Lost() []int { return p.world.lost() }

func (w *World) lost() []int {
	var out []int
	for pe := range w.state {
		if w.lossOf(pe) != nil {
			out = append(out, pe)
		}
	}
	return out
}

// AckLost acknowledges the loss of a PE (a world rank): later waits and
// collective calls go on among the living. A wait that names the PE itself, by
// From, still fails. It is an error if the PE is not lost.
func (p *PE) AckLost(pe int) error {
	if pe < 0 || pe >= p.world.size {
		return &errs.OpError{Op: "pe: ack lost", PE: pe, Size: -1, Err: fmt.Errorf("pe %d of a world of %d: %w", pe, p.world.size, errs.ErrPeer)}
	}
	if p.world.lossOf(pe) == nil {
		return &errs.OpError{Op: "pe: ack lost", PE: pe, Size: -1, Err: fmt.Errorf("it is not lost: %w", errs.ErrConfig)}
	}
	if !p.context.Use() { // who sleeps is told through this PE's memory
		return &errs.OpError{Op: "pe: ack lost", PE: pe, Size: -1, Err: &errs.ClosedError{PE: p.rank}}
	}
	defer p.context.Unuse()
	p.acked.Lock()
	p.ackedSet[pe] = true
	p.acked.Unlock()
	p.world.changed()
	return nil
}

func (p *PE) hasAcked(pe int) bool {
	p.acked.Lock()
	defer p.acked.Unlock()
	return p.ackedSet[pe]
}

// firstLost is why the first of some PEs to be lost is, those apart that but, if
// not nil, tells. The later ones may be lost only because they gave up over the first.
func (w *World) firstLost(pes []int, but func(pe int) bool) error {
	var first error
	var at uint32
	for _, pe := range pes {
		err := w.lossOf(pe)
		if err == nil || but != nil && but(pe) {
			continue
		}
		if n := w.state[pe].nth.Load(); first == nil || n < at {
			first, at = err, n
		}
	}
	return first
}

// hopeless says why a wait on words of this PE can no longer end well. from are
// the world ranks it names; nil: any of team.
func (p *PE) hopeless(team *Team, from []int) error {
	w := p.world
	if e := w.failed.Load(); e != nil {
		return *e
	}
	if err := w.lossOf(p.rank); err != nil {
		return err
	}
	if p.closed.Load() {
		return &errs.ClosedError{PE: p.rank}
	}
	if w.epoch.Load() == 0 {
		return nil // nobody was ever lost or gone
	}
	if from != nil {
		if err := w.firstLost(from, nil); err != nil {
			return err
		}
		for _, pe := range from {
			if pe != p.rank && w.state[pe].flags.Load()&peerGone != 0 {
				return &errs.ClosedError{PE: pe}
			}
		}
		return nil
	}
	if err := w.firstLost(team.members, p.hasAcked); err != nil {
		return err
	}
	alone := team.Size() > 1
	last := -1
	for _, pe := range team.members {
		if pe == p.rank {
			continue
		}
		if err := w.lossOf(pe); err != nil {
			if !p.hasAcked(pe) {
				return err // since
			}
			continue
		}
		if w.state[pe].flags.Load()&peerGone == 0 {
			alone = false
		} else {
			last = pe
		}
	}
	if alone && last >= 0 {
		// Everybody who could still signal has left.
		return &errs.ClosedError{PE: last}
	}
	return nil
}

// living are the world ranks of group that take part in collective calls. An
// unacknowledged loss is an error.
func (p *PE) living(group []int) ([]int, error) {
	w := p.world
	if e := w.failed.Load(); e != nil {
		return nil, *e
	}
	if err := w.lossOf(p.rank); err != nil {
		return nil, err
	}
	if p.closed.Load() {
		return nil, &errs.ClosedError{PE: p.rank}
	}
	if err := w.firstLost(group, p.hasAcked); err != nil {
		return nil, err
	}
	out := make([]int, 0, len(group))
	for _, pe := range group {
		if err := w.lossOf(pe); err != nil {
			if !p.hasAcked(pe) {
				return nil, err // since
			}
			continue
		}
		out = append(out, pe)
	}
	slices.Sort(out)
	return out, nil
}

// shutLanes makes every lane of this PE refuse new operations.
func (p *PE) shutLanes(err error) {
	p.eachLane(func(l *channel.Lane) { l.Shut(err) })
}

// dropLanes fails everything pending of this PE, and what comes later.
func (p *PE) dropLanes(err error) {
	p.eachLane(func(l *channel.Lane) { p.world.proxy.Lose(l, err) })
}

// loseLanes fails everything pending to a PE, and what comes later.
func (p *PE) loseLanes(pe int, err error) {
	p.eachLane(func(l *channel.Lane) {
		if l.Config().Peer == pe {
			p.world.proxy.Lose(l, err)
		}
	})
}
