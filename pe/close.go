package pe

import (
	"context"
	"errors"
	"time"

	"goshmem/channel"
	"goshmem/internal/errs"
)

// Close leaves the world: it refuses new operations, completes what is queued,
// says goodbye, and keeps this PE's memory usable until everybody said goodbye,
// was lost, or the deadline (ctx, at most GOSHMEM_CLOSE_TIMEOUT) passed; what
// is pending then fails with ErrClosed. Waits in progress end with ErrClosed. A
// second call returns what the first did.
//
// The PE that holds the rendezvous (rank 0 without a launcher) stays until all
// have left, since it is who tells the others of a loss.
func (p *PE) Close(ctx context.Context) error {
	if ctx == nil {
		return &errs.OpError{Op: "pe: close", PE: -1, Size: -1, Err: errs.ErrNoContext}
	}
	p.once.Do(func() {
		err := p.depart(ctx)
		p.linger(ctx)
		p.end = errors.Join(err, p.finish(ctx))
	})
	return p.end
}

// depart refuses new work, drains, and says goodbye.
func (p *PE) depart(ctx context.Context) error {
	if p.closing.Swap(true) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.world.vals.CloseTimeout)
	defer cancel()
	closed := &errs.ClosedError{PE: p.rank}
	for _, c := range p.contexts() {
		c.closed.Store(true)
	}
	p.shutLanes(closed)
	err := p.quietAll(ctx)
	if err != nil {
		// The deadline: what is left fails, its waiters are told.
		p.dropLanes(closed)
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		err = errors.Join(err, p.quietAll(short))
		cancel()
	}
	if e := p.goodbye(); e != nil && !errors.Is(e, errs.ErrClosed) && !errors.Is(e, errs.ErrPeerLost) {
		err = errors.Join(err, e)
	}
	if err != nil {
		return &errs.OpError{Op: "pe: close", PE: -1, Size: -1, Err: err}
	}
	return nil
}

// goodbye tells the others that this PE leaves in order. One that is lost does not: who
// waits for the verdict on it would take it for one that has left.
func (p *PE) goodbye() error {
	if p.world.lossOf(p.rank) != nil {
		return nil
	}
	// A transport may have found the hub's holder dead before its connection did.
	over := p.world.failed.Load() != nil
	if err := p.member.Goodbye(); !over {
		return err
	}
	return nil
}

// linger waits for the others' goodbyes.
func (p *PE) linger(ctx context.Context) {
	if p.member.Holder() != p.rank {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.world.vals.CloseTimeout)
		defer cancel()
	}
	p.gone.wait(ctx, func() bool {
		if p.world.lossOf(p.rank) != nil || p.gone.deaf.Load() || p.member.Err() != nil && !errors.Is(p.member.Err(), errs.ErrClosed) {
			return true // cut off: nobody can tell
		}
		if h := p.member.Holder(); h >= 0 && p.world.lossOf(h) != nil {
			return true // nor can a dead hub, as a transport may know first
		}
		for pe := range p.world.state {
			if pe != p.rank && p.world.state[pe].flags.Load()&(peerGone|peerLost) == 0 {
				return false
			}
		}
		return true
	})
}

// finish ends waits and attachments and, with the last PE of this process, the
// proxy and the mappings.
func (p *PE) finish(ctx context.Context) error {
	p.closing.Store(true)
	p.closed.Store(true)
	p.world.changed()
	// Nobody may look at this PE's memory any more: waits end by the flag.
	late := p.settle(ctx)
	if p.failure != nil {
		_ = p.member.Accuse(p.rank, failed(p.failure)) // Close without goodbye says it too, but not why
	}
	err := p.member.Close()
	if errors.Is(err, errs.ErrClosed) || errors.Is(err, errs.ErrPeerLost) {
		err = nil
	}
	return errors.Join(err, late, p.world.leave(ctx))
}

// settle waits until every operation in progress in this PE has returned.
func (p *PE) settle(ctx context.Context) error {
	for !p.quiescent() {
		if ctx.Err() != nil {
			return &errs.OpError{Op: "pe: close", PE: -1, Size: -1, Err: &errs.TimeoutError{What: "operations in progress", PE: -1}}
		}
		p.world.proxy.TryPoll()
		time.Sleep(20 * time.Microsecond)
	}
	return nil
}

func (p *PE) quiescent() bool {
	idle := true
	p.eachLane(func(l *channel.Lane) { idle = idle && l.InlineIdle() && l.Pending() == 0 })
	for _, c := range p.contexts() {
		idle = idle && c.using.Load() == 0
	}
	return idle
}

// abandon leaves without a goodbye: to the others this PE is lost, for the reason
// why.
func (p *PE) abandon(ctx context.Context, why error) {
	p.once.Do(func() {
		p.failure = why
		p.closing.Store(true)
		p.dropLanes(&errs.ClosedError{PE: p.rank})
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.world.vals.CloseTimeout)
		defer cancel()
		p.end = p.finish(short)
	})
}

// failed is what the others hear of a PE whose function returned err.
func failed(err error) string { return "its function returned: " + err.Error() }
