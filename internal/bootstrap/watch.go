package bootstrap

import (
	"time"
)

// awaitJoins watches the join deadline.
func (h *Hub) awaitJoins() {
	defer h.wg.Done()
	t := time.NewTimer(h.cfg.JoinDeadline)
	defer t.Stop()
	select {
	case <-t.C:
		h.joinTimeout()
	case <-h.stop:
	}
}

// watch is the heartbeat of a hub with connections, and its ear.
//
// Silence is counted in this goroutine's own ticks: while the hub's process is
// stopped or starved there are none, so it cannot accuse members of its own
// absence. Bytes that lie unread in a socket are a sign of life too.
func (h *Hub) watch() {
	defer h.wg.Done()
	beat := time.NewTicker(h.cfg.Heartbeat)
	defer beat.Stop()
	tick := time.NewTicker(h.cfg.FailureDeadline / silentTicks)
	defer tick.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-beat.C:
			h.mu.Lock()
			for l := range h.links {
				l.beat()
			}
			h.mu.Unlock()
		case <-tick.C:
			h.mu.Lock()
			h.ticks++
			for l, s := range h.links {
				h.judge(l, s)
			}
			h.settleFeuds()
			h.mu.Unlock()
		}
	}
}

// judge is one tick of a connection.
func (h *Hub) judge(l *link, s *served) {
	slot := &h.slots[s.rank]
	if slot.sink != l || slot.state == stateLost {
		return
	}
	stalled, over := l.stuck()
	if l.heard.Swap(false) || unread(l.conn) {
		s.silent, slot.heard = 0, h.ticks
	} else {
		s.silent++
	}
	if stalled {
		s.stalled++
	} else {
		s.stalled = 0
	}
	if slot.dying != "" {
		if slot.dyingTicks--; slot.dyingTicks < 0 {
			h.lose(s.rank, slot.dying)
			return
		}
	}
	switch {
	case over:
		h.lose(s.rank, "it does not read its messages: too many are queued for it")
	case s.silent >= silentTicks:
		h.lose(s.rank, "silent for "+h.cfg.FailureDeadline.String())
	case s.stalled >= silentTicks:
		h.lose(s.rank, "took no messages for "+h.cfg.FailureDeadline.String())
	}
}
