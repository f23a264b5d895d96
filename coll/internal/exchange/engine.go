package exchange

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

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

	// Where this PE's signals and entries are at any other.
	credit, data, forwarded heap.Signal
	entry                   heap.Ref

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

// Mutation spoils the protocol, for tests that show that tests notice.
type Mutation uint8

// The mutations.
const (
	Sound         Mutation = iota
	NoGrants               // sources send without waiting for grants
	TooManyGrants          // relays grant twice as many slots as there are
)

// Mutate is for tests.
func (e *Engine) Mutate(m Mutation) { e.mutation = m }

// peer is another rank as this PE sees it.
type peer struct {
	rank   int
	inline bool // puts are this PE's own stores
	near   bool
	local  int // its index on its node

	// Words of this PE, and how far they were counted in earlier calls.
	credits, datas       *atomic.Uint64
	creditBase, dataBase uint64
	creditSeen, dataSeen uint64 // debug builds

	// What the peer's entry of this call says, once ready.
	entryIn []byte
	round   *round // in which it is this PE's rail peer; nil: in none
	ready   bool
	to      heap.Ref // where it wants this PE's bytes
	region  heap.Ref // its receive region: rows count from there

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
	words *atomic.Uint64
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
		entry:  mem.Ref.Add(uint64(int64(rank) * l.entry)),
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
	if p.credits, err = wordAt(e.c, e.mem.Signals.At(j).Ref()); err != nil {
		return err
	}
	if p.datas, err = wordAt(e.c, e.mem.Signals.At(n+j).Ref()); err != nil {
		return err
	}
	p.entryIn = e.mem.Local[int64(j)*e.l.entry:][:e.l.entry:e.l.entry]
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

// Begin takes a call: number call on every member, which tells calls of different
// kinds apart. prompt says that a hook steps it. rows belong to the engine until
// the call is over.
func (e *Engine) Begin(call uint64, rows *Rows, prompt bool) {
	e.call, e.rows, e.prompt = call, rows, prompt
	e.parity ^= 1
	e.told, e.open, e.arrived, e.self, e.rowed = 0, 0, 0, 0, false
	e.entered, e.owing = 0, 0
	e.sendTo, e.in = e.sendTo[:0], e.in[:0]
	for i := range e.relays {
		e.relays[i].want = 0
	}
	ch := &e.l.ch
	for _, j := range e.order {
		p := &e.peers[j]
		p.ready, p.pos = false, 0
		switch ch.Way(e.rank, j, rows.sendN[j]) {
		case plan.Near, plan.Straight:
			e.sendTo = append(e.sendTo, j)
		}
		switch ch.Way(j, e.rank, rows.recvN[j]) {
		case plan.Near, plan.Straight:
			e.in = append(e.in, j)
		case plan.Relayed:
			e.relays[e.t.Local(e.t.Relay(j, e.rank))].want++
		}
	}
	if ch.Rounds {
		me := &e.peers[e.rank] // as a destination of its own relaying
		me.ready, me.region = true, heap.MakeRef(e.mem.Ref.World(), rows.dst.Region(), 0)
		e.beginRounds()
	}
}

// Moved tells whether the last step did anything.
func (e *Engine) Moved() bool { return e.moved }

// budgets of a step, in bytes: one under the proxy's role is prompt, one of a
// caller in its wait looks up now and then.
const (
	promptBytes  = 1 << 20
	patientBytes = 16 << 20
)

// Step goes on with the call as far as it can, and tells whether it is over:
// everything received, everything sent complete. It never waits.
func (e *Engine) Step() (done bool, err error) {
	e.moved = false
	e.budget = patientBytes
	if e.prompt {
		e.budget = promptBytes
	}
	if e.told < len(e.in) || e.open < len(e.banks) {
		if err := e.publish(); err != nil {
			return false, err
		}
	}
	if len(e.sendTo) > 0 {
		if err := e.sendAll(); err != nil {
			return false, err
		}
	}
	if e.self < e.rows.sendN[e.rank] {
		if err := e.copySelf(); err != nil {
			return false, err
		}
		if len(e.sendTo) > 0 {
			if err := e.sendAll(); err != nil { // credits that came meanwhile
				return false, err
			}
		}
	}
	if e.sources > 0 {
		if err := e.sendRounds(); err != nil {
			return false, err
		}
	}
	if e.serving > 0 || e.owing > 0 {
		if err := e.serveRounds(); err != nil {
			return false, err
		}
	}
	if e.told < len(e.in) || e.open < len(e.banks) || len(e.sendTo) > 0 || e.self < e.rows.sendN[e.rank] ||
		e.sources > 0 || e.serving > 0 || e.owing > 0 || !e.allArrived() {
		return false, e.reap()
	}
	if len(e.tickets) > 0 {
		if err := e.reap(); err != nil || len(e.tickets) > 0 {
			return false, err
		}
	}
	return true, e.end()
}

// publish sends the entry credits of near and straight sources, then opens the
// first banks.
func (e *Engine) publish() error {
	for e.told < len(e.in) {
		p := &e.peers[e.in[e.told]]
		if p.rowOut != nil && !e.rowed {
			if ok, err := e.putRow(p); !ok {
				return err
			}
			e.rowed = true
		}
		if ok, err := e.sendEntry(p, 1, nil); !ok {
			return err
		}
		e.rowed = false
		e.told++
	}
	return e.openBanks()
}

// sendEntry lets a peer send: so many credits, behind what it has to know. With
// counts are those that the PEs of this node, all of which have entered the call,
// expect from it.
func (e *Engine) sendEntry(p *peer, credits uint64, counts *serve) (bool, error) {
	le, b := binary.LittleEndian, p.entryOut
	r := e.rows
	le.PutUint64(b, e.call)
	le.PutUint64(b[8:], uint64(r.dst.Region()))
	le.PutUint64(b[16:], r.dst.Offset()+uint64(r.recvAt[p.rank]))
	le.PutUint64(b[24:], uint64(r.recvN[p.rank]))
	n := plan.CreditBytes
	if counts != nil {
		for d := range e.on {
			_, expected := e.expects(counts, d)
			le.PutUint64(b[n:], uint64(expected))
			n += plan.CountBytes
		}
	}
	t, err := rma.TryPutMemSignalNBI(e.c, e.entry, b[:n], e.credit, rma.SignalAdd, credits, p.rank)
	if err != nil {
		return false, blocked(err)
	}
	e.track(t)
	e.moved = true
	return true, nil
}

// look reads a peer's entry, once its first credit is there, and compares it with
// what this PE wants to send.
func (e *Engine) look(p *peer) (bool, error) {
	if p.ready {
		return true, nil
	}
	if e.creditsOf(p) == 0 {
		return false, nil
	}
	le, b := binary.LittleEndian, p.entryIn
	call, region := le.Uint64(b), le.Uint64(b[8:])
	at, n := le.Uint64(b[16:]), le.Uint64(b[24:])
	if call != e.call {
		return false, e.otherCall(p, call)
	}
	if n != uint64(e.rows.sendN[p.rank]) {
		return false, mismatch(e.c, p.rank, e.rank, p.rank, e.rows.sendN[p.rank], int64(n))
	}
	if region > 1<<16-1 {
		return false, &plan.HeaderError{What: "region", Want: 0, Have: int64(region)}
	}
	if p.round != nil {
		for d, j := range p.round.on {
			if n := le.Uint64(b[plan.CreditBytes+plan.CountBytes*d:]); n != uint64(e.rows.sendN[j]) {
				return false, mismatch(e.c, j, e.rank, j, e.rows.sendN[j], int64(n))
			}
		}
	}
	p.region = heap.MakeRef(e.mem.Ref.World(), uint16(region), 0)
	p.to = p.region.Add(at)
	p.ready = true
	return true, nil
}

func (e *Engine) otherCall(p *peer, call uint64) error {
	w, _ := e.c.Team().WorldRank(p.rank)
	return &pe.MismatchError{PE: w, Field: "call", Want: fmt.Sprint("alltoallv, number ", e.call), Have: fmt.Sprint("alltoallv, number ", call)}
}

// creditsOf is how many credits of this call a peer gave.
func (e *Engine) creditsOf(p *peer) uint64 {
	v := p.credits.Load()
	if debug {
		e.grew(p, v, &p.creditSeen)
	}
	return v - p.creditBase
}

// datasOf is how many data signals of this call a peer sent.
func (e *Engine) datasOf(p *peer) uint64 {
	v := p.datas.Load()
	if debug {
		e.grew(p, v, &p.dataSeen)
	}
	return v - p.dataBase
}

// sendAll goes on with near and straight transfers whose credits are there.
func (e *Engine) sendAll() error {
	kept := 0
	var failed error
	for i, j := range e.sendTo {
		p := &e.peers[j]
		done := false
		if failed == nil && e.budget > 0 {
			if done, failed = e.look(p); done {
				done, failed = e.put(p, p.to, e.rows.send(j), &p.pos, e.data)
			}
		}
		if !done {
			if kept != i {
				e.sendTo[kept] = j
			}
			kept++
		}
	}
	e.sendTo = e.sendTo[:kept]
	return failed
}

// put goes on with a put to a peer, of which pos bytes were done before; sig (if
// it is one) is raised with the last. It reports whether all is done.
func (e *Engine) put(p *peer, to heap.Ref, b []byte, pos *int64, sig heap.Signal) (bool, error) {
	if debug && !p.ready {
		return false, broken(4, p.rank, "a put before its receiver entered the call")
	}
	signal := sig != heap.Signal{}
	for {
		rest := b[*pos:]
		n := len(rest)
		if p.inline && n > e.piece {
			if !e.prompt && e.idle(p) {
				// The caller's own stores, in the copy's best size.
				return true, e.putWhole(p, to.Add(uint64(*pos)), rest, pos, sig)
			}
			n = e.piece
		}
		last := n == len(rest)
		var t rma.Ticket
		var err error
		switch {
		case last && signal && n == 0:
			err = rma.TrySignal(e.c, sig, rma.SignalAdd, 1, p.rank)
		case last && signal:
			t, err = rma.TryPutMemSignalNBI(e.c, to.Add(uint64(*pos)), rest[:n], sig, rma.SignalAdd, 1, p.rank)
		case n > 0:
			t, err = rma.TryPutMemNBI(e.c, to.Add(uint64(*pos)), rest[:n], p.rank)
		}
		if err != nil {
			return false, blocked(err)
		}
		e.track(t)
		e.moved = true
		e.budget -= int64(n) + perPut
		*pos += int64(n)
		if last {
			return true, nil
		}
		if e.budget <= 0 {
			return false, nil
		}
	}
}

// perPut is what a put costs of a step's budget besides its bytes.
const perPut = 4 << 10

// idle tells whether a put to a peer is done at once.
func (e *Engine) idle(p *peer) bool {
	l := e.c.Lane(p.rank)
	return l != nil && l.Pending() == 0
}

func (e *Engine) putWhole(p *peer, to heap.Ref, b []byte, pos *int64, sig heap.Signal) error {
	*pos += int64(len(b))
	e.moved = true
	e.budget -= int64(len(b))
	if (sig == heap.Signal{}) {
		return rma.PutMem(e.c, to, b, p.rank)
	}
	return rma.PutMemSignal(e.c, to, b, sig, rma.SignalAdd, 1, p.rank)
}

// copySelf goes on with the own part.
func (e *Engine) copySelf() error {
	r := e.rows
	src := r.send(e.rank)
	dst := r.local[r.recvAt[e.rank]:][:len(src)]
	if &src[0] == &dst[0] {
		e.self = int64(len(src)) // in place
		return nil
	}
	p := &e.peers[e.rank]
	for int(e.self) < len(src) && e.budget > 0 {
		n := min(len(src)-int(e.self), copyPiece)
		if p.inline && !e.prompt {
			if err := rma.PutMem(e.c, r.dst.Add(uint64(r.recvAt[e.rank]+e.self)), src[e.self:][:n], e.rank); err != nil {
				return err
			}
		} else {
			n = copy(dst[e.self:], src[e.self:][:min(n, e.piece)])
		}
		e.self += int64(n)
		e.budget -= int64(n)
		e.moved = true
		if len(e.sendTo) > 0 && e.self < int64(len(src)) {
			return nil // look whether somebody may be sent to
		}
	}
	return nil
}

// copyPiece is the most of the own part that is copied between two looks at the
// others.
const copyPiece = 1 << 20

// allArrived tells whether everything for this PE is there, its own duties as a
// relay apart.
func (e *Engine) allArrived() bool {
	for e.arrived < len(e.in) {
		if e.datasOf(&e.peers[e.in[e.arrived]]) == 0 {
			return false
		}
		e.arrived++
		e.moved = true
	}
	for i := range e.relays {
		if r := &e.relays[i]; r.want > 0 && r.words.Load()-r.base < r.want {
			return false
		}
	}
	return true
}

// track remembers an operation that is not complete.
func (e *Engine) track(t rma.Ticket) {
	if !t.Done() || t.Err() != nil {
		e.tickets = append(e.tickets, t)
	}
}

// reap forgets operations that are complete; the error is of one that failed.
func (e *Engine) reap() error {
	n := 0
	for n < len(e.tickets) && e.tickets[n].Done() {
		if err := e.tickets[n].Err(); err != nil {
			return err
		}
		n++
	}
	if n > 0 {
		e.tickets = e.tickets[:copy(e.tickets, e.tickets[n:])]
		e.moved = true
	}
	return nil
}

// end counts what this call used up.
func (e *Engine) end() error {
	r := e.rows
	ch := &e.l.ch
	for _, j := range e.order {
		p := &e.peers[j]
		switch ch.Way(e.rank, j, r.sendN[j]) {
		case plan.Near, plan.Straight:
			p.creditBase++
		}
		switch ch.Way(j, e.rank, r.recvN[j]) {
		case plan.Near, plan.Straight:
			p.dataBase++
		}
	}
	e.endRounds()
	if debug {
		return e.settled()
	}
	return nil
}
