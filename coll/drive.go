package coll

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"goshmem/pe"
)

// operation is one collective call at this PE, as a machine that never waits.
// It is stepped by its caller, or by whoever polls where it was started, one at
// a time.
type operation interface {
	// step goes as far as it can with Try forms only, and reports whether the
	// call is complete: results in place, sources reusable. It sets c.moved when
	// something moved. An error ends the call at every member.
	step(c *Comm) (done bool, err error)
	// name is the call's, for errors; signature what the members must have alike.
	name() string
	signature() signature
}

// entry is a call in the line: a started operation, or a caller that waits for
// its turn to step its own.
type entry struct {
	op    operation
	p     *Pending
	begun bool
	ready atomic.Bool
}

// enter takes the line for a blocking call. On success run must follow, which
// leaves it.
func (c *Comm) enter(ctx context.Context, name string) error {
	if c == nil {
		return wrap("coll: "+name, errNoComm)
	}
	if !c.line.CompareAndSwap(0, 1) {
		if err := c.wait(ctx, name); err != nil {
			return wrap("coll: "+name, err)
		}
	}
	return nil
}

// wait queues a blocking call until it is its turn. One that gives up before fails
// at every member when its turn has come, as it would later: others may be in it.
func (c *Comm) wait(ctx context.Context, name string) error {
	c.mu.Lock()
	if c.line.Add(1) == 1 {
		c.mu.Unlock()
		return nil
	}
	e := &entry{}
	c.queue = append(c.queue, e)
	c.mu.Unlock()
	err := c.ctx.Wait(ctx, true, []int{}, e.ready.Load)
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.ready.Load() {
		return nil // it became its turn meanwhile
	}
	e.op, e.p = &refusal{name, err}, &Pending{c: c}
	return err
}

// open begins a call: it may not go on if the Comm is closed or a call of the
// team failed before.
func (c *Comm) open(op operation) error {
	if c.closed.Load() {
		return &pe.ClosedError{PE: -1}
	}
	if !c.ctx.Use() {
		return &pe.ClosedError{PE: c.p.Rank()}
	}
	// A member that aborts raises the flag first and then reads the state: one of
	// the two sees the other.
	c.cur = op
	c.core.sig = op.signature()
	c.calls++
	c.state.Store(c.core.sig.word(c.calls) | inCall)
	c.in = true
	c.idle, c.still = 0, false
	c.done, c.err, c.result = false, nil, nil
	err := c.health.failed()
	if err == nil && c.aborted.Load() >= abortUnit && concerns(c.ctx, c.place()) {
		err = c.verdict()
	}
	if err != nil {
		c.close()
	}
	return err
}

// out shows the members that this PE is in no call.
func (c *Comm) out() {
	if c.in {
		c.in = false
		c.state.Store(c.core.sig.word(c.calls))
	}
}

// close is the other half of open.
func (c *Comm) close() {
	c.out()
	c.cur = nil
	c.ctx.Unuse()
}

// leave gives the line to the next call.
func (c *Comm) leave() {
	if c.line.CompareAndSwap(1, 0) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line.Add(-1)
	e := c.queue[0]
	c.queue = c.queue[1:]
	if e.op == nil {
		e.ready.Store(true)
		return
	}
	c.active.Store(e)
	c.hook.Arm()
}

// run steps a blocking call's operation until it is complete, and leaves. bad is
// what is wrong with its arguments: the call fails at every member then.
func (c *Comm) run(ctx context.Context, op operation, bad error) error {
	if bad != nil {
		op = &refusal{op.name(), bad}
	}
	if err := c.open(op); err != nil {
		c.leave()
		return wrap("coll: "+op.name(), err)
	}
	err := c.drive(ctx)
	if err != nil {
		err = wrap("coll: "+op.name(), err)
		c.beginAbort(err)
		c.finishAbort(ctx)
	} else if c.result != nil {
		err = wrap("coll: "+op.name(), c.result)
	}
	c.close()
	c.leave()
	return err
}

// spins is how often a call looks before it waits in earnest, where every PE has
// a core: a wait announces itself to the proxy, which costs more than the
// answer takes.
const (
	spins    = 128
	spinStep = 32
)

func (c *Comm) drive(ctx context.Context) error {
	if c.step() {
		return c.err
	}
	if !c.geo.crowded {
		for i := range spins * spinStep {
			if i%spinStep != 0 && c.still && !c.news() {
				continue // mostly it is a message that is waited for, and looking for that is quick
			}
			if c.step() {
				return c.err
			}
		}
	}
	if err := c.ctx.WaitMembers(ctx, c.cond, nil); err != nil {
		// What a member said before it left, or was lost, is the better reason.
		if c.err == nil {
			c.err = c.late(err)
		}
	}
	return c.err
}

// step steps the call in flight and reports whether it ended. It may be asked
// again after that.
func (c *Comm) step() bool {
	if c.done || c.err != nil {
		return true
	}
	if c.aborted.Load() >= abortUnit && concerns(c.ctx, c.place()) {
		c.err = c.verdict()
		return true
	}
	if c.still && !c.news() {
		c.pause()
		return c.err != nil
	}
	c.moved, c.stuck, c.still, c.budget = false, false, false, stepBudget
	if c.core.owed > 0 {
		c.err = c.payBack()
	}
	if c.err == nil {
		c.done, c.err = c.cur.step(c)
	}
	if c.moved || c.done || c.err != nil {
		c.idle = 0
		return c.done || c.err != nil
	}
	// An alltoallv has signals of its own.
	c.still = !c.stuck && c.core.owed == 0 && c.cur.name() != vectorName
	c.pause()
	return c.err != nil
}

// pause counts a step in which nothing moved, and looks now and then why.
func (c *Comm) pause() {
	if c.idle++; c.idle >= 32 && (c.idle&(c.idle-1) == 0 || c.idle%4 == 0 && time.Since(c.asked) > askAgain) {
		c.asked = time.Now()
		c.err = c.suspect()
	}
}

// askAgain is after how long without news the members are looked at again.
const askAgain = 20 * time.Millisecond

// stepBudget bounds how many messages one step handles, so that a step under the
// proxy's role is prompt.
const stepBudget = 8

// suspect looks, when nothing moves, for reasons why nothing will: a member that
// is lost and acknowledged, whose loss ends no wait any more; an operation that
// failed; a member that is in another call than this PE.
func (c *Comm) suspect() error {
	for i := range c.n {
		if i == c.rank {
			continue
		}
		if l := c.ctx.Lane(i); l != nil && errors.Is(l.Err(), pe.ErrPeerLost) {
			return l.Err()
		}
	}
	if err := c.reap(); err != nil {
		return err
	}
	for i := range c.core.links {
		for _, t := range c.core.links[i].tickets {
			if err := t.Err(); err != nil {
				return err
			}
		}
	}
	if err := c.suspectLinks(); err != nil {
		return err
	}
	return c.suspectMembers()
}

// start puts an operation in the line; it is not nil, unless c is. bad is what is
// wrong with its arguments: it then fails when it is its turn, at every member,
// and start returns bad.
func (c *Comm) start(op operation, bad error) (*Pending, error) {
	what := "coll: start " + op.name()
	if c.closed.Load() {
		return nil, wrap(what, &pe.ClosedError{PE: -1})
	}
	if bad != nil {
		op = &refusal{op.name(), bad}
	}
	p := &Pending{c: c}
	e := &entry{op: op, p: p}
	c.mu.Lock()
	if c.line.Add(1) == 1 {
		c.active.Store(e)
		c.hook.Arm()
	} else {
		c.queue = append(c.queue, e)
	}
	c.mu.Unlock()
	c.tryDrive()
	if bad != nil {
		return nil, wrap(what, bad)
	}
	return p, nil
}

// startFlow starts a flow that prepare fills in.
func (c *Comm) startFlow(name string, prepare func(f *flow) error) (*Pending, error) {
	if c == nil {
		return nil, wrap("coll: start "+name, errNoComm)
	}
	f := &flow{call: name}
	f.make(c.n)
	return c.start(f, prepare(f))
}

// refusal is a call with bad arguments.
type refusal struct {
	call string
	err  error
}

func (r *refusal) step(*Comm) (bool, error) { return false, r.err }
func (r *refusal) name() string             { return r.call }
func (r *refusal) signature() signature     { return signature{} }

// hookStep is the progress of started calls, under the proxy's role.
func (c *Comm) hookStep() bool { return c.tryDrive() }

// tryDrive steps the started call in flight, if there is one and nobody else
// does, and reports whether anything moved.
func (c *Comm) tryDrive() bool {
	if c.active.Load() == nil || !c.driving.CompareAndSwap(false, true) {
		return false
	}
	moved := false
	if e := c.active.Load(); e != nil {
		moved = c.advance(e)
	}
	c.driving.Store(false)
	return moved
}

// advance steps a started call.
func (c *Comm) advance(e *entry) bool {
	if !e.begun {
		if err := c.open(e.op); err != nil {
			c.retire(e, wrap("coll: "+e.op.name(), err))
			return true
		}
		e.begun = true
		c.end.active = false
	} else if !c.ctx.Use() {
		c.close() // so that this PE's Close can go on
		c.retire(e, wrap("coll: "+e.op.name(), &pe.ClosedError{PE: c.p.Rank()}))
		return true
	} else {
		defer c.ctx.Unuse()
	}
	if c.end.active {
		if c.stepAbort() {
			err := c.end.err
			c.close()
			c.retire(e, err)
		}
		return true
	}
	if !c.step() {
		return c.moved
	}
	if c.err == nil {
		err := wrap("coll: "+e.op.name(), c.result)
		c.close()
		c.retire(e, err)
		return true
	}
	c.beginAbort(wrap("coll: "+e.op.name(), c.err))
	return true
}

// retire ends a started call and lets the next one go.
func (c *Comm) retire(e *entry, err error) {
	c.active.Store(nil)
	c.hook.Disarm()
	e.p.finish(err)
	c.leave()
}
