package bootstrap

import (
	"fmt"
	"maps"
)

// A feud is a connection between two members that broke, by the word of one of
// them, while both are alive to the hub. Such a connection is not mended, so one of
// the two is lost; which one is decided here, once for all.
//
// The hub waits until it has heard from both since: the usual reason is that one
// of them died, which shows by itself. Then the one with more broken connections is
// lost, those that cost others their lives before counted too: a member that accuses
// everybody falls itself, and never costs the world more than one other. Between
// equals the holder of the hub stays, whose loss would be everybody's, else the lower
// rank.
type feud struct {
	by    int // who told
	cause string
	since uint64 // tick of the watcher
}

// pairOf is a feud's key.
func pairOf(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// accuse takes a member's word that its connection to another one broke, or, of
// itself, that it gives up.
func (h *Hub) accuse(by, pe int, cause string) error {
	switch {
	case pe < 0 || pe >= len(h.slots):
		return wireErr("pe %d accuses pe %d", by, pe)
	case pe == by:
		h.lose(by, cause)
		return nil
	}
	key := pairOf(by, pe)
	if h.slots[by].state != stateJoined || h.slots[pe].state != stateJoined || h.feuds[key] != nil {
		return nil
	}
	h.cfg.Logger.Warn("bootstrap: a connection broke", "says", by, "peer", pe, "cause", cause)
	if h.feuds == nil {
		h.feuds = make(map[[2]int]*feud)
	}
	h.feuds[key] = &feud{by: by, cause: clip(cause), since: h.ticks}
	return nil
}

// settleFeuds is one tick: who is in a feud and alive must have been heard in a
// whole tick since.
func (h *Hub) settleFeuds() {
	alive := func(rank int, since uint64) bool {
		s := &h.slots[rank]
		_, remote := s.sink.(*link)
		return !remote || s.heard > since+1
	}
	// The dead testify against nobody.
	over := func(key [2]int, _ *feud) bool {
		return h.slots[key[0]].state != stateJoined || h.slots[key[1]].state != stateJoined
	}
	maps.DeleteFunc(h.feuds, over)
	for key, f := range h.feuds {
		a, b := key[0], key[1]
		if over(key, f) { // by a verdict of this tick
			delete(h.feuds, key)
			continue
		}
		if !alive(a, f.since) || !alive(b, f.since) {
			continue
		}
		loser, other := h.verdict(a, b), a
		if loser == a {
			other = b
		}
		h.slots[other].blamed++
		delete(h.feuds, key)
		h.lose(loser, fmt.Sprintf("its connection with pe %d broke, says pe %d: %s", other, f.by, f.cause))
	}
}

// verdict is which of two members, a < b, is lost.
func (h *Hub) verdict(a, b int) int {
	na, nb := h.slots[a].blamed, h.slots[b].blamed
	for key := range h.feuds {
		if key[0] == a || key[1] == a {
			na++
		}
		if key[0] == b || key[1] == b {
			nb++
		}
	}
	if na > nb || na == nb && b == h.cfg.Holder {
		return a
	}
	return b
}
