package coll

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"goshmem/amo"
	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// Messages. Every ordered pair of members has a queue of Slots slots in the
// receiver's memory. A message is a header and up to SlotBytes of payload, short
// ones in the header's place. The receiver takes messages in order and tells the
// sender how many; a slot is written only when its last message was taken, so
// neither back-to-back calls nor a member that is a call ahead can reach a slot in
// use. Both counts only grow, over all calls.
//
// How a message is announced depends on the way. Between nodes: by the pair's data
// signal, which goes with the header. Near, where a cache line that crosses is what
// costs: by the flag in the header itself, an AMO behind the rest of it, so that a
// short message is one line.
//
// How many messages were taken goes back in every message of the other direction,
// and if there is none for a while by the pair's credit signal.
//
// Headers are staged in a buffer that is the sender's image of the slot: it is free
// when the slot is.

// headBytes is a slot's header with what short messages have behind it; inlineBytes
// is the most that they may have.
const (
	headBytes   = 1024
	inlineBytes = headBytes - headerBytes
)

// link is the two queues of this PE and one other member.
type link struct {
	pe   int
	near bool // this PE reaches the member's memory by load and store

	// To it.
	sent     uint64
	credited uint64     // messages known to be taken
	credit   heap.Cells // what the credit signal says of it
	half     any        // whose payload is in the next slot already, without its header
	headed   bool       // the next slot's header is there, without its flag
	heads    heap.Ref
	slots    heap.Ref
	data     heap.Signal
	stage    []byte
	tickets  []rma.Ticket // of the last header in each slot
	flagged  []uint64     // the flag of each slot

	// From it.
	got      uint64
	returned uint64           // of these, told
	owes     bool             // it is time to tell, and the lane had no room
	flags    []*atomic.Uint64 // near: of each slot
	arrived  heap.Cells       // else: the data signal
	head     []byte
	mem      []byte
	back     heap.Signal
}

// flagOf is the flag of message number n (from 1): the receiver looks for the number;
// taken is how many of its own messages the sender has taken.
func flagOf(n, taken uint64) uint64 { return n<<32 | taken&math.MaxUint32 }

// Flags of a message, in the header's what.
const (
	flagAnnounce uint64 = 1 << (24 + iota) // no payload: arg is where the receiver of a transfer has its destination
	flagDirect                             // the payload is at the destination already
	flagPart                               // of the second part of a call that has two
	flagOffer                              // no payload: arg is where the sender's source lies, to be read from there
	flagRead                               // no payload: an offered source was read

	flagMask uint64 = 0xff << 24
)

// staged as an announcement: send to the workspace.
const staged = ^uint64(0)

// suspectLinks looks for unread messages of this call that mean another one.
func (c *Comm) suspectLinks() error {
	for i := range c.core.links {
		l := &c.core.links[i]
		if i == c.rank || !c.here(l) {
			continue
		}
		if h := c.front(l); h.call == c.calls {
			if err := c.differs(l, h); err != nil {
				return err
			}
		}
	}
	return nil
}

// room reports whether the next slot to a member is free, or half written on
// behalf of owner.
func (c *Comm) room(l *link, owner any) bool {
	if l.half != nil || l.headed {
		return l.half == owner
	}
	if l.sent-l.credited < c.core.slots {
		return true
	}
	l.credited = max(l.credited, l.credit.Load())
	// Messages that wait for their turn say it too; and a member that said so says
	// nothing more.
	for i := range c.core.slots {
		n := l.got + i
		if !c.hereAt(l, n) {
			break
		}
		l.learn(headerOf(l.head[n%c.core.slots*headBytes:]))
	}
	return l.sent-l.credited < c.core.slots
}

// send sends one message, if that is possible now. With a destination the payload
// goes there. owner is whose message it is: if a part of it is on the way, only the
// same owner may go on. The payload must stay as it is until the call is complete.
func (c *Comm) send(l *link, owner any, flags, arg uint64, payload []byte, to *heap.Ref) (bool, error) {
	c.stuck = true // unless it succeeds
	if !c.room(l, owner) {
		return false, nil
	}
	k := &c.core
	at := l.sent % k.slots
	if !l.headed {
		if ok, err := c.sendHead(l, at, owner, flags, arg, payload, to); !ok {
			return false, err
		}
	}
	if l.near {
		flag := flagOf(l.sent+1, l.got)
		if err := amo.TryAdd(c.ctx, heap.MakePtr[uint64](l.heads.Add(at*headBytes)), flag-l.flagged[at], l.pe); err != nil {
			return false, blocked(err)
		}
		l.flagged[at] = flag
		c.told(l, l.got)
	}
	l.half, l.headed = nil, false
	l.sent++
	c.moved = true
	c.budget--
	return true, nil
}

// sendHead sends everything but the flag.
func (c *Comm) sendHead(l *link, at uint64, owner any, flags, arg uint64, payload []byte, to *heap.Ref) (bool, error) {
	k := &c.core
	if t := &l.tickets[at]; !t.Done() {
		return false, nil // it arrived, but its source may still be sent again
	} else if err := t.Err(); err != nil {
		return false, err
	}
	stage := l.stage[at*headBytes:][:headBytes]
	n := headerBytes
	switch {
	case l.half != nil:
	case to != nil:
		if ok, err := c.put(*to, payload, l.pe); !ok {
			return false, err
		}
		l.half = owner
	case len(payload) <= inlineBytes:
		n += copy(stage[headerBytes:], payload)
	default:
		if ok, err := c.put(l.slots.Add(at*uint64(k.piece)), payload, l.pe); !ok {
			return false, err
		}
		l.half = owner
	}
	*headerOf(stage) = header{
		flag: flagOf(l.sent+1, l.got), call: c.calls, bytes: uint32(len(payload)),
		what: k.sig.what | flags, count: k.sig.count, arg: arg,
	}
	head := l.heads.Add(at * headBytes)
	var t rma.Ticket
	var err error
	if l.near {
		t, err = rma.TryPutMemNBI(c.ctx, head.Add(flagBytes), stage[flagBytes:n], l.pe)
	} else {
		t, err = rma.TryPutMemSignalNBI(c.ctx, head, stage[:n], l.data, rma.SignalAdd, 1, l.pe)
	}
	if err != nil {
		return false, blocked(err)
	}
	l.tickets[at] = t
	if l.near {
		l.headed, l.half = true, owner
	} else {
		c.told(l, uint64(headerOf(stage).flag)&math.MaxUint32)
	}
	return true, nil
}

// put writes bytes of a caller's buffer.
func (c *Comm) put(to heap.Ref, b []byte, pe int) (bool, error) {
	t, err := rma.TryPutMemNBI(c.ctx, to, b, pe)
	if err != nil {
		return false, blocked(err)
	}
	c.track(t)
	return true, nil
}

// track remembers an operation that is not complete.
func (c *Comm) track(t rma.Ticket) {
	if !t.Done() || t.Err() != nil {
		c.core.tickets = append(c.core.tickets, t)
	}
}

// reap forgets the oldest operations that are complete; the error is of one that
// failed.
func (c *Comm) reap() error {
	k, n := &c.core, 0
	for n < len(k.tickets) && k.tickets[n].Done() {
		if err := k.tickets[n].Err(); err != nil {
			return err
		}
		n++
	}
	if n > 0 {
		k.tickets = k.tickets[:copy(k.tickets, k.tickets[n:])]
	}
	return nil
}

// blocked is nil for what only has to be tried again.
func blocked(err error) error {
	if errors.Is(err, pe.ErrWouldBlock) {
		return nil
	}
	return err
}

// flush reports whether everything that this PE sent is complete, so that
// sources are reusable, and the slots that are due are given back.
func (c *Comm) flush() (bool, error) {
	k := &c.core
	if err := c.reap(); err != nil {
		return false, err
	}
	c.stuck = len(k.tickets) > 0 || k.owed > 0
	return !c.stuck, nil
}

// here reports whether there is an unread message of a member.
func (c *Comm) here(l *link) bool { return c.hereAt(l, l.got) }

// hereAt reports whether message n of a member, counted from 0, is here.
func (c *Comm) hereAt(l *link, n uint64) bool {
	if l.flags == nil {
		return l.arrived.Load() > n
	}
	return uint32(l.flags[n%c.core.slots].Load()>>32) == uint32(n+1)
}

// learn takes note of how many of this PE's messages were taken when a message was
// sent: at most Slots more than is known.
func (l *link) learn(h *header) {
	if more := int32(h.taken() - uint32(l.credited)); more > 0 {
		l.credited += uint64(more)
	}
}

// news reports whether there is an unread message of anybody.
func (c *Comm) news() bool {
	for i := range c.core.links {
		if l := &c.core.links[i]; i != c.rank && c.here(l) {
			return true
		}
	}
	return false
}

// front is the oldest unread message; there is one.
func (c *Comm) front(l *link) *header {
	return headerOf(l.head[l.got%c.core.slots*headBytes:])
}

// peek is the oldest unread message of a member, checked against this PE's call.
// It is nil if there is none, or one of a later part of the call or a later call,
// which is an error if the member still owes this PE a message of this part.
func (c *Comm) peek(l *link, part uint64, owes bool) (*header, error) {
	if !c.here(l) {
		return nil, nil
	}
	h := c.front(l)
	if !owes && (int32(h.call-c.calls) > 0 || h.call == c.calls && h.what&flagPart > part) {
		return nil, nil
	}
	if err := c.differs(l, h); err != nil {
		return nil, err
	}
	if h.what&flagPart != part {
		return nil, c.wrongLength(l, "a message of this part", "a later one")
	}
	return h, nil
}

// payload is a message's bytes in its slot; it was peeked.
func (c *Comm) payload(l *link, n int) []byte {
	at := int(l.got % c.core.slots)
	if n <= inlineBytes {
		return l.head[at*headBytes+headerBytes:][:n]
	}
	return l.mem[at*c.core.piece:][:n]
}

// pop takes the oldest message, and tells its sender now and then.
func (c *Comm) pop(l *link) error {
	l.learn(c.front(l))
	l.got++
	c.moved = true
	c.budget--
	if l.got-l.returned < c.core.enough || l.owes {
		return nil
	}
	return c.giveBack(l)
}

// told takes note that a member knows how many of its messages were taken.
func (c *Comm) told(l *link, taken uint64) {
	l.returned = l.got - uint64(uint32(l.got)-uint32(taken))
	if l.owes && l.got-l.returned < c.core.enough {
		l.owes = false
		c.core.owed--
	}
}

func (c *Comm) giveBack(l *link) error {
	err := rma.TrySignal(c.ctx, l.back, rma.SignalSet, l.got, l.pe)
	if err == nil {
		c.told(l, l.got)
	} else if !l.owes {
		l.owes = true
		c.core.owed++
	}
	return blocked(err)
}

// payBack tries again to tell what could not be told when it was time: the sender
// may wait for just that.
func (c *Comm) payBack() error {
	for i := range c.core.links {
		if l := &c.core.links[i]; l.owes {
			if err := c.giveBack(l); err != nil {
				return err
			}
		}
	}
	return nil
}

// wrongLength is a message that does not fit what is expected from its sender.
func (c *Comm) wrongLength(l *link, want, have any) error {
	return &pe.MismatchError{PE: c.world[l.pe], Field: "length", Want: fmt.Sprint(want), Have: fmt.Sprint(have)}
}
