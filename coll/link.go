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

// core is what the collectives of this file's kind keep.
type core struct {
	links   []link
	slots   uint64
	enough  uint64 // messages taken that are told of by themselves
	piece   int    // most payload of a message
	sig     signature
	tickets []rma.Ticket // operations on callers' buffers, oldest first
	owed    int          // links that owe word of it
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
	near bool // this PE reaches the member's memory by load and store

	// To it.
	sent     uint64
	credited uint64         // messages known to be taken
	credit   *atomic.Uint64 // what the credit signal says of it
	half     any            // whose payload is in the next slot already, without its header
	headed   bool           // the next slot's header is there, without its flag
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
	arrived  *atomic.Uint64   // else: the data signal
	head     []byte
	mem      []byte
	back     heap.Signal
}

// flagOf is the flag of message number n (from 1): the receiver looks for the number;
// taken is how many of its own messages the sender has taken.
func flagOf(n, taken uint64) uint64 { return n<<32 | taken&math.MaxUint32 }

// row is where a source's queue is among those of a receiver.
func row(source, receiver int) int {
	if source < receiver {
		return source
	}
	return source - 1
}

func coreNeed(g geometry, cfg Config) need {
	slots := int64(g.n-1) * int64(cfg.Slots)
	return need{
		signals: 2 * g.n, // data and credit of each member
		zeroed:  lineBytes + slots*headBytes,
		bytes:   slots * int64(cfg.SlotBytes),
	}
}

func (c *Comm) attachCore(r region) (err error) {
	if c.state, err = wordAt(c.ctx, r.zeroed); err != nil {
		return err
	}
	c.stateAt = r.zeroed
	k := &c.core
	k.slots, k.piece = uint64(c.cfg.Slots), c.cfg.SlotBytes
	k.enough = (k.slots + 1) / 2
	k.links = make([]link, c.n)
	for q := range k.links {
		if l := &k.links[q]; q != c.rank {
			l.pe = q
			if err := c.attachLink(r, l); err != nil {
				return err
			}
		}
	}
	k.flow.make(c.n)
	k.collect.make(c.n)
	k.red.make(c.n)
	return nil
}

func (c *Comm) attachLink(r region, l *link) (err error) {
	q, slots := l.pe, c.cfg.Slots
	// Signal i is what member i writes, here as there: as a sender in the first
	// half, as a receiver in the second.
	if l.arrived, err = wordAt(c.ctx, r.sigs.At(q).Ref()); err != nil {
		return err
	}
	if l.credit, err = wordAt(c.ctx, r.sigs.At(c.n+q).Ref()); err != nil {
		return err
	}
	l.data, l.back = r.sigs.At(c.rank), r.sigs.At(c.n+c.rank)
	there, here := row(c.rank, q)*slots, row(q, c.rank)*slots // first slots
	heads := r.zeroed.Add(lineBytes)
	l.heads = heads.Add(uint64(there * headBytes))
	l.slots = r.ref.Add(uint64(there) * uint64(c.cfg.SlotBytes))
	l.head = r.zeroMem[lineBytes+here*headBytes:][:slots*headBytes]
	l.mem = r.mem[here*c.cfg.SlotBytes:][:slots*c.cfg.SlotBytes]
	l.stage = make([]byte, slots*headBytes)
	l.tickets = make([]rma.Ticket, slots)
	l.flagged = make([]uint64, slots)
	l.near = c.near(q)
	if !c.nearTo(q) {
		return nil
	}
	for i := range slots {
		w, err := wordAt(c.ctx, heads.Add(uint64((here+i)*headBytes)))
		if err != nil {
			return err
		}
		l.flags = append(l.flags, w)
	}
	return nil
}

// near reports whether this PE reaches a member's memory by load and store.
func (c *Comm) near(q int) bool {
	info, _ := c.p.Peer(c.world[q])
	return info.Path == "direct"
}

// nearTo reports whether a member said so of this PE.
func (c *Comm) nearTo(q int) bool {
	b := c.reach[q]
	return len(b) > c.rank/8 && b[c.rank/8]>>(c.rank%8)&1 == 1
}

// reaches are the members near this PE, a bit each.
func (c *Comm) reaches() []byte {
	b := make([]byte, (c.n+7)/8)
	for q := range c.n {
		if c.near(q) {
			b[q/8] |= 1 << (q % 8)
		}
	}
	return b
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

// kind is a collective, as it travels: an index of callNames.
type kind uint8

const (
	kindBroadcast kind = iota + 3
	kindFCollect
	kindCollect
	kindGather
	kindScatter
	kindAllToAll
	kindAllToAllS
	kindAllToAllV
	kindReduce
	kindAllReduce
	kindReduceScatter
	kindScan
	kindExclusiveScan

	kindBarrier kind = 1
	kindSync    kind = 2
)

func (k kind) String() string {
	if n := callNames(); int(k) < len(n) {
		return n[k]
	}
	return fmt.Sprintf("call %d", uint8(k))
}

// sign makes a call's signature.
func sign(k kind, op, typ uint8, root int, count int) signature {
	return signature{
		what:  uint64(k) | uint64(op)<<8 | uint64(typ)<<16 | uint64(uint32(root))<<32,
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
	return l.sent-l.credited < c.core.slots
}

// send sends one message, if that is possible now. With a destination the payload
// goes there. owner is whose message it is: if a part of it is on the way, only the
// same owner may go on. The payload must stay as it is until the call is complete.
func (c *Comm) send(l *link, owner any, flags, arg uint64, payload []byte, to *heap.Ref) (bool, error) {
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
	if len(k.tickets) > 0 {
		return false, nil
	}
	return k.owed == 0, nil
}

// here reports whether there is an unread message of a member.
func (c *Comm) here(l *link) bool {
	if l.flags == nil {
		return l.arrived.Load() > l.got
	}
	return uint32(l.flags[l.got%c.core.slots].Load()>>32) == uint32(l.got+1)
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
	// What it says of this PE's messages is at most Slots ahead of what is known.
	if more := int32(c.front(l).taken() - uint32(l.credited)); more > 0 {
		l.credited += uint64(more)
	}
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
