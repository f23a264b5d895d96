package coll

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/pe"
)

// Comm carries out collectives of one team. Every member makes it and calls the
// same collectives in the same order. Any number of goroutines may use it if
// they keep that order; one call is in flight at a time, the others queue.
//
// Its operations use the lanes that the collectives of all teams share, and
// signals of its own.
type Comm struct {
	_     [apartBytes]byte
	team  *pe.Team
	ctx   *pe.Context
	p     *pe.PE
	cfg   Config
	geo   geometry
	rank  int
	n     int
	world []int // world ranks, by team rank

	zeroed, work heap.Ref // what Free gives back
	own          window   // this PE's symmetric heap

	health  *health
	id      uint32         // which of the team's Comms
	reach   [][]byte       // what each member said it reaches by load and store
	aborted heap.Cells     // grows by abortUnit when a member aborts
	state   *atomic.Uint64 // the call in flight, or the last one; read by the members
	stateAt heap.Ref

	// The line of calls: whoever raises it from 0 goes at once.
	line   atomic.Int32
	mu     sync.Mutex
	queue  []*entry
	closed atomic.Bool
	freed  atomic.Bool

	// Of the call in flight; guarded by being it.
	driving atomic.Bool // a started call is being stepped
	active  atomic.Pointer[entry]
	hook    *channel.Hook
	cond    func() bool // one step of cur, for a wait
	cur     operation
	done    bool
	err     error
	result  error     // what a call that was carried out returns all the same
	idle    uint32    // steps without anything moved
	asked   time.Time // when the members were looked at last
	probes  []probe
	moved   bool
	stuck   bool   // the last step tried something that has to be tried again
	still   bool   // nothing but a message of a member moves the call on
	budget  int    // messages that the present step may still handle
	calls   uint32 // number of the call in flight
	in      bool   // state says so
	end     abandonment

	core     core
	messages messages
	vector   vector
	_        [apartBytes]byte
}

// New makes a Comm. Collective over the team. All symmetric memory that its
// collectives ever use is allocated here (Config.Bytes tells how much).
//
// A configuration that is out of bounds is ErrConfig, and ErrMismatch at the
// others; one that differs between members is ErrMismatch naming the field;
// nothing is allocated then.
func New(ctx context.Context, team *pe.Team, cfg Config) (*Comm, error) {
	const op = "coll: new"
	if team == nil {
		return nil, wrap(op, fmt.Errorf("no team: %w", pe.ErrConfig))
	}
	c := &Comm{
		team: team, ctx: team.CollContext(), p: team.PE(), cfg: cfg.withDefaults(team.Size()),
		geo: geometryOf(team), rank: team.Rank(), n: team.Size(), world: team.Members(),
		health: healthOf(team),
	}
	c.cfg = c.cfg.vectorDefaults(c.geo)
	bad := c.cfg.validate()
	var p plan
	if bad == nil {
		p, bad = planFor(c.geo, c.cfg)
	}
	if err := c.agree(ctx, bad); err != nil {
		return nil, wrap(op, err)
	}
	zeroed, err := team.CallocMem(ctx, max(p.zeroed, lineBytes), lineBytes)
	if err != nil {
		return nil, wrap(op, err)
	}
	c.zeroed = zeroed
	if c.work, err = team.AllocMem(ctx, max(p.total.bytes, lineBytes), lineBytes); err != nil {
		_ = team.FreeMem(ctx, zeroed)
		return nil, wrap(op, err)
	}
	if err := c.attach(p); err != nil {
		return nil, wrap(op, err)
	}
	return c, nil
}

// agree compares the members' configurations; an own error comes first.
func (c *Comm) agree(ctx context.Context, bad error) error {
	c.id = c.health.next()
	c.reach = make([][]byte, c.n)
	mine := append(c.reaches(), c.cfg.encode(bad != nil, c.health.reason())...)
	all, err := c.team.Gather(ctx, "coll/new", mine)
	if bad != nil {
		return bad
	}
	if err != nil {
		return err
	}
	if err := c.health.failed(); err != nil {
		return err
	}
	for i, b := range all {
		if b == nil || i == c.rank {
			continue
		}
		cut := min((c.n+7)/8, len(b))
		if err := c.cfg.compare(c.world[i], b[cut:]); err != nil {
			return err
		}
		c.reach[i] = b[:cut]
	}
	return nil
}

// attach gives each family its part of the memory.
func (c *Comm) attach(p plan) error {
	zeroMem, err := c.p.LocalBytes(c.zeroed, int(p.zeroed))
	if err != nil {
		return err
	}
	mem, err := c.p.LocalBytes(c.work, int(p.total.bytes))
	if err != nil {
		return err
	}
	if c.own, err = ownHeap(c.p); err != nil {
		return err
	}
	if c.aborted, err = c.ctx.SignalCells(c.ctx.ReleaseWord()); err != nil {
		return err
	}
	c.cond = c.step
	needs := make([]need, 0, len(p.at))
	for _, f := range families() {
		needs = append(needs, f.need(c.geo, c.cfg))
	}
	plain := int64(p.total.signals) * heap.SignalSize // where the zeroed block's own part begins
	for i, f := range families() {
		n, at := needs[i], p.at[i]
		r := region{
			sigs:    heap.MakeSignals(c.zeroed.Add(uint64(at.signals)*heap.SignalSize), n.signals),
			zeroed:  c.zeroed.Add(uint64(plain + at.zeroed)),
			zeroMem: zeroMem[plain+at.zeroed:][:n.zeroed],
			ref:     c.work.Add(uint64(at.bytes)),
			mem:     mem[at.bytes:][:n.bytes],
		}
		if err := f.attach(c, r); err != nil {
			return err
		}
	}
	c.hook = c.p.AddHook(c.hookStep)
	return nil
}

// Team is the team whose members call.
func (c *Comm) Team() *pe.Team { return c.team }

// Rank is this PE's number in the team.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of members.
func (c *Comm) Size() int { return c.n }

// Config is the configuration in force, defaults filled in.
func (c *Comm) Config() Config { return c.cfg }

// Free ends a Comm and gives its memory back. Collective over the team; calls in
// flight end first, later ones are ErrClosed. A second Free is ErrBadRef, but of one
// that failed, at a deadline say, it may be tried again.
func (c *Comm) Free(ctx context.Context) error {
	const op = "coll: free"
	if c == nil || ctx == nil {
		return wrap(op, pe.ErrConfig)
	}
	c.closed.Store(true)
	if c.freed.Swap(true) {
		return wrap(op, pe.ErrBadRef)
	}
	if err := c.ctx.Wait(ctx, true, []int{}, func() bool { return c.line.Load() == 0 && c.messages.idleNow() }); err != nil {
		c.freed.Store(false) // may be tried again
		return wrap(op, err)
	}
	c.hook.Remove()
	c.messages.hook.Remove()
	for _, ref := range [...]*heap.Ref{&c.work, &c.zeroed} {
		if *ref == (heap.Ref{}) {
			continue // given back before something failed
		}
		if err := c.team.FreeMem(ctx, *ref); err != nil {
			c.freed.Store(false)
			return wrap(op, err)
		}
		*ref = heap.Ref{}
	}
	return nil
}
