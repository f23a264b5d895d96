package exchange

import (
	"math"

	"goshmem/coll/internal/plan"
	"goshmem/heap"
)

// Config shapes an engine; the same at every member.
type Config struct {
	Algo plan.Algo
	plan.Params
	// Straight is the number of bytes from which Auto does not relay a pair.
	Straight int64
	// Merge is the number of bytes from which a relay's own do not go through its
	// slots.
	Merge int64
}

// Need is the symmetric memory of an engine: signals, which must be zero, and
// bytes.
type Need struct {
	Signals int
	Bytes   int64
}

// layout is where an engine's memory is, as offsets; the same at every member.
type layout struct {
	need   Need
	z      plan.Sizes
	ch     plan.Chooser
	entry  int64 // from entry to entry
	set    int64 // bytes of the entries of one call
	rowLen int64 // of one row of entries for a relay
	rows   int64
	arena  int64
	stages int64
	stage  int64 // bytes of one staging buffer
	count  int   // staging buffers
}

const (
	line      = 64
	maxStages = 16
)

func roundUp(n int64) int64 { return (n + line - 1) / line * line }

// lay lays an engine's memory out; false: parameters out of bounds, or a sum that
// overflows.
func lay(t *plan.Topology, cfg Config) (layout, bool) {
	l := layout{ch: plan.NewChooser(t, cfg.Algo, cfg.Straight, cfg.Merge)}
	n := t.Size()
	sets := int64(1)
	if l.ch.Rounds {
		l.entry = roundUp(plan.CreditBytes + plan.CountBytes*int64(t.Most()))
	} else {
		sets, l.entry = 2, roundUp(plan.CreditBytes+plan.CountBytes+l.ch.Carry)
	}
	l.set = int64(n) * l.entry
	l.need = Need{Signals: 2 * n, Bytes: sets * l.set}
	if !l.ch.Rounds {
		return l, true
	}
	var ok bool
	if l.z, ok = plan.Measure(t, cfg.Params); !ok {
		return layout{}, false
	}
	l.need.Signals += t.Most()
	l.rowLen = roundUp(int64(t.Rounds()*t.Streams()) * plan.RowBytes)
	l.count = min(t.Rounds()*cfg.Slots, maxStages)
	l.stage = roundUp(l.z.Header + min(l.z.Payload, plan.GatherMax))
	for _, part := range [...]struct {
		at    *int64
		bytes int64
	}{
		{&l.rows, 2 * int64(t.Most()) * l.rowLen},
		{&l.arena, l.z.Arena},
		{&l.stages, int64(l.count) * l.stage},
	} {
		*part.at = l.need.Bytes
		if part.bytes > math.MaxInt64/4-l.need.Bytes {
			return layout{}, false
		}
		l.need.Bytes += part.bytes
	}
	return l, true
}

// Measure is what an engine needs; false: a configuration that is out of bounds
// for the topology.
func Measure(t *plan.Topology, cfg Config) (Need, bool) {
	l, ok := lay(t, cfg)
	return l.need, ok
}

// Memory is what Measure asked for: at the same place at every member, and this
// PE's own copy of it.
type Memory struct {
	Signals heap.Signals
	Ref     heap.Ref
	Local   []byte
}

// entryAt is where a rank writes its entry of a call's parity, at
// any other.
func (l *layout) entryAt(rank int, parity uint64) int64 {
	if l.ch.Rounds {
		parity = 0
	}
	return int64(parity)*l.set + int64(rank)*l.entry
}

// rowAt is where a node's rank writes its row of a call's parity, at a relay.
func (l *layout) rowAt(local int, parity uint64) int64 {
	return l.rows + (2*int64(local)+int64(parity))*l.rowLen
}
