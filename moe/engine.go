package moe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"goshmem/heap"
	"goshmem/moe/internal/plan"
	"goshmem/pe"
	"goshmem/rma"
)

// Engine carries out dispatches and combines of one configuration among the PEs
// of a team. Its calls are collective: every rank makes them in the same order,
// also with zero tokens. Goroutines may call it at once, but then have to see to
// that order.
type Engine struct {
	cfg    Config
	team   *pe.Team
	rank   int
	p      plan.Params
	arena  arena
	owners *plan.Owners
	nodes  *plan.Nodes

	// A carrier moves rows within a node in the engine's place: it is told of each
	// dispatch's routing before anything is sent. The lists of what is to be passed on
	// then have also what has come from other nodes.
	carrier func(*Routing)

	mem   heap.Ref
	slots []*slot

	life context.Context // ends when the engine breaks or closes
	end  context.CancelCauseFunc
	wg   sync.WaitGroup // calls in progress

	// sending is held while a signal is sent, so that none follows the last one,
	// and while broken is set.
	sending sync.Mutex
	broken  atomic.Pointer[BrokenError]

	mu     sync.Mutex
	closed bool
	turn   uint64 // dispatches begun: the next one's slot and routing number
	spare  []*Routing
}

// New makes an engine. Collective over the team, whose symmetric memory it takes
// Bytes of.
//
// A configuration that is out of bounds is ErrConfig, and ErrMismatch at the
// other ranks; one that differs between ranks is ErrMismatch naming the field.
// Nothing is allocated then.
func New(ctx context.Context, team *pe.Team, cfg Config) (*Engine, error) {
	if team == nil {
		return nil, fmt.Errorf("moe: new: no team: %w", pe.ErrConfig)
	}
	return newEngine(ctx, team, cfg, nil)
}

func newEngine(ctx context.Context, team *pe.Team, cfg Config, carrier func(*Routing)) (*Engine, error) {
	e := &Engine{cfg: cfg, team: team, rank: team.Rank(), carrier: carrier}
	if err := compare(ctx, team, cfg, e.prepare()); err != nil {
		return nil, wrap("new", err)
	}
	if err := e.build(ctx); err != nil {
		return nil, wrap("new", errors.Join(err, e.release(context.WithoutCancel(ctx))))
	}
	return e, nil
}

// prepare does what needs no other rank.
func (e *Engine) prepare() (err error) {
	if e.p, err = e.cfg.params(e.team.Size()); err != nil {
		return err
	}
	e.owners, e.nodes = plan.NewOwners(e.p.Ranks, e.p.Experts), nodesOf(e.team)
	e.p.Fan = e.nodes.Fan(&e.p, e.owners)
	if e.carrier != nil {
		e.p.Fan++
	}
	if e.arena, err = arrange(&e.p); err != nil {
		return err
	}
	e.life, e.end = context.WithCancelCause(context.Background())
	if e.given() {
		if e.cfg.Memory.Offset()%128 != 0 {
			return &ConfigError{"Memory", e.cfg.Memory, "128-byte alignment"}
		}
		_, err = e.team.PE().LocalBytes(e.cfg.Memory, int(e.arena.total))
	}
	return err
}

func (e *Engine) given() bool { return e.cfg.Memory != heap.Ref{} }

// build makes what the ranks share. On error release undoes it.
func (e *Engine) build(ctx context.Context) error {
	p := e.team.PE()
	e.mem = e.cfg.Memory
	if !e.given() {
		mem, err := e.team.AllocMem(ctx, e.arena.total, 128)
		if err != nil {
			return err
		}
		e.mem = mem
	}
	local, err := p.LocalBytes(e.mem, int(e.arena.total))
	if err != nil {
		return err
	}
	// Before the exchanges that make contexts: when the first of them is over,
	// every rank's signals are zero.
	clear(local[:e.arena.slots])
	for i := range e.p.Slots {
		c, err := e.team.NewContext(ctx)
		if err != nil {
			return err
		}
		e.slots = append(e.slots, newSlot(e, i, c, local))
	}
	return nil
}

// carries reports whether rows to a rank are somebody else's to move.
func (e *Engine) carries(to int) bool { return e.carrier != nil && e.nodes.Same(to, e.rank) }

// Close ends the engine: later calls are ErrClosed, calls in progress may finish
// until ctx ends, then its memory is freed. Collective, like New; every handle
// and view is invalid afterwards. A second Close does nothing.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	again := e.closed
	e.closed = true
	e.mu.Unlock()
	if again {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { e.end(&pe.ClosedError{PE: -1}) })
	e.wg.Wait()
	stop()
	e.end(&pe.ClosedError{PE: -1})
	return wrap("close", e.release(ctx))
}

// release gives back what build took.
func (e *Engine) release(ctx context.Context) error {
	var all []error
	for _, s := range e.slots {
		all = append(all, s.c.Free(ctx))
	}
	if !e.given() && e.mem != (heap.Ref{}) {
		all = append(all, e.team.FreeMem(ctx, e.mem))
	}
	return errors.Join(all...)
}

// Config is the configuration, as given to New.
func (e *Engine) Config() Config { return e.cfg }

// Team is the team of the engine.
func (e *Engine) Team() *pe.Team { return e.team }

// Owner is the rank that holds an expert, or -1 for none.
func (e *Engine) Owner(expert int) int {
	if expert < 0 || expert >= e.p.Experts {
		return -1
	}
	return e.owners.Rank(expert)
}

// LocalExperts is the range [first, end) of experts that a rank holds; empty for
// no such rank.
func (e *Engine) LocalExperts(rank int) (first, end int) {
	if rank < 0 || rank >= e.p.Ranks {
		return 0, 0
	}
	return e.owners.Block(rank)
}

// RowBytes is the length of a dispatched row.
func (e *Engine) RowBytes() int64 { return e.p.RowBytes }

// fail breaks the engine: no later call can go well, and the other ranks are told
// so instead of whatever they wait for. It returns why the engine broke, which
// may be something earlier.
func (e *Engine) fail(rank int, cause error) error {
	e.sending.Lock()
	defer e.sending.Unlock()
	if b := e.broken.Load(); b != nil {
		return b
	}
	b := &BrokenError{PE: rank, Err: cause}
	e.broken.Store(b)
	word := poison(rank, cause)
	for _, s := range e.slots {
		for to := range e.p.Ranks {
			if to == e.rank {
				continue
			}
			for w := range words {
				// To a rank that is gone it does not matter.
				_ = rma.Signal(s.c, s.word(w, e.rank), rma.SignalSet, word, to)
			}
		}
	}
	e.end(b)
	return b
}

// take gives the caller a slot: the next one's turn for a dispatch, a given one
// for a combine. done must follow.
func (e *Engine) take(given *slot) (*slot, uint64, error) {
	if b := e.broken.Load(); b != nil {
		return nil, 0, b
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, 0, &pe.ClosedError{PE: -1}
	}
	s := given
	if s == nil {
		s = e.slots[e.turn%uint64(len(e.slots))]
	}
	if s.busy {
		return nil, 0, fmt.Errorf("an earlier call on the same rows is not over: %w", pe.ErrWouldBlock)
	}
	if given == nil {
		e.turn++
	}
	s.busy = true
	e.wg.Add(1)
	return s, e.turn, nil
}

func (e *Engine) done(s *slot) {
	e.mu.Lock()
	s.busy = false
	e.mu.Unlock()
	e.wg.Done()
}

// last is the slot that the latest dispatch took.
func (e *Engine) last() *slot {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.turn == 0 {
		return e.slots[0]
	}
	return e.slots[(e.turn-1)%uint64(len(e.slots))]
}

// bounded ends ctx when the engine breaks or is closed.
func (e *Engine) bounded(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.life, func() { cancel(context.Cause(e.life)) })
	return ctx, func() { stop(); cancel(nil) }
}

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("moe: %s: %w", op, err)
}
