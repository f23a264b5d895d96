package coll

import "goshmem/heap"

// transfer is one buffer on its way to, or from, one member, in pieces.
type transfer struct {
	buf    []byte
	pos    int  // bytes sent, or arrived
	wanted bool // takes part
	any    bool // a message was sent, or has arrived: also empty transfers have one

	// Of a sender: it may begin, to here if direct.
	open   bool
	direct bool
	at     heap.Ref

	// Of a receiver: it has told where its buffer is.
	told bool
}

// set makes a transfer of a buffer.
func (t *transfer) set(b []byte) { *t = transfer{buf: b, wanted: true} }

func (t *transfer) done() bool { return !t.wanted || t.any && t.pos == len(t.buf) }

// large reports whether a transfer of n bytes waits for its receiver's
// announcement.
func (c *Comm) large(n int) bool { return n > c.cfg.Eager }

// announce tells a sender where this PE wants a transfer.
func (c *Comm) announce(l *link, t *transfer, flags uint64) error {
	arg := staged
	if off, ok := c.own.offset(t.buf); ok {
		arg = off
	}
	ok, err := c.send(l, t, flags|flagAnnounce, arg, nil, nil)
	t.told = t.told || ok
	return err
}

// announced takes note of a receiver's announcement.
func (c *Comm) announced(t *transfer, arg uint64) {
	t.open = true
	if arg != staged {
		t.direct, t.at = true, c.own.ref.Add(arg)
	}
}

// push sends the next piece of a transfer, of which the first avail bytes are
// there; it reports whether it did. Only the last piece may be short.
func (c *Comm) push(l *link, t *transfer, avail int, flags uint64) (bool, error) {
	if !t.open || t.done() {
		return false, nil
	}
	n := min(c.core.piece, len(t.buf)-t.pos)
	if t.pos+n > avail {
		return false, nil
	}
	var to *heap.Ref
	if t.direct {
		at := t.at.Add(uint64(t.pos))
		to = &at
		flags |= flagDirect
	}
	ok, err := c.send(l, t, flags, uint64(t.pos), t.buf[t.pos:t.pos+n], to)
	if !ok {
		return false, err
	}
	t.pos += n
	t.any = true
	return true, nil
}

// accept takes the next piece of a transfer from its slot, or takes note that it
// is in place.
func (c *Comm) accept(l *link, t *transfer, h *header) error {
	n := int(h.bytes)
	if h.arg != uint64(t.pos) || n > len(t.buf)-t.pos || n > c.core.piece || n == 0 && len(t.buf) > 0 || t.done() {
		return c.wrongLength(l, len(t.buf), h.arg+uint64(n))
	}
	if h.what&flagDirect == 0 {
		copy(t.buf[t.pos:], c.payload(l, n))
	}
	t.pos += n
	t.any = true
	return c.pop(l)
}
