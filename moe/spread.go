package moe

import (
	"context"

	"goshmem/moe/internal/plan"
	"goshmem/pe"
)

// Between nodes a row travels once: to one of its receivers on the node, straight into
// its place there, which passes it on within the node. No buffers lie between, as a
// relay's would, and no counts but those that are exchanged anyway. Results of a combine
// are all different, and are added up in the order of ranks at the source: each travels
// by itself.

// nodesOf is which members of a team share a node.
func nodesOf(team *pe.Team) *plan.Nodes {
	var of []int
	for _, m := range team.Members() {
		info, _ := team.PE().Peer(m) // a member is a PE of the world
		of = append(of, info.Node)
	}
	return plan.NewNodes(of)
}

// plan computes where a dispatch's rows go.
func (r *Routing) plan(e *Engine) {
	if e.p.Fan > 0 {
		plan.Scatter(&e.p, e.owners, e.nodes, e.rank, &r.sent, &r.place, &r.scattered)
	}
	if e.carrier != nil {
		r.scattered.List()
	}
	r.runs = r.runs[:0]
	for i := 1; i <= e.p.Ranks; i++ {
		to := (e.rank + i) % e.p.Ranks
		if e.p.Fan > 0 && !e.nodes.Same(to, e.rank) {
			r.runs = append(r.runs, r.scattered.Runs[to]...)
		} else {
			r.runs = plan.Runs(&e.p, e.owners, &r.sent, &r.place, to, r.runs)
		}
	}
}

// putList tells a rank of another node what it is to pass on, in lists from offset
// used on. It returns the end.
func (s *slot) putList(r *Routing, to int, used int64) (int64, error) {
	e := s.e
	if e.p.Fan == 0 || e.nodes.Same(to, e.rank) {
		return used, nil
	}
	b := s.lists[used:cap(s.lists)]
	b = b[:plan.EncodeForwards(r.scattered.Forwards[to], b)]
	return used + int64(len(b)), s.put(e.arena.sizes.ListAt(e.rank), b, to)
}

// listBytes is the bytes of all lists of a routing.
func (r *Routing) listBytes(e *Engine) (n int64) {
	for to, all := range r.scattered.Forwards {
		if !e.nodes.Same(to, e.rank) {
			n += plan.ListBytes(len(all))
		}
	}
	return n
}

// spread passes on what comes from other nodes, as it comes, tells the ranks of this node
// so and waits until they have passed on what is for this one. Lists that have come are decoded, those of a cached dispatch are there.
func (s *slot) spread(ctx context.Context, r *Routing, decode bool) error {
	e := s.e
	if e.p.Fan == 0 {
		return nil
	}
	if r.relay == nil {
		r.relay = make([][]plan.Forward, e.p.Ranks)
	}
	for i := 1; i < e.p.Ranks; i++ {
		source := (e.rank + e.p.Ranks - i) % e.p.Ranks // the one before sends here first
		if e.nodes.Same(source, e.rank) {
			continue
		}
		if _, err := s.await(ctx, wordData, source, s.seq<<flagBits); err != nil {
			return err
		}
		if decode {
			var ok bool
			b := s.mem[e.arena.sizes.ListAt(source):][:e.arena.sizes.ListRoom]
			if r.relay[source], ok = plan.DecodeForwards(e.nodes, &e.arena.sizes, e.rank, &r.place, b, r.relay[source][:0]); !ok {
				return faultError(plan.Fault{Code: plan.Corrupt, A: int64(source)})
			}
			r.traffic.Wire += passedOn(e, r.relay[source])
		}
		if e.carrier != nil {
			continue // it passes them on
		}
		for _, f := range r.relay[source] {
			if err := s.pass(f); err != nil {
				return err
			}
		}
	}
	if e.carrier != nil {
		return nil
	}
	for to := range e.p.Ranks {
		if to != e.rank && e.nodes.Same(to, e.rank) {
			if err := s.signal(wordSpread, s.seq, to); err != nil {
				return err
			}
		}
	}
	for source := range e.p.Ranks {
		if source != e.rank && e.nodes.Same(source, e.rank) {
			if _, err := s.await(ctx, wordSpread, source, s.seq); err != nil {
				return err
			}
		}
	}
	return nil
}

// passedOn is the bytes of forwards to other ranks.
func passedOn(e *Engine, all []plan.Forward) (n int64) {
	for _, f := range all {
		if int(f.To) != e.rank {
			n += f.N * (e.p.RowBytes + e.p.ScaleBytes)
		}
	}
	return n
}

// pass passes a stretch on.
func (s *slot) pass(f plan.Forward) error {
	p, sz := &s.e.p, &s.e.arena.sizes
	if err := s.passPart(int(f.To), sz.RowAt(p, f.Row), sz.RowAt(p, f.From), f.N*p.RowBytes); err != nil {
		return err
	}
	return s.passPart(int(f.To), sz.ScalesAt(p, f.Row), sz.ScalesAt(p, f.From), f.N*p.ScaleBytes)
}

func (s *slot) passPart(to int, at, from, n int64) error {
	b := s.mem[from : from+n]
	if to == s.e.rank {
		copy(s.mem[at:at+n], b)
		return nil
	}
	return s.put(at, b, to)
}
