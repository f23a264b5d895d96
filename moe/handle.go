package moe

import (
	"goshmem/moe/internal/plan"
)

// Dispatched is what a rank has received, and the handle that its combine needs.
//
// Rows and Scales are views of the symmetric receive buffer, the other slices of
// memory that the engine uses again: all of them hold until the InFlight-th
// dispatch after this one begins. With InFlight 1 that is the next one. After
// that the handle is stale: a combine with it is ErrBadRef.
//
// L is the number of this rank's experts and R that of ranks.
type Dispatched struct {
	// Rows has Len rows of Engine.RowBytes bytes, in the order of the layout.
	// Scales has Len times Config.ScaleBytes bytes.
	Rows, Scales []byte

	Source []int32 // by row: the rank it came from; -1: padding
	Token  []int32 // by row: its token there; -1: padding
	Choice []int32 // ExpertMajor, by row: its k there; -1: padding

	// Local says which of this rank's experts a row is for, counted from 0, and
	// Weights with which weight. RankMajor: [row*TopK+k], -1 and 0 where choice k is
	// another rank's or none. ExpertMajor: by row, -1 and 0 for padding.
	Local   []int32
	Weights []float32

	Counts     []int64 // [L] choices of each expert, without padding
	Offsets    []int64 // [L+1] ExpertMajor: where each expert's rows begin, and the end; zeros in RankMajor
	FromCounts []int64 // [R] rows from each rank, without padding

	// PairStart tells the layout of a RankMajor combine's input: the outputs for
	// row i are rows PairStart[i] to PairStart[i+1] of y, one for each choice with
	// Local >= 0, by ascending k. In ExpertMajor it is empty, and y has the rows of
	// Rows.
	PairStart []int64

	// OutputRows is the number of rows of y.
	OutputRows int64

	s       *slot
	epoch   uint64
	routing *Routing
	traffic Traffic
}

// Len is the number of rows, padding included.
func (d *Dispatched) Len() int { return len(d.Source) }

// Traffic is the bytes of a call at one rank.
type Traffic struct {
	Wire    int64 // rows and scales put to other ranks, those passed on within a node included
	Between int64 // of these, what left the node
	Meta    int64 // heads, records and lists put to other ranks
	Logical int64 // rows and scales received, those from this rank included, padding not
}

// Traffic is the bytes of this dispatch.
func (d *Dispatched) Traffic() Traffic { return d.traffic }

// Routing keeps the routing of the dispatch for DispatchCached. It takes memory
// as long as it is referenced: 8 bytes a choice and more.
func (d *Dispatched) Routing() (*Routing, error) {
	e := d.s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if d.stale() {
		return nil, wrap("routing", faultError(plan.Fault{Code: plan.Stale}))
	}
	d.routing.kept = true
	return d.routing, nil
}

// stale reports whether the slot went on without d.
func (d *Dispatched) stale() bool { return d.s.epoch.Load() != d.epoch }

// handle describes the rows in the slot, which are there from now on.
func (s *slot) handle(r *Routing, t Traffic) *Dispatched {
	p, sz, pl, a := &s.e.p, &s.e.arena.sizes, &r.place, &r.arrived
	s.epoch.Store(s.seq)
	d := &Dispatched{
		Rows:   clip(s.mem[sz.RowAt(p, 0):sz.RowAt(p, pl.Rows)]),
		Scales: clip(s.mem[sz.ScalesAt(p, 0):sz.ScalesAt(p, pl.Rows)]),
		Source: clip(a.Source), Token: clip(a.Token), Local: clip(a.Local), Weights: clip(a.Weight),
		Counts: clip(pl.Counts), Offsets: clip(pl.Offsets), FromCounts: clip(r.from),
		s: s, epoch: s.seq, routing: r, traffic: t,
	}
	if p.ExpertMajor {
		d.Choice = clip(a.Choice)
		d.OutputRows = pl.Rows
	} else {
		d.PairStart = clip(a.PairStart)
		d.OutputRows = pl.Pairs
	}
	return d
}

// clip keeps an append from writing into what lies behind.
func clip[T any](s []T) []T { return s[:len(s):len(s)] }

// account computes the counts by source and the traffic of a dispatch.
func (r *Routing) account(e *Engine) {
	p, pl := &e.p, &r.place
	r.from = append(r.from[:0], pl.PairsBy...)
	received := pl.Pairs
	if !p.ExpertMajor {
		for s := range p.Ranks {
			r.from[s] = pl.From[s+1] - pl.From[s]
		}
		received = pl.Records
	}
	row := p.RowBytes + p.ScaleBytes
	r.traffic = Traffic{Logical: received * row, Meta: int64(p.Ranks-1) * e.arena.sizes.HeadBytes}
	r.bytes = 0
	for _, run := range r.runs {
		r.bytes += run.N * row
		if int(run.To) != e.rank {
			r.traffic.Wire += run.N * row
		}
		if !e.nodes.Same(int(run.To), e.rank) {
			r.traffic.Between += run.N * row
		}
	}
	r.traffic.Meta += r.listBytes(e)
	for to, n := range r.sent.Rows {
		if to != e.rank {
			r.traffic.Meta += int64(n) * e.arena.sizes.RecordBytes
		}
	}
}
