package exchange

import (
	"fmt"

	"goshmem/coll/internal/plan"
	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// Engine is one PE's part of a team's alltoallvs. One call is in flight at a
// time; whoever steps it sees to that, and that no two step at once.
type Engine struct {
	c    *pe.Context
	t    *plan.Topology
	l    layout
	mem  Memory
	rank int
	node int // its number in the topology
	on   []int

	// Where this PE's signals are at any other.
	credit, data, forwarded heap.Signal

	peers  []peer
	order  []int   // the other ranks: own node first, then by rounds
	rounds []round // round k at k-1: this PE as a source
	banks  []bank  // round k at k-1: this PE as a relay
	relays []relay // ranks of the node by local index: who forwards to this PE
	stages []stage
	piece  int // most bytes of one put of a step that must be prompt

	// Of the call in flight.
	call    uint64
	parity  uint64
	rows    *Rows
	prompt  bool // stepped by a hook: no step may take long
	budget  int64
	stream  bool // its bytes do not fit the caches: puts go past them
	moved   bool
	told    int   // of in: credits sent
	rowed   bool  // and the row of the next
	open    int   // banks opened
	sendTo  []int // near and straight: not sent yet
	in      []int // near and straight sources
	arrived int   // of these, in order
	self    int64 // bytes of the own part that were copied
	entered int   // of on: ranks that have entered the call, in order
	sources int   // rounds of this PE as a source that are not over
	serving int   // sources of this PE as a relay that are not served
	owing   int   // forwarded signals of empty transfers, not sent yet
	tickets []rma.Ticket

	scratch struct {
		relayed []int64
		pieces  []plan.Piece
	}
	fault    error // an invariant that was seen broken
	mutation Mutation
}

// peer is another rank as this PE sees it.
type peer struct {
	rank   int
	inline bool // puts are this PE's own stores
	near   bool
	local  int // its index on its node

	// Words of this PE, and how far they were counted in earlier calls.
	credits, datas       heap.Cells
	creditBase, dataBase uint64
	creditSeen, dataSeen uint64 // debug builds

	// What the peer's entry of this call says, once ready.
	round  *round // in which it is this PE's rail peer; nil: in none
	ready  bool
	to     heap.Ref // where it wants this PE's bytes
	region heap.Ref // its receive region: rows count from there

	entryOut []byte
	rowOut   []byte // near, with rounds: its sources' entries
	served   []service
	pos      int64 // bytes of the transfer to it that were put
}

// service is a source that a near peer serves for this PE, and its place in the
// row.
type service struct{ source, index int }

// relay is a near peer as one that forwards to this PE.
type relay struct {
	words heap.Cells
	base  uint64
	want  uint64 // in this call
	owed  uint64 // and the other way: empty transfers to it that this PE must tell
}

// New makes an engine over memory that Measure asked for; it communicates with
// nobody. The topology is that of the context's team.
func New(c *pe.Context, t *plan.Topology, cfg Config, mem Memory) (*Engine, error) {
	l, ok := lay(t, cfg)
	n := c.Size()
	if !ok || t.Size() != n || mem.Signals.Len() < l.need.Signals || int64(len(mem.Local)) < l.need.Bytes {
		return nil, fmt.Errorf("exchange over %d members: %w", n, pe.ErrConfig)
	}
	rank := c.Rank()
	e := &Engine{
		c: c, t: t, l: l, mem: mem, rank: rank, node: t.Node(rank), on: t.On(t.Node(rank)),
		credit: mem.Signals.At(rank), data: mem.Signals.At(n + rank),
		peers:  make([]peer, n),
		sendTo: make([]int, 0, n), in: make([]int, 0, n),
		piece: pieceFor(c.InlineMax()),
	}
	if l.ch.Rounds {
		e.forwarded = mem.Signals.At(2*n + t.Local(rank))
	}
	for j := range e.peers {
		if err := e.meet(j); err != nil {
			return nil, err
		}
	}
	e.arrange()
	if l.ch.Rounds {
		return e, e.makeRounds()
	}
	return e, nil
}

// pieceFor keeps pieces below the size from which puts are queued even where the
// caller could do them itself.
func pieceFor(inlineMax int) int {
	const least, most = 4 << 10, 256 << 10
	return max(least, min(most, inlineMax-1))
}

func (e *Engine) meet(j int) (err error) {
	p := &e.peers[j]
	n := len(e.peers)
	p.rank, p.near, p.local = j, e.t.Node(j) == e.node, e.t.Local(j)
	w, _ := e.c.Team().WorldRank(j) // j is a member
	info, _ := e.c.PE().Peer(w)
	p.inline = info.Path == "direct"
	if p.credits, err = e.c.SignalCells(e.mem.Signals.At(j)); err != nil {
		return err
	}
	if p.datas, err = e.c.SignalCells(e.mem.Signals.At(n + j)); err != nil {
		return err
	}
	p.entryOut = make([]byte, e.l.entry)
	if !p.near || !e.l.ch.Rounds || j == e.rank {
		return nil
	}
	p.rowOut = make([]byte, e.l.rowLen)
	var sources []int
	for k := 1; k <= e.t.Rounds(); k++ {
		sources = e.t.Sources(sources[:0], j, k)
		for stream, s := range sources {
			p.served = append(p.served, service{s, (k-1)*e.t.Streams() + stream})
		}
	}
	return nil
}

// arrange puts the other ranks in the order in which this PE turns to them: every
// PE begins elsewhere.
func (e *Engine) arrange() {
	li := e.t.Local(e.rank)
	nodes := e.t.Nodes()
	for k := range nodes {
		on := e.t.On((e.node + k) % nodes)
		for i := range on {
			if j := on[(li+i)%len(on)]; j != e.rank {
				e.order = append(e.order, j)
			}
		}
	}
}
