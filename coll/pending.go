package coll

import (
	"context"
	"sync/atomic"

	"goshmem/pe"
)

// Pending is a started collective. It goes on whenever anything of the process
// polls, independent of its caller; buffers belong to it until it is complete.
type Pending struct {
	c      *Comm
	step   func() bool // goes on with it; nil: the call in flight
	err    error
	status Status
	done   atomic.Bool
}

// finish ends it, once.
func (p *Pending) finish(err error) {
	p.err = err
	p.done.Store(true)
}

// Wait returns when the collective is complete at this PE, with its error. If
// ctx ends first (GOSHMEM_TIMEOUT where it has no deadline) the collective goes
// on, and may be waited for again.
func (p *Pending) Wait(ctx context.Context) error {
	if p == nil {
		return wrap("coll: wait", pe.ErrBadRef)
	}
	if p.done.Load() {
		return p.err
	}
	err := p.c.ctx.Wait(ctx, true, []int{}, p.poll)
	if p.done.Load() {
		return p.err
	}
	return wrap("coll: wait", late(err, pe.TimeoutError{What: "collective", PE: -1}))
}

// Test reports whether the collective is complete, with its error if it failed.
// It drives the world's progress if it is not.
func (p *Pending) Test() (bool, error) {
	if p == nil {
		return false, wrap("coll: test", pe.ErrBadRef)
	}
	if !p.poll() {
		p.c.ctx.Progress()
	}
	if !p.done.Load() {
		return false, nil
	}
	return true, p.err
}

// poll steps the collective if nobody else does.
func (p *Pending) poll() bool {
	if !p.done.Load() {
		if p.step != nil {
			p.step()
		} else {
			p.c.tryDrive()
		}
	}
	return p.done.Load()
}

// Status is what a started receive got, once it is complete.
func (p *Pending) Status() Status {
	if p == nil || !p.done.Load() {
		return Status{}
	}
	return p.status
}
