package coll

import (
	"context"
	"fmt"

	"goshmem/coll/internal/exchange"
	sched "goshmem/coll/internal/plan"
	"goshmem/heap"
	"goshmem/pe"
)

// Algo is how an alltoallv travels between nodes; within a node every PE puts to
// every PE.
type Algo uint8

// The algorithms.
const (
	// AlgoAuto relays what is short and sends straight what is long
	// (Config.Straight), pair by pair; straight alone where each node has one PE.
	AlgoAuto = Algo(sched.Auto)
	// AlgoDirect lets every PE put to every PE.
	AlgoDirect = Algo(sched.Direct)
	// AlgoRelay sends everything for a node to one PE there, which forwards it.
	AlgoRelay = Algo(sched.Relay)
)

func (a Algo) String() string { return sched.Algo(a).String() }

// ParseAlgo is the algorithm of a name: auto, direct or relay.
func ParseAlgo(s string) (Algo, error) {
	for a := sched.Auto; a < sched.NumAlgos; a++ {
		if a.String() == s {
			return Algo(a), nil
		}
	}
	return 0, fmt.Errorf("coll: algorithm %q, want auto, direct or relay: %w", s, pe.ErrConfig)
}

// AllToAllV sends sendCounts[i] elements of src, from sendDispls[i] on, to each
// member i, into its dst, and receives recvCounts[i] elements from it at
// recvDispls[i]. Counts and displacements are in elements, one a member; nil
// displacements lay the blocks end to end. A PE gives its own rows only; they are
// copied.
//
// dst is symmetric memory, at whatever place and of whatever length each member
// likes: senders put into it, once each byte. Blocks of dst must not overlap, nor
// may src and dst, but for the own block, which may be in place. src may be any
// memory. Both belong to the call until it returns.
//
// If two members disagree about the elements from one to the other, both get
// ErrMismatch, and so does everybody else in the call.
func AllToAllV[T heap.Elem](ctx context.Context, c *Comm, dst heap.Array[T], recvCounts, recvDispls []int, src []T, sendCounts, sendDispls []int) error {
	return allToAllV(ctx, c, &exchange.Args{
		Dst: dst.Ref(), Limit: dst.Bytes(), RecvCounts: recvCounts, RecvDispls: recvDispls,
		Src: bytesOf(src), SendCounts: sendCounts, SendDispls: sendDispls, Elem: elemBytes[T](),
	})
}

// AllToAllVMem is AllToAllV of bytes.
func AllToAllVMem(ctx context.Context, c *Comm, dst heap.Ref, recvCounts, recvDispls []int, src []byte, sendCounts, sendDispls []int) error {
	return allToAllV(ctx, c, &exchange.Args{
		Dst: dst, Limit: -1, RecvCounts: recvCounts, RecvDispls: recvDispls,
		Src: src, SendCounts: sendCounts, SendDispls: sendDispls, Elem: 1,
	})
}

// StartAllToAllV begins an AllToAllV.
func StartAllToAllV[T heap.Elem](c *Comm, dst heap.Array[T], recvCounts, recvDispls []int, src []T, sendCounts, sendDispls []int) (*Pending, error) {
	return startAllToAllV(c, &exchange.Args{
		Dst: dst.Ref(), Limit: dst.Bytes(), RecvCounts: recvCounts, RecvDispls: recvDispls,
		Src: bytesOf(src), SendCounts: sendCounts, SendDispls: sendDispls, Elem: elemBytes[T](),
	})
}

// StartAllToAllVMem begins an AllToAllVMem.
func StartAllToAllVMem(c *Comm, dst heap.Ref, recvCounts, recvDispls []int, src []byte, sendCounts, sendDispls []int) (*Pending, error) {
	return startAllToAllV(c, &exchange.Args{
		Dst: dst, Limit: -1, RecvCounts: recvCounts, RecvDispls: recvDispls,
		Src: src, SendCounts: sendCounts, SendDispls: sendDispls, Elem: 1,
	})
}

func allToAllV(ctx context.Context, c *Comm, a *exchange.Args) error {
	if err := c.enter(ctx, vectorName); err != nil {
		return err
	}
	v := &c.vector.own
	v.begun = false
	return c.run(ctx, v, v.rows.Fill(c.ctx, a))
}

func startAllToAllV(c *Comm, a *exchange.Args) (*Pending, error) {
	if c == nil {
		return nil, wrap("coll: start "+vectorName, errNoComm)
	}
	v := &vectorCall{rows: exchange.NewRows(c.n), prompt: true}
	return c.start(v, v.rows.Fill(c.ctx, a))
}

const vectorName = "alltoallv"

// vector is what a Comm keeps for its alltoallvs.
type vector struct {
	engine *exchange.Engine
	own    vectorCall // of blocking calls, which take turns
}

// vectorCall is one call in the line.
type vectorCall struct {
	rows   *exchange.Rows
	prompt bool // started: hooks step it
	begun  bool
}

func (v *vectorCall) name() string { return vectorName }

func (v *vectorCall) signature() signature { return sign(kindAllToAllV, 0, 0, 0, 0) }

func (v *vectorCall) step(c *Comm) (bool, error) {
	e := c.vector.engine
	if !v.begun {
		v.begun = true
		e.Begin(uint64(c.calls), v.rows, v.prompt)
	}
	done, err := e.Step()
	c.moved = c.moved || e.Moved()
	return done, err
}

// exchangeConfig is what the engine takes of a configuration.
func (c Config) exchangeConfig() exchange.Config {
	return exchange.Config{
		Algo:     sched.Algo(c.Algo),
		Params:   sched.Params{Banks: c.RelayBanks, Slots: c.RelaySlots, SlotBytes: int64(c.RelayBytes)},
		Straight: c.Straight, Merge: c.Merge,
	}
}

// What the slots of a relay take by default, and the bounds of one.
const (
	relayArena = 4 * mib
	relayBanks = 16
	relayLeast = 16 * kib
	relayMost  = 256 * kib
)

// vectorDefaults fills in what depends on the nodes. With a bank for every round
// no round waits for another: a round trip of grant and data is what short
// transfers take, so many small slots serve them better than few large ones.
func (c Config) vectorDefaults(g geometry) Config {
	t := sched.NewTopology(g.nodes)
	if c.RelayBanks == 0 {
		c.RelayBanks = min(max(t.Rounds(), 1), relayBanks)
	}
	if c.RelaySlots == 0 {
		c.RelaySlots = 2
	}
	if c.RelayBytes == 0 {
		slots := max(c.RelayBanks, 1) * max(c.RelaySlots, 1) * max(t.Streams(), 1)
		c.RelayBytes = min(max(relayArena/slots/(4*kib)*(4*kib), relayLeast), relayMost)
	}
	if c.Straight == 0 {
		c.Straight = 16 * kib
	}
	if c.Merge == 0 {
		c.Merge = 4 * kib
	}
	return c
}

// Defaults is the configuration in force in a team whose members are on the given
// nodes, by team rank.
func (c Config) Defaults(nodes []int) Config {
	return c.withDefaults(len(nodes)).vectorDefaults(geometry{n: len(nodes), nodes: nodes})
}

// vectorCheck refuses slots too small for their headers.
func vectorCheck(g geometry, cfg Config) error {
	t := sched.NewTopology(g.nodes)
	if least := sched.MinSlot(t); t.Rounds() > 0 && int64(cfg.RelayBytes) < least {
		return &ConfigError{Field: "RelayBytes", Value: int64(cfg.RelayBytes), Min: least, Max: gib, Multiple: 64}
	}
	return nil
}

func vectorNeed(g geometry, cfg Config) need {
	n, ok := exchange.Measure(sched.NewTopology(g.nodes), cfg.exchangeConfig())
	if !ok {
		return need{signals: -1}
	}
	return need{signals: n.Signals, bytes: n.Bytes}
}

func (c *Comm) attachVector(r region) (err error) {
	c.vector.own.rows = exchange.NewRows(c.n)
	c.vector.engine, err = exchange.New(c.ctx, sched.NewTopology(c.geo.nodes), c.cfg.exchangeConfig(),
		exchange.Memory{Signals: r.sigs, Ref: r.ref, Local: r.mem})
	return err
}
