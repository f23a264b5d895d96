package ibrc

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"goshmem/channel"
	"goshmem/internal/errs"
)

// Where nobody applies work requests for the target's CPU (no Limits.Agent), an
// AMO is a message: the target's proxy carries it out, atomic with its own CPU's,
// and answers. It is behind the lane's earlier WRITEs and atomics, because a
// receive completes behind them; what is not an AMO waits for the answer, because
// the adapter would carry it out at once.

const (
	messageSize = 40
	kindRequest = 1
	kindAnswer  = 2
	// unanswered is the last work request of an AMO whose answer is not here.
	unanswered = math.MaxUint64
)

// message is an AMO on its way to the target, or the old value on its way back.
type message struct {
	kind    uint8
	op      channel.Op
	elem    channel.Elem
	region  uint16
	off     uint64
	operand uint64 // of an answer, the old value
	cond    uint64
}

// answer is what is owed to a peer.
type answer struct{ old uint64 }

func (m message) encode(b *[messageSize]byte) {
	le := binary.LittleEndian
	*b = [messageSize]byte{m.kind, byte(m.op), byte(m.elem)}
	le.PutUint16(b[4:], m.region)
	le.PutUint64(b[8:], m.off)
	le.PutUint64(b[16:], m.operand)
	le.PutUint64(b[24:], m.cond)
}

// decodeMessage takes bytes of a peer; what they say is checked by who uses it.
func decodeMessage(b []byte) (m message, err error) {
	le := binary.LittleEndian
	if len(b) != messageSize || b[0] != kindRequest && b[0] != kindAnswer {
		return m, fmt.Errorf("ibrc: a message of %d B that is none: %w", len(b), errs.ErrMismatch)
	}
	return message{
		kind: b[0], op: channel.Op(b[1]), elem: channel.Elem(b[2]), region: le.Uint16(b[4:]),
		off: le.Uint64(b[8:]), operand: le.Uint64(b[16:]), cond: le.Uint64(b[24:]),
	}, nil
}

// byMessage reports whether AMOs are messages.
func (t *Transport) byMessage() bool {
	return !t.lim.Agent && t.lim.Send >= messageSize && t.lim.Recv >= 2
}

// messageRoom reports whether a request may start now: an AMO if there is room for
// one more message on its way and for its answer, everything else if no AMO is
// unanswered.
func (t *Transport) messageRoom(q *pair, r *channel.Request) bool {
	if r.Op.IsAMO() {
		return q.amos < t.lim.Recv/2
	}
	return q.amos == 0
}

// request makes an AMO's message.
func (t *Transport) request(r *channel.Request, wr *WR) {
	m := message{kind: kindRequest, op: r.Op, elem: r.Type, region: r.DstRegion, off: r.DstOff, operand: r.SigVal, cond: r.SigOff}
	t.text(m, wr)
}

// text puts a message into a work request; the bytes stay until its chain is posted.
func (t *Transport) text(m message, wr *WR) {
	b := &t.texts[t.numTexts%maxChain]
	t.numTexts++
	m.encode(b)
	wr.Op, wr.Local, wr.Length = OpSend, unsafe.Pointer(b), messageSize
}

// message takes a peer's.
func (t *Transport) message(q *pair, b []byte) error {
	m, err := decodeMessage(b)
	if err != nil {
		return err
	}
	if m.kind == kindAnswer {
		return t.answered(q, m.operand)
	}
	at, err := t.target(q.local, m)
	if err != nil {
		return err
	}
	q.answers = append(q.answers, answer{channel.ApplyAMO(m.op, m.elem, at, m.operand, m.cond)})
	t.env.Knock(q.local)
	if !q.owing {
		q.owing = true
		t.owing = append(t.owing, q)
	}
	return nil
}

// target is the word that a peer's AMO is for: within a region, aligned, of a type
// and by an operation that exist.
func (t *Transport) target(pe int, m message) (unsafe.Pointer, error) {
	size := m.elem.Size()
	d := channel.Desc{Op: m.op, Type: m.elem, DstOff: m.off, Size: size}
	if m.op != channel.OpAMOSet {
		d.Flags = channel.FlagFetch
	}
	if !m.op.IsAMO() || m.region >= regions {
		return nil, fmt.Errorf("ibrc: a peer's %v in region %d: %w", m.op, m.region, errs.ErrMismatch)
	}
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("ibrc: a peer's request: %w", err)
	}
	mem := t.env.Table.Region(pe, m.region)
	if m.off > mem.Size || size > mem.Size-m.off {
		return nil, fmt.Errorf("ibrc: a peer's %v at %#x of %d B: %w", m.op, m.off, mem.Size, errs.ErrRange)
	}
	return mem.At(m.off), nil
}

// answered completes the oldest AMO without an answer.
func (t *Transport) answered(q *pair, old uint64) error {
	for i := range q.built {
		p := q.reqs.At(i)
		if p.last != unanswered {
			continue
		}
		if p.req.Flags&channel.FlagFetch != 0 {
			channel.StoreElem(q.localSide(&p.req, p.req.SrcRegion, p.req.SrcOff), p.req.Type.Size(), old)
		}
		p.last = 0
		q.amos--
		t.reap(q)
		return nil
	}
	return fmt.Errorf("ibrc: an answer to nothing: %w", errs.ErrMismatch)
}

// answer sends what is owed, as far as there is room.
func (t *Transport) answer() {
	kept := t.owing[:0]
	for _, q := range t.owing {
		if q.failed == nil && q.ready {
			if err := t.answerPair(q); err != nil {
				t.fail(q, 0, err)
			}
		}
		if q.failed != nil {
			q.answers = q.answers[:0]
		}
		if q.owing = len(q.answers) > 0; q.owing {
			kept = append(kept, q)
		}
	}
	clear(t.owing[len(kept):])
	t.owing = kept
}

func (t *Transport) answerPair(q *pair) error {
	n := min(len(q.answers), t.lim.SQDepth-int(q.next-1-q.done), t.lim.CQDepth-t.cq, maxChain)
	if n <= 0 {
		return nil
	}
	for i := range n {
		t.chain[i] = WR{ID: q.next + uint64(i), Flags: WRSignalled}
		t.text(message{kind: kindAnswer, operand: q.answers[i].old}, &t.chain[i])
	}
	took, err := q.qp.Post(t.chain[:n])
	q.next += uint64(took)
	t.cq += took
	q.answers = append(q.answers[:0], q.answers[took:]...)
	return err
}
