package coll

import (
	"errors"
	"fmt"
	"sync/atomic"

	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// Messages. Every ordered pair of members has a queue of Slots slots in the
// receiver's memory. A message is a header and up to SlotBytes of payload: the
// sender writes it into the next slot and adds 1 to the pair's data signal behind
// it; the receiver takes messages in order, and gives slots back by adding to the
// pair's credit signal at the sender. A slot is written only when its last message
// was given back, so neither back-to-back calls nor a member that is a call ahead
// can reach a slot in use. Both counters only grow, over all calls.
//
// Small messages are put in one piece, staged in a buffer that is the sender's
// image of the slot: it is free when the slot is.

// inlineBytes is the most payload that is put together with its header: the two
// then make one put.
const inlineBytes = 1024 - headerBytes

// payloadAt is where a longer payload begins in its slot.
const payloadAt = 64

// core is what the collectives of this file's kind keep.
type core struct {
	links   []link
	stride  int // from slot to slot
	slots   uint64
	enough  uint64 // slots to give back at once
	piece   int    // most payload of a message
	sig     signature
	tickets []rma.Ticket // operations on callers' buffers, oldest first
	owed    int          // links that owe slots
	trees   []*tree      // by root and shape

	// The blocking calls' machines.
	flow    flow
	collect collect
	red     reduction
	chain   chain

	// Memory that calls get when they first need it, and keep.
	acc   []float32 // bf16: the sums of one piece
	spare []byte    // a piece of sums where the destination may not be used yet
	sums  []byte    // of a scan: a piece for each slot
	read  [2][]byte // pieces of offered sources
	pack  []byte    // strided buffers, packed
}

// link is the two queues of this PE and one other member.
type link struct {
	pe   int
	near bool // its memory is as good as this PE's own

	// To it.
	sent     uint64
	credited uint64         // slots known to be given back
	credit   *atomic.Uint64 // the same, as it grows
	half     any            // whose payload is in the next slot already, without its header
	slots    heap.Ref
	data     heap.Signal
	stage    []byte
	tickets  []rma.Ticket // of the last message in each slot

	// From it.
	got      uint64
	returned uint64
	owes     bool // slots are due, and the lane had no room
	arrived  *atomic.Uint64
	mem      []byte
	back     heap.Signal
}

// row is where a source's queue is among those of a receiver.
func row(source, receiver int) int {
	if source < receiver {
		return source
	}
	return source - 1
}

func slotStride(cfg Config) int { return payloadAt + int(roundUp(int64(cfg.SlotBytes))) }

func coreNeed(g geometry, cfg Config) need {
	return need{
		signals: 2 * g.n, // data and credit of each member
		zeroed:  lineBytes,
		bytes:   int64(g.n-1) * int64(cfg.Slots) * int64(slotStride(cfg)),
	}
}

func (c *Comm) attachCore(r region) (err error) {
	if c.state, err = wordAt(c.ctx, r.zeroed); err != nil {
		return err
	}
	c.stateAt = r.zeroed
	k := &c.core
	k.stride, k.slots, k.piece = slotStride(c.cfg), uint64(c.cfg.Slots), c.cfg.SlotBytes
	k.enough = (k.slots + 1) / 2
	k.links = make([]link, c.n)
	queue := int64(c.cfg.Slots) * int64(k.stride)
	for q := range k.links {
		l := &k.links[q]
		l.pe = q
		if q == c.rank {
			continue
		}
		// Signal i is what member i adds to, here as there: as a sender in the
		// first half, as a receiver in the second.
		if l.arrived, err = wordAt(c.ctx, r.sigs.At(q).Ref()); err != nil {
			return err
		}
		if l.credit, err = wordAt(c.ctx, r.sigs.At(c.n+q).Ref()); err != nil {
			return err
		}
		l.data, l.back = r.sigs.At(c.rank), r.sigs.At(c.n+c.rank)
		l.slots = r.ref.Add(uint64(int64(row(c.rank, q)) * queue))
		l.mem = r.mem[int64(row(q, c.rank))*queue:][:queue]
		l.stage = make([]byte, c.cfg.Slots*(headerBytes+inlineBytes))
		l.tickets = make([]rma.Ticket, c.cfg.Slots)
	}
	for q, w := range c.world {
		info, _ := c.p.Peer(w)
		k.links[q].near = info.Path == "direct"
	}
	k.flow.make(c.n)
	k.collect.make(c.n)
	k.red.make(c.n)
	return nil
}

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

// signature is what the members of a call must have alike.
type signature struct {
	what  uint64
	count uint64
}

// Kinds of calls, as they travel; the names of reasons follow the same order.
type kind uint8

func kindOf(name string) kind { return kind(indexOf(callNames(), name)) }

func (k kind) String() string {
	if n := callNames(); int(k) < len(n) {
		return n[k]
	}
	return fmt.Sprintf("call %d", uint8(k))
}

func sign(name string, op, typ uint8, root int, count int) signature {
	return signature{
		what:  uint64(kindOf(name)) | uint64(op)<<8 | uint64(typ)<<16 | uint64(uint32(root))<<32,
		count: uint64(count),
	}
}

// differs compares a message with what this PE called; nil if they agree.
func (c *Comm) differs(l *link, h *header) error {
	s := &c.core.sig
	if h.call == c.calls && h.what&^flagMask == s.what && h.count == s.count {
		return nil
	}
	return c.mismatch(l, h)
}

func (c *Comm) mismatch(l *link, h *header) error {
	s := &c.core.sig
	bad := func(field string, want, have any) error {
		return &pe.MismatchError{PE: c.world[l.pe], Field: field, Want: fmt.Sprint(want), Have: fmt.Sprint(have)}
	}
	switch mine, theirs := s.what, h.what; {
	case h.call != c.calls:
		return bad("call", fmt.Sprintf("number %d, %v", c.calls, kind(mine)), fmt.Sprintf("number %d, %v", h.call, kind(theirs)))
	case kind(mine) != kind(theirs):
		return bad("call", kind(mine), kind(theirs))
	case uint8(mine>>8) != uint8(theirs>>8):
		return bad("operation", Op(mine>>8), Op(theirs>>8))
	case uint8(mine>>16) != uint8(theirs>>16):
		return bad("type", typeName(kind(mine), uint8(mine>>16)), typeName(kind(theirs), uint8(theirs>>16)))
	case mine>>32 != theirs>>32:
		return bad("root", mine>>32, theirs>>32)
	}
	return bad("count", s.count, h.count)
}

// suspectLinks looks for unread messages of this call that mean another one.
func (c *Comm) suspectLinks() error {
	for i := range c.core.links {
		l := &c.core.links[i]
		if i == c.rank || l.arrived.Load() <= l.got {
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
	if l.half != nil {
		return l.half == owner
	}
	if l.sent-l.credited < c.core.slots {
		return true
	}
	l.credited = l.credit.Load()
	return l.sent-l.credited < c.core.slots
}

// send sends one message, if that is possible now. With a destination the payload
// goes there. owner is whose message it is: if its payload is on the way and its
// header is not, only the same owner may go on. The payload must stay as it is
// until the call is complete.
func (c *Comm) send(l *link, owner any, flags, arg uint64, payload []byte, to *heap.Ref) (bool, error) {
	if !c.room(l, owner) {
		return false, nil
	}
	k := &c.core
	at := l.sent % k.slots
	if t := &l.tickets[at]; !t.Done() {
		return false, nil // it arrived, but its source may still be sent again
	} else if err := t.Err(); err != nil {
		return false, err
	}
	slot := l.slots.Add(at * uint64(k.stride))
	stage := l.stage[int(at)*(headerBytes+inlineBytes):][:headerBytes+inlineBytes]
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
		if ok, err := c.put(slot.Add(payloadAt), payload, l.pe); !ok {
			return false, err
		}
		l.half = owner
	}
	*headerOf(stage) = header{call: c.calls, bytes: uint32(len(payload)), what: k.sig.what | flags, count: k.sig.count, arg: arg}
	t, err := rma.TryPutMemSignalNBI(c.ctx, slot, stage[:n], l.data, rma.SignalAdd, 1, l.pe)
	if err != nil {
		return false, blocked(err)
	}
	l.tickets[at] = t
	l.half = nil
	l.sent++
	c.moved = true
	c.budget--
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
	if len(k.tickets) > 0 {
		return false, nil
	}
	return k.owed == 0, nil
}

// front is the oldest unread message; there is one.
func (c *Comm) front(l *link) *header {
	return headerOf(l.mem[int(l.got%c.core.slots)*c.core.stride:])
}

// peek is the oldest unread message of a member, checked against this PE's call.
// It is nil if there is none, or one of a later part of the call or a later call,
// which is an error if the member still owes this PE a message of this part.
func (c *Comm) peek(l *link, part uint64, owes bool) (*header, error) {
	if l.arrived.Load() <= l.got {
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
	at := int(l.got%c.core.slots)*c.core.stride + payloadAt
	if n <= inlineBytes {
		at += headerBytes - payloadAt
	}
	return l.mem[at:][:n]
}

// pop gives the oldest message's slot back, a few at a time.
func (c *Comm) pop(l *link) error {
	l.got++
	c.moved = true
	c.budget--
	if l.got-l.returned < c.core.enough || l.owes {
		return nil
	}
	return c.giveBack(l)
}

func (c *Comm) giveBack(l *link) error {
	err := rma.TrySignal(c.ctx, l.back, rma.SignalAdd, l.got-l.returned, l.pe)
	if err == nil {
		l.returned = l.got
	}
	if owes := err != nil; owes != l.owes {
		l.owes = owes
		if owes {
			c.core.owed++
		} else {
			c.core.owed--
		}
	}
	return blocked(err)
}

// payBack tries again to give back what could not be given back when it was due:
// its sender may wait for just that.
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
