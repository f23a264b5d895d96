package soft

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"goshmem/channel"
	"goshmem/internal/errs"
	"goshmem/internal/memcopy"
)

const (
	word   = channel.Elem64
	addOp  = channel.OpAMOAdd
	swapOp = channel.OpAMOCompareSwap
)

func put64(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }
func get64(b []byte) uint64    { return binary.LittleEndian.Uint64(b) }

// store writes n bytes that came in; an aligned word by one locked instruction,
// since somebody may wait for it.
func store(dst, src unsafe.Pointer, n int) {
	if n <= 8 && bits.OnesCount(uint(n)) == 1 && uintptr(dst)&uintptr(n-1) == 0 {
		switch n {
		case 8:
			atomic.SwapUint64((*uint64)(dst), get64((*[8]byte)(src)[:]))
		case 4:
			atomic.SwapUint32((*uint32)(dst), binary.LittleEndian.Uint32((*[4]byte)(src)[:]))
		case 2:
			*(*uint16)(dst) = binary.LittleEndian.Uint16((*[2]byte)(src)[:])
		case 1:
			*(*byte)(dst) = *(*byte)(src)
		}
		return
	}
	memcopy.Copy(dst, src, uintptr(n))
}

// word8 is the most bytes that are read and written at once.
const word8 = 8

// load reads len(b) bytes that are wanted, at most word8 of them, an aligned word by one
// instruction.
func load(b []byte, src unsafe.Pointer) {
	n := len(b)
	if bits.OnesCount(uint(n)) == 1 && uintptr(src)&uintptr(n-1) == 0 {
		switch n {
		case 8:
			put64(b, atomic.LoadUint64((*uint64)(src)))
		case 4:
			binary.LittleEndian.PutUint32(b, atomic.LoadUint32((*uint32)(src)))
		case 2:
			binary.LittleEndian.PutUint16(b, *(*uint16)(src))
		case 1:
			b[0] = *(*byte)(src)
		}
		return
	}
	copy(b, unsafe.Slice((*byte)(src), n))
}

// parse carries out every frame that is whole in the buffer, and begins a payload
// that is not.
func (c *conn) parse() {
	for c.err == nil && c.left == 0 && c.w-c.r >= headerSize {
		var h header
		h.get(c.in[c.r:])
		body := c.in[c.r+headerSize : c.w]
		var n int // bytes of the body; -1: not whole
		switch h.kind {
		case kWrite:
			n = c.write(&h, body)
		case kData:
			n = c.data(&h, body)
		default:
			if n = h.kind.operands(); len(body) < n {
				n = -1
			} else {
				c.small(&h, body)
			}
		}
		if n < 0 {
			break
		}
		c.r += headerSize + n
	}
	if c.r == c.w {
		c.r, c.w = 0, 0
	} else if c.r > 0 {
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
}

// at is the address of n bytes that a frame names; nil: the peer may not.
func (c *conn) at(h *header, n uint64) unsafe.Pointer {
	m := c.p.region(c.pe, h.rkey)
	if m == nil || m.mem.Check(h.off, n) != nil {
		c.fail(badFrame(h, "no such memory"))
		return nil
	}
	return m.mem.At(h.off)
}

// write applies the payload of a kWrite, or what came of it.
func (c *conn) write(h *header, body []byte) int {
	n := int(h.length)
	if n <= 8 && len(body) < n {
		return -1
	}
	dst := c.at(h, uint64(n))
	if dst == nil {
		return -1
	}
	if n <= len(body) {
		if n > 0 {
			store(dst, unsafe.Pointer(&body[0]), n)
			c.ring = c.ring || n <= 8
		}
		c.applied++
		return n
	}
	c.place(kWrite, dst, n, body)
	return len(body)
}

// place begins a payload of which body is the first part.
func (c *conn) place(k kind, dst unsafe.Pointer, n int, body []byte) {
	if len(body) > 0 {
		memcopy.Copy(dst, unsafe.Pointer(&body[0]), uintptr(len(body)))
	}
	c.then, c.dst, c.left = k, unsafe.Add(dst, len(body)), n-len(body)
}

// data takes the answer to the oldest READ.
func (c *conn) data(h *header, body []byte) int {
	w := &c.wants[c.first%credits]
	if c.first == c.last || w.old || w.n != h.length {
		c.fail(badFrame(h, "an answer that nobody waits for"))
		return -1
	}
	n := int(h.length)
	if n <= 8 && len(body) < n {
		return -1
	}
	if n <= len(body) {
		if n > 0 {
			store(w.local, unsafe.Pointer(&body[0]), n)
		}
		c.answered()
		return n
	}
	c.place(kData, w.local, n, body)
	return len(body)
}

// small carries out a frame without a payload; its operands are there.
func (c *conn) small(h *header, body []byte) {
	switch h.kind {
	case kAdd:
		if p := c.at(h, 8); p != nil && c.aligned(h, p, 8) {
			atomic.AddUint64((*uint64)(p), get64(body))
			c.applied++
			c.ring = true
		}
	case kAtomic, kFetch:
		c.atomic(h, get64(body), get64(body[8:]))
	case kRead:
		if p := c.at(h, uint64(h.length)); p != nil && c.owe(h, answer{src: p, n: h.length}) {
			c.applied++
		}
	case kOld:
		w := &c.wants[c.first%credits]
		if c.first == c.last || !w.old {
			c.fail(badFrame(h, "an answer that nobody waits for"))
			return
		}
		channel.StoreElem(w.local, uint64(w.n), h.off)
		c.answered()
	case kAck:
		if h.off < c.acked || h.off > c.posted {
			c.fail(badFrame(h, "acknowledges what was not sent"))
			return
		}
		c.acked = h.off
		c.frontier()
	case kBye:
		c.fail(&errs.ClosedError{PE: c.q.cfg.Remote})
	default:
		c.fail(badFrame(h, "unknown"))
	}
}

func (c *conn) aligned(h *header, p unsafe.Pointer, n uintptr) bool {
	if uintptr(p)&(n-1) != 0 {
		c.fail(badFrame(h, "misaligned"))
		return false
	}
	return true
}

func (c *conn) atomic(h *header, operand, compare uint64) {
	op, e, ok := h.atomic()
	if !ok {
		c.fail(badFrame(h, "no such atomic"))
		return
	}
	p := c.at(h, e.Size())
	if p == nil || !c.aligned(h, p, uintptr(e.Size())) {
		return
	}
	if h.kind == kFetch && c.newest-c.oldest == credits {
		c.fail(badFrame(h, "beyond its credits"))
		return
	}
	old := channel.ApplyAMO(op, e, p, operand, compare)
	c.applied++
	c.ring = true
	if h.kind == kFetch {
		c.owe(h, answer{old: old})
	}
}

// owe takes a reply descriptor.
func (c *conn) owe(h *header, a answer) bool {
	if c.newest-c.oldest == credits {
		c.fail(badFrame(h, "beyond its credits"))
		return false
	}
	c.answers[c.newest%credits] = a
	c.newest++
	return true
}
