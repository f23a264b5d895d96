package coll

import (
	"fmt"
	"math"

	"goshmem/heap"
	"goshmem/pe"
)

// geometry is what all members know of the team: the input of planning.
type geometry struct {
	n     int   // members
	nodes []int // node of each member, by team rank
	// crowded says that PEs share cores, so that a wait costs a turn of the
	// scheduler.
	crowded bool
}

func geometryOf(t *pe.Team) geometry {
	g := geometry{n: t.Size(), crowded: t.PE().World().Oversubscribed()}
	for _, m := range t.Members() {
		info, _ := t.PE().Peer(m) // a member is a PE of the world
		g.nodes = append(g.nodes, info.Node)
	}
	return g
}

// need is what one family of collectives needs of every member's symmetric
// memory. It depends on nothing but what all members have alike.
type need struct {
	signals int
	zeroed  int64 // bytes of plain memory that must be zero at first
	bytes   int64 // bytes of plain memory
}

// region is where a family finds what it asked for: the same offsets at every
// member, and this PE's own copy.
type region struct {
	sigs    heap.Signals
	zeroed  heap.Ref
	zeroMem []byte
	ref     heap.Ref
	mem     []byte
}

// family is a part of the package with symmetric needs of its own. need is a
// pure function; attach is called once the memory is there, and communicates
// with nobody.
type family struct {
	need   func(g geometry, cfg Config) need
	attach func(c *Comm, r region) error
}

// families are all parts; New allocates the sum of their needs at once.
func families() []family {
	return []family{
		{coreNeed, (*Comm).attachCore},
		{mailNeed, (*Comm).attachMail},
		{vectorNeed, (*Comm).attachVector},
	}
}

// plan is where each family's needs lie in the two blocks that New allocates:
// one zeroed, signals first, and one of plain memory.
type plan struct {
	at     []need // offsets: signals in objects, the others in bytes
	total  need
	zeroed int64 // size of the first block
}

const lineBytes = 64

func roundUp(n int64) int64 { return (n + lineBytes - 1) / lineBytes * lineBytes }

// layout places needs one after the other; false: the sum overflows.
func layout(needs []need) (plan, bool) {
	var p plan
	const most = math.MaxInt64 / 4
	for _, n := range needs {
		if n.signals < 0 || n.zeroed < 0 || n.bytes < 0 || n.zeroed > most || n.bytes > most ||
			int64(n.signals) > most/heap.SignalSize {
			return plan{}, false
		}
		p.at = append(p.at, p.total)
		p.total.signals += n.signals
		p.total.zeroed += roundUp(n.zeroed)
		p.total.bytes += roundUp(n.bytes)
		if p.total.zeroed > most || p.total.bytes > most || int64(p.total.signals) > most/heap.SignalSize {
			return plan{}, false
		}
	}
	p.zeroed = int64(p.total.signals)*heap.SignalSize + p.total.zeroed
	return p, true
}

// Bytes is the symmetric memory that a Comm of cfg takes at every member of a
// team of n PEs on one node.
func (c Config) Bytes(n int) (int64, error) {
	if n < 1 || n > 1<<24 {
		return 0, fmt.Errorf("coll: a team of %d: %w", n, pe.ErrRange)
	}
	return c.BytesOn(make([]int, n))
}

// BytesOn is Bytes for a team whose members are on the given nodes, by team rank.
func (c Config) BytesOn(nodes []int) (int64, error) {
	if len(nodes) == 0 {
		return 0, fmt.Errorf("coll: a team of none: %w", pe.ErrRange)
	}
	g := geometry{n: len(nodes), nodes: nodes}
	c = c.Defaults(nodes)
	if err := c.validate(); err != nil {
		return 0, err
	}
	p, err := planFor(g, c)
	if err != nil {
		return 0, err
	}
	return p.zeroed + p.total.bytes, nil
}

func planFor(g geometry, cfg Config) (plan, error) {
	if err := vectorCheck(g, cfg); err != nil {
		return plan{}, err
	}
	var needs []need
	for _, f := range families() {
		needs = append(needs, f.need(g, cfg))
	}
	p, ok := layout(needs)
	if !ok {
		return plan{}, pe.ErrNoMemory
	}
	return p, nil
}
