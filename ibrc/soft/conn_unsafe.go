package soft

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"goshmem/ibrc"
	"goshmem/internal/errs"
)

// conn is one end of a connection. What it sends: requests of its queue pair,
// and answers to the peer's; what it receives: the same from the other side.
type conn struct {
	p   *Provider
	q   *qp
	pe  int // local
	fd  int
	err error // nothing goes on any more

	out     outq
	waits   bool // is one of the provider's outs
	watched bool // for room to send

	// Own requests.
	posted uint64
	acked  uint64 // as the peer says
	wants  [credits]want
	first  uint64 // of wants, the oldest unanswered
	last   uint64 // and one past the newest
	done   uint64 // all requests up to it are complete
	told   uint64 // of these, reported

	// The peer's requests.
	applied uint64
	ackSent uint64
	answers [credits]answer
	oldest  uint64
	newest  uint64 // one past

	in   []byte // buffer; in[r:w] is not yet parsed
	r, w int
	dst  unsafe.Pointer // rest of a payload that is read straight to its place
	left int
	then kind // of that payload's frame
	ring bool // a word changed that somebody may sleep on
}

// want is an answer that is due to us.
type want struct {
	id    uint64
	local unsafe.Pointer
	n     uint32 // bytes
	old   bool   // an old value, else data
}

// answer is one that we owe.
type answer struct {
	src unsafe.Pointer // of data; nil: old is the answer
	n   uint32
	old uint64
}

func newConn(q *qp, fd int) *conn {
	return &conn{
		p: q.p, q: q, pe: q.cfg.Local, fd: fd,
		out: newOutq(), in: make([]byte, recvBytes),
	}
}

// fail breaks the connection; the provider reports it.
func (c *conn) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// broken says how a connection was lost.
func broken(what string, err error) error {
	return &ibrc.StatusError{Op: ibrc.OpWrite, Status: ibrc.StatusRetryExc, Detail: what + ": " + err.Error()}
}

var errEOF = errors.New("the peer closed it")

// post queues a work request; false: there is no room.
func (c *conn) post(wr *ibrc.WR) bool {
	h := header{rkey: uint16(wr.RKey), length: wr.Length, off: wr.Remote}
	switch wr.Op {
	case ibrc.OpWrite:
		h.kind = kWrite
		local := wr.Local
		if local == nil {
			local = unsafe.Pointer(&wr.Operand)
		}
		if n := int(wr.Length); n <= copied {
			if !c.out.room(headerSize + n) {
				return false
			}
			b := c.out.take(headerSize + n)
			h.put(b)
			if n == 8 {
				*(*[8]byte)(unsafe.Pointer(&b[headerSize])) = *(*[8]byte)(local)
			} else {
				copy(b[headerSize:], unsafe.Slice((*byte)(local), n))
			}
		} else {
			if !c.out.room(headerSize) {
				return false
			}
			h.put(c.out.take(headerSize))
			c.out.refer(wr.Local, n)
		}
	case ibrc.OpRead:
		if !c.out.room(headerSize) || c.last-c.first == credits {
			return false
		}
		h.kind = kRead
		h.put(c.out.take(headerSize))
		c.want(wr, false)
	default:
		return c.postAtomic(wr, h)
	}
	c.posted++
	return true
}

func (c *conn) postAtomic(wr *ibrc.WR, h header) bool {
	h.kind, h.op, h.length = kAtomic, uint8(wr.AMO), uint32(wr.Elem)
	switch wr.Op {
	case ibrc.OpFetchAdd:
		if wr.Local == nil {
			h = header{kind: kAdd, rkey: h.rkey, length: 8, off: h.off}
		} else {
			h.op, h.length = uint8(addOp), uint32(word)
		}
	case ibrc.OpCompareSwap:
		h.op, h.length = uint8(swapOp), uint32(word)
	}
	if wr.Local != nil {
		if c.last-c.first == credits {
			return false
		}
		h.kind = kFetch
	}
	n := headerSize + h.kind.operands()
	if !c.out.room(n) {
		return false
	}
	b := c.out.take(n)
	h.put(b)
	put64(b[headerSize:], wr.Operand)
	if h.kind != kAdd {
		put64(b[headerSize+8:], wr.Compare)
	}
	if wr.Local != nil {
		c.want(wr, true)
	}
	c.posted++
	return true
}

func (c *conn) want(wr *ibrc.WR, old bool) {
	c.wants[c.last%credits] = want{id: c.posted + 1, local: wr.Local, n: wr.Length, old: old}
	c.last++
}

// frontier moves done to where everything before is acknowledged and answered.
func (c *conn) frontier() {
	done := c.acked
	if c.first < c.last {
		done = min(done, c.wants[c.first%credits].id-1)
	}
	c.done = max(c.done, done)
}

// send writes what waits: own requests, then answers, then what is applied.
func (c *conn) send() {
	if c.err != nil {
		return
	}
	for {
		c.answer()
		if c.applied != c.ackSent && c.out.room(headerSize) {
			h := header{kind: kAck, off: c.applied}
			h.put(c.out.take(headerSize))
			c.ackSent = c.applied
		}
		if !c.out.pending() {
			return
		}
		if err := c.out.write(c.fd); err != nil {
			c.hear()
			c.fail(broken("send", err))
			return
		}
		if c.out.pending() {
			c.p.gather(c)
			return
		}
		if c.oldest == c.newest {
			return
		}
	}
}

// hear takes in what came before the connection broke: perhaps a farewell.
func (c *conn) hear() {
	for c.err == nil {
		if n, _ := c.read(); n == 0 {
			return
		}
		c.parse()
	}
}

// answer queues answers that are due, as many as there is room for. Data is read
// when it is sent; an aligned word by one instruction, which the kernel's copy need not be.
func (c *conn) answer() {
	for c.oldest < c.newest && c.out.room(headerSize+word8) {
		a := &c.answers[c.oldest%credits]
		switch {
		case a.src == nil:
			h := header{kind: kOld, off: a.old}
			h.put(c.out.take(headerSize))
		case a.n <= word8:
			h := header{kind: kData, length: a.n}
			b := c.out.take(headerSize + int(a.n))
			h.put(b)
			load(b[headerSize:], a.src)
		default:
			h := header{kind: kData, length: a.n}
			h.put(c.out.take(headerSize))
			c.out.refer(a.src, int(a.n))
		}
		*a = answer{}
		c.oldest++
	}
}

// turn reads, applies and answers, within the connection's budget.
func (c *conn) turn() {
	got := 0
	for c.err == nil && got < turnBytes {
		n, full := c.read()
		if n == 0 {
			break
		}
		got += n
		c.parse()
		if !full {
			break
		}
	}
	c.p.moved = c.p.moved || got > 0
	if c.ring {
		c.ring = false
		c.p.env.Knock(c.pe)
	}
	if c.oldest != c.newest || c.applied-c.ackSent >= ackEvery {
		c.send()
	} else if got == 0 {
		c.idle()
	}
}

// idle sends an acknowledgement that has waited for company.
func (c *conn) idle() {
	if c.applied != c.ackSent {
		c.send()
	}
}

// tail is how many bytes behind a large payload are read with it.
const tail = 512

// read reads once: the rest of a payload to its place, and what follows into the
// buffer. full: there may be more.
func (c *conn) read() (n int, full bool) {
	var e unix.Errno
	size := len(c.in) - c.w
	if c.left > 0 {
		rest := min(size, tail)
		size = c.left + rest
		iov := [2]unix.Iovec{{Base: (*byte)(c.dst), Len: uint64(c.left)}, {Base: &c.in[c.w], Len: uint64(rest)}}
		n, e = sysReadv(c.fd, iov[:])
	} else {
		n, e = sysRead(c.fd, unsafe.Pointer(&c.in[c.w]), size)
	}
	switch {
	case e == unix.EAGAIN || e == unix.EINTR:
		return 0, false
	case e != 0:
		c.fail(broken("receive", e))
		return 0, false
	case n == 0:
		c.fail(broken("receive", errEOF))
		return 0, false
	}
	placed := min(n, c.left)
	c.advance(placed)
	c.w += n - placed
	return n, n == size
}

// advance takes note of n bytes of a payload that are in their place.
func (c *conn) advance(n int) {
	if c.left == 0 {
		return
	}
	if c.left -= n; c.left > 0 {
		c.dst = unsafe.Add(c.dst, n)
		return
	}
	c.dst = nil // never one past the end: that is another object
	c.placed()
}

// placed ends a frame whose payload came whole.
func (c *conn) placed() {
	if c.then == kData {
		c.answered()
		return
	}
	c.applied++
}

// answered takes note of the answer to the oldest want.
func (c *conn) answered() {
	w := &c.wants[c.first%credits]
	c.acked = max(c.acked, w.id)
	*w = want{}
	c.first++
	c.frontier()
}

// close gives the socket back; nothing of it touches memory afterwards.
func (c *conn) close() {
	if c.fd < 0 {
		return
	}
	if c.p.poll != nil {
		c.p.poll.remove(c)
	}
	_ = unix.Close(c.fd) // nothing can be done about it
	c.fd = -1
	c.fail(&errs.ClosedError{PE: -1})
	c.out, c.in, c.wants = outq{}, nil, [credits]want{}
}

// bye says that the end is in order, if the socket takes it.
func (c *conn) bye() {
	if c.err != nil || !c.out.room(headerSize) {
		return
	}
	c.send()
	if c.err == nil && c.out.room(headerSize) {
		h := header{kind: kBye}
		h.put(c.out.take(headerSize))
		_ = c.out.write(c.fd)
	}
}

func (c *conn) String() string {
	return fmt.Sprintf("connection of pe %d with pe %d", c.pe, c.q.cfg.Remote)
}
