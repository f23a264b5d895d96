package bootstrap

import (
	"encoding/binary"
	"slices"
)

// gatherKey names one gather: the seq-th with this tag and group.
type gatherKey struct {
	tag, group string
	seq        uint64
}

// gather is one that not all have called yet, or that failed before they did.
type gather struct {
	group []int
	blobs [][]byte // by place in the group
	calls []uint64 // the members' numbers for their calls
	in    []bool   // has called
	left  int      // have not called
	fail  *failure // decided: what those who call later get too
}

func groupKey(group []int) string {
	b := make([]byte, 0, 4*len(group))
	for _, r := range group {
		b = binary.LittleEndian.AppendUint32(b, uint32(r))
	}
	return string(b)
}

// gatherFits reports whether a result of this many blobs of this size is sure to
// fit a frame: each member checks its own blob, so all together fit.
func gatherFits(group, blob int) bool {
	return int64(group)*(int64(blob)+8) <= MaxBlob
}

// goodGroup reports whether group ascends within 0..size-1 and contains rank.
func goodGroup(group []int, rank, size int) bool {
	for i, r := range group {
		if r < 0 || r >= size || i > 0 && r <= group[i-1] {
			return false
		}
	}
	_, ok := slices.BinarySearch(group, rank)
	return ok
}

func (h *Hub) contribute(rank int, m *msg) error {
	if h.slots[rank].state != stateJoined {
		return wireErr("a gather after goodbye")
	}
	if !goodGroup(m.group, rank, len(h.slots)) || !gatherFits(len(m.group), len(m.blob)) || len(m.tag) > maxTag {
		return wireErr("a gather of %d B in group %v", len(m.blob), m.group)
	}
	key := gatherKey{m.tag, groupKey(m.group), m.gseq}
	g := h.gathers[key]
	if g == nil {
		// A group that can never be complete again keeps no state: each call finds so.
		if f := h.doomed(m.group); f != nil {
			h.fail(rank, m.call, f)
			return nil
		}
		if len(h.gathers) >= maxGathers {
			h.fail(rank, m.call, &failure{kind: failCrowd, pe: -1})
			return nil
		}
		n := len(m.group)
		g = &gather{group: m.group, blobs: make([][]byte, n), calls: make([]uint64, n), in: make([]bool, n), left: n}
		h.gathers[key] = g
	}
	i, _ := slices.BinarySearch(g.group, rank)
	if g.in[i] {
		return wireErr("gather %q #%d called twice", m.tag, m.gseq)
	}
	g.in[i], g.calls[i] = true, m.call
	g.left--
	if g.left == 0 {
		delete(h.gathers, key)
	}
	switch {
	case g.fail != nil:
		h.fail(rank, m.call, g.fail)
	case g.left > 0:
		g.blobs[i] = m.blob
	default:
		g.blobs[i] = m.blob
		for j, r := range g.group {
			if s := &h.slots[r]; s.sink != nil {
				s.sink.deliver(&msg{kind: kindResult, src: -1, dst: r, call: g.calls[j], blobs: g.blobs})
			}
		}
	}
	return nil
}

// doomed is why a group's gathers cannot complete: a loss in it, or else the
// first of its ranks that has left or never came.
func (h *Hub) doomed(group []int) *failure {
	var f *failure
	for _, r := range group {
		switch s := &h.slots[r]; {
		case s.state == stateLost:
			return &failure{kind: failLost, pe: r, cause: s.cause}
		case f != nil:
		case s.state == stateLeft:
			f = &failure{kind: failClosed, pe: r}
		case s.state == stateAbsent && h.late != nil:
			f = h.late
		}
	}
	return f
}

func (h *Hub) fail(rank int, call uint64, f *failure) {
	if s := &h.slots[rank]; s.sink != nil && s.state != stateLost {
		s.sink.deliver(&msg{kind: kindFailed, src: -1, dst: rank, call: call, fail: f})
	}
}

// failGathers ends all gathers that any of these ranks, which are not there any
// more, belongs to.
func (h *Hub) failGathers(ranks []int, f *failure) {
	for key, g := range h.gathers {
		hit := slices.ContainsFunc(ranks, func(r int) bool {
			_, ok := slices.BinarySearch(g.group, r)
			return ok
		})
		if !hit {
			continue
		}
		delete(h.gathers, key)
		if g.fail == nil {
			h.failAll(g, f)
		}
	}
}

func (h *Hub) failAll(g *gather, f *failure) {
	g.fail = f
	g.blobs = nil
	for i, r := range g.group {
		if g.in[i] {
			h.fail(r, g.calls[i], f)
		}
	}
}

// giveUp ends a gather because one of its callers will not wait any longer. It
// is kept, as failed, for those who have yet to call. One that is over already
// has its outcome underway.
func (h *Hub) giveUp(rank int, m *msg) {
	g := h.gathers[gatherKey{m.tag, groupKey(m.group), m.gseq}]
	if g == nil || g.fail != nil {
		return
	}
	i, ok := slices.BinarySearch(g.group, rank)
	if !ok || !g.in[i] || g.calls[i] != m.call {
		return
	}
	f := &failure{kind: failTimeout, pe: rank, want: len(g.group)}
	if m.code == giveUpCancel {
		f.kind = failAborted
	}
	for j, r := range g.group {
		if !g.in[j] {
			f.missing = append(f.missing, r)
		}
	}
	h.failAll(g, f)
}
