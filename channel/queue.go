package channel

import "unsafe"

// entry is a queued operation of a lane, out of the ring.
type entry struct {
	desc Desc
	ptr  unsafe.Pointer // FlagLocalPtr: the local side, or the items of a batch
	pos  uint64
}

// flight is a request at the transport. An operation ends with its last one.
type flight struct {
	pos  uint64
	ptr  unsafe.Pointer // keeps the local side reachable
	last bool
	done bool // needs no completion: an operation that failed before it was posted
}

// cursor is how far the lane's first queued operation has been cut into
// requests: bytes of it, or of the item of a batch.
type cursor struct {
	entry int    // index in the queue
	item  int    // of a batch
	off   uint64 // bytes done; elements of a strided operation
}

// next cuts the next request at the cursor, at most limit bytes long (0: any).
// It reports the advanced cursor and whether the request is its operation's
// last. Nothing is taken from the queue.
func (l *Lane) next(c cursor, limit uint64, req *Request) (after cursor, last bool, err error) {
	e := l.queue.At(c.entry)
	req.Desc = e.desc
	req.Seq = e.pos
	req.Local, req.Whole = nil, 0
	whole := cursor{entry: c.entry + 1}
	switch e.desc.Op {
	case OpBatch:
		items := unsafe.Slice((*BatchItem)(e.ptr), int(e.desc.Size))
		it := &items[c.item]
		n := uint64(len(it.Src))
		// Checked before the batch was queued; a caller that changed its items
		// since must not reach outside.
		if err := l.Check(it.Dst, n); err != nil {
			return whole, true, err
		}
		req.Op, req.Flags = OpPut, FlagLocalPtr
		req.DstRegion, req.DstOff, req.Size = it.Dst.Region(), it.Dst.Offset(), n
		req.Local = unsafe.Pointer(unsafe.SliceData(it.Src))
		if cut(req, c.off, limit) {
			return cursor{c.entry, c.item, c.off + req.Size}, false, nil
		}
		if c.item+1 < len(items) {
			return cursor{entry: c.entry, item: c.item + 1}, false, nil
		}
		return whole, true, nil
	case OpPut, OpGet:
		req.Local = e.ptr
		if cut(req, c.off, limit) {
			req.SigOp = SigNone
			return cursor{entry: c.entry, off: c.off + req.Size}, false, nil
		}
		return whole, true, nil
	case OpIPut, OpIGet:
		req.Local = e.ptr
		if cutStrided(req, c.off, limit) {
			return cursor{entry: c.entry, off: c.off + req.Size}, false, nil
		}
		return whole, true, nil
	}
	req.Local = e.ptr
	return whole, true, nil
}

// cut narrows a put or get to the piece at off; true: more pieces follow.
func cut(req *Request, off, limit uint64) (more bool) {
	left := req.Size - off
	req.Whole = req.Size
	req.DstOff += off
	req.SrcOff += off
	if req.Local != nil {
		req.Local = unsafe.Add(req.Local, off)
	}
	req.Size = left
	if limit == 0 || left <= limit {
		return false
	}
	req.Size = limit
	return true
}

// cutStrided narrows a strided put or get to the elements from number at on; true:
// more follow. An element is never cut.
func cutStrided(req *Request, at, limit uint64) (more bool) {
	size := req.Type.Size()
	dst, src := at*req.SigOff*size, at*req.SigVal*size
	req.DstOff += dst
	req.SrcOff += src
	if req.Local != nil {
		local := src
		if req.Op == OpIGet {
			local = dst
		}
		req.Local = unsafe.Add(req.Local, local)
	}
	left := req.Size - at
	req.Size = left
	per := max(limit/size, 1)
	if limit == 0 || left <= per {
		return false
	}
	req.Size = per
	return true
}

// drop takes what lies before the cursor out of the queue.
func (l *Lane) drop(c cursor) {
	for range c.entry {
		l.queue.Pop()
	}
	c.entry = 0
	l.cur = c
}

// complete handles n completions of the lane's oldest requests, or the failure
// of the oldest.
func (l *Lane) complete(n int, err error) {
	acked, pos := 0, uint64(0)
	for l.flight.Len() > 0 {
		f := l.flight.At(0)
		if !f.done {
			if n == 0 {
				break
			}
			n--
			if err != nil {
				l.setErr(f.pos, err)
			}
		}
		if f.last {
			acked++
			pos = f.pos
		}
		l.flight.Pop()
	}
	if acked > 0 {
		l.ack(acked, pos)
	}
}

// failAll ends everything queued or in flight with err.
func (l *Lane) failAll(err error) {
	acked, pos := 0, uint64(0)
	for l.flight.Len() > 0 {
		f := l.flight.At(0)
		if !f.done {
			l.setErr(f.pos, err)
		}
		if f.last {
			acked++
			pos = f.pos
		}
		l.flight.Pop()
	}
	for l.queue.Len() > 0 {
		e := l.queue.At(0)
		l.setErr(e.pos, err)
		acked++
		pos = e.pos
		l.queue.Pop()
	}
	l.cur = cursor{}
	if acked > 0 {
		l.ack(acked, pos)
	}
}
