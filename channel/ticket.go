package channel

import "fmt"

// Ticket names one operation: (context, PE, n). The zero Ticket belongs to an
// operation that was complete when its call returned.
type Ticket struct {
	lane *Lane
	pos  uint64
}

// Done reports whether the operation is complete, failed or not.
func (t Ticket) Done() bool { return t.lane == nil || t.lane.ackedPos.Load() >= t.pos }

// Reusable reports whether the source of a put of n bytes may be changed: it is
// complete, or the transport has taken a copy.
func (t Ticket) Reusable(n uint64) bool {
	return t.Done() || t.lane.copied.Load() >= t.pos && n <= t.lane.copies
}

// Err is the error of a failed operation, once Done; the 4096 latest failures of
// a lane are remembered.
func (t Ticket) Err() error {
	if t.lane == nil || !t.Done() {
		return nil
	}
	return t.lane.errAt(t.pos)
}

// PE is the target, numbered in the context's team; -1 for the zero Ticket.
func (t Ticket) PE() int {
	if t.lane == nil {
		return -1
	}
	return t.lane.cfg.TeamPE
}

// Seq is the operation's number; 0 for one that completed at once.
func (t Ticket) Seq() uint64 { return t.pos }

// Of reports whether the operation is one of the context that g counts for; so
// is the zero Ticket, of every context.
func (t Ticket) Of(g *Group) bool { return t.lane == nil || t.lane.cfg.Group == g }

// Ctx is the number of the context; 0 for the zero Ticket.
func (t Ticket) Ctx() uint32 {
	if t.lane == nil {
		return 0
	}
	return t.lane.cfg.Ctx
}

func (t Ticket) String() string {
	if t.lane == nil {
		return "ticket(complete)"
	}
	return fmt.Sprintf("ticket(ctx %d, pe %d, #%d)", t.lane.cfg.Ctx, t.lane.cfg.TeamPE, t.pos)
}
