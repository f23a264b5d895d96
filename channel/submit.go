package channel

import (
	"unsafe"

	"goshmem/internal/errs"
)

// handEvery is how many operations a producer that gathers queues before it posts
// them.
const handEvery = 16

// TrySubmit queues one operation of a lane; d is validated by the caller and
// ptr is its Go-side memory where it has FlagLocalPtr. It fails, without having
// taken anything, with ErrWouldBlock when ring or lane are full, or with the
// reason why the lane takes no more.
func (p *Proxy) TrySubmit(l *Lane, d *Desc, ptr unsafe.Pointer) (Ticket, error) {
	// Counted before it can complete, and before it is claimed: Quiet covers it,
	// and a Shut that finds nothing pending has refused it.
	g := l.gate.Add(1)
	if g&(gateClosed|gateLost) != 0 {
		l.gate.Add(^uint64(0))
		return Ticket{}, l.Err()
	}
	if int(g&gateCount) > l.cfg.Backlog {
		l.gate.Add(^uint64(0))
		return Ticket{}, errs.ErrWouldBlock
	}
	l.issued.Add(1)
	l.cfg.Group.pending.Add(1)
	pos, slot, ok := p.ring.TryClaim()
	if !ok {
		l.cfg.Group.pending.Add(-1)
		l.issued.Add(^uint64(0))
		l.gate.Add(^uint64(0))
		return Ticket{}, errs.ErrWouldBlock
	}
	copyBody(slot, d)
	slot.Ctx, slot.PE = l.cfg.Ctx, uint32(l.cfg.TeamPE)
	if d.Flags&FlagLocalPtr != 0 {
		p.ring.Local(pos).Ptr = ptr
	}
	p.ring.Publish(pos)
	if l.prompt && (d.SigOp != SigNone || d.Flags&FlagAwaited != 0) && g&gateCount == 1 {
		p.TryPoll() // somebody waits for it: not by a core that begins later, or must be woken first
	}
	if l.gathers != nil {
		if !p.gathered.Load() || pos-p.ring.Consumed() >= handEvery {
			p.Hand(l)
		}
	} else if p.waiters.Load() == 0 {
		p.Kick()
	}
	return Ticket{lane: l, pos: pos}, nil
}

// Hand lets a producer post what it has queued to a transport that gathers, if
// nobody has the role. The producer goes on gathering; what it leaves behind the
// background goroutine flushes as soon as no more comes.
func (p *Proxy) Hand(l *Lane) {
	if l.gathers == nil {
		return
	}
	if !p.role.CompareAndSwap(roleFree, roleHeld) {
		if p.waiters.Load() == 0 {
			p.Kick()
		}
		return
	}
	p.drain()
	p.push(l)
	left := !l.gathers.Flush(false)
	p.gathered.Store(left)
	left = left || l.queue.Len() > 0
	p.role.Store(roleFree)
	if left {
		p.Kick()
	}
}
