package moe

import (
	"goshmem/moe/internal/plan"
)

// Routing is where the rows of a dispatch went: what DispatchCached repeats. It
// stays valid as long as the engine, whatever becomes of the rows. Get it from
// Dispatched.Routing.
type Routing struct {
	e       *Engine
	number  uint64 // of the dispatch that made it; the same on every rank
	sent    plan.Sent
	place   plan.Placement
	arrived plan.Arrived
	runs    []plan.Run

	scattered plan.Scattered   // to other nodes
	relay     [][]plan.Forward // by source on another node: what is passed on

	from    []int64 // rows by source
	bytes   int64   // rows and scales sent, to this rank too
	traffic Traffic
	kept    bool // guarded by Engine.mu: somebody holds it, so it is not reused
}

// Tokens is the number of tokens that this rank dispatched.
func (r *Routing) Tokens() int { return r.sent.T }

// fresh takes a routing that nobody uses.
func (e *Engine) fresh(number uint64) *Routing {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &Routing{e: e}
	if n := len(e.spare); n > 0 {
		r, e.spare = e.spare[n-1], e.spare[:n-1]
	}
	r.number = number
	return r
}

// discard gives a routing back, unless somebody keeps it.
func (e *Engine) discard(r *Routing) {
	if r == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !r.kept {
		e.spare = append(e.spare, r)
	}
}

// install makes r the routing of the slot's rows.
func (s *slot) install(r *Routing) {
	if s.routing != r {
		s.e.discard(s.routing)
		s.routing = r
	}
}
