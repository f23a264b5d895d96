package ibrc

import (
	"fmt"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
)

// maxChain is the most work requests of one post.
const maxChain = 64

// mark is where a pair stood before a work request of the chain was built.
type mark struct {
	built    int
	at       uint64
	numReads uint64
	amos     int
}

// Post takes requests as long as their work requests are posted: only of the
// last one it takes may some be left, which Poll posts. So the source of a put
// that a provider copies is reusable when Post has taken it.
func (t *Transport) Post(l *channel.Lane, reqs []channel.Request) (int, error) {
	q, _ := l.State().(*pair)
	if q == nil || q.lane != l || !q.ready && !q.cut {
		return 0, fmt.Errorf("ibrc: a lane that is not connected: %w", errs.ErrConfig)
	}
	if q.isPartial || q.cut {
		return 0, nil
	}
	if q.failed != nil {
		return 0, q.failed
	}
	var bad error
	n := 0
	for ; n < len(reqs); n++ {
		if bad = t.acceptable(&reqs[n]); bad != nil {
			break
		}
		p := q.reqs.Extend()
		p.req, p.last, p.wrs = reqs[n], 0, t.count(&reqs[n])
	}
	before := q.reqs.Len() - n
	if err := t.advance(q); err != nil {
		t.fail(q, 0, err)
	}
	taken := q.built - before
	if q.at > 0 {
		taken++
		t.setPartial(q)
	}
	q.reqs.Drop(n - taken)
	if taken > 0 && q.reqs.Len() > 0 && q.reqs.At(0).last <= q.done {
		t.reap(q) // had nothing to post
	}
	if taken < n {
		bad = nil // the request that it is about was not reached
	}
	if q.failed != nil && !q.cut && taken == 0 {
		return 0, q.failed
	}
	return taken, bad
}

func (t *Transport) acceptable(r *channel.Request) error {
	switch r.Op {
	case channel.OpNop, channel.OpPut, channel.OpGet, channel.OpSignal, channel.OpIPut, channel.OpIGet:
		return nil
	}
	if r.Op.IsAMO() && (t.lim.Agent && t.lim.RDAtomic > 0 || t.byMessage()) {
		return nil
	}
	return fmt.Errorf("ibrc: %v: %w", r.Op, errs.ErrUnsupported)
}

// advance builds and posts work requests of what is accepted, in order, as far as
// the send queue, the completion queue and the read window admit.
func (t *Transport) advance(q *pair) error {
	for {
		n := 0
		room := min(t.lim.SQDepth-int(q.next-1-q.done), t.lim.CQDepth-t.cq, maxChain)
		for n < room && q.built < q.reqs.Len() {
			p := q.reqs.At(q.built)
			m := mark{q.built, q.at, q.numReads, q.amos}
			if t.byMessage() && !t.messageRoom(q, &p.req) {
				break
			}
			if q.at >= p.wrs {
				// Complete without a work request of its own: with the one before.
				p.last = q.next - 1 + uint64(n)
				q.built, q.at = q.built+1, 0
				continue
			}
			wr := &t.chain[n]
			t.build(q, &p.req, q.at, wr)
			reads := t.reads(wr)
			if reads && !q.readRoom() {
				break
			}
			wr.ID = q.next + uint64(n)
			if reads {
				q.reads[q.numReads%uint64(len(q.reads))] = wr.ID
				q.numReads++
			}
			t.marks[n] = m
			n++
			if q.at++; q.at >= p.wrs {
				p.last = wr.ID
				if wr.Op == OpSend {
					p.last = unanswered
					q.amos++
				}
				q.built, q.at = q.built+1, 0
			}
		}
		if n == 0 {
			return nil
		}
		t.signal(q, n)
		took, err := q.qp.Post(t.chain[:n])
		if took < n {
			m := t.marks[took]
			q.built, q.at, q.numReads, q.amos = m.built, m.at, m.numReads, m.amos
		}
		q.next += uint64(took)
		t.cq += took
		if err != nil || took < n {
			return err
		}
	}
}

// signal asks for the completion of every N-th work request and of the last.
func (t *Transport) signal(q *pair, n int) {
	every := max(1, min(t.lim.SQDepth/4, 16))
	for i := range n {
		q.bare++
		if q.bare >= every || i == n-1 {
			t.chain[i].Flags |= WRSignalled
			q.bare = 0
		}
	}
}

// reads reports whether a work request counts as one that returns data.
func (t *Transport) reads(wr *WR) bool {
	switch wr.Op {
	case OpRead:
		return true
	case OpFetchAdd, OpCompareSwap, OpAtomic:
		return !t.lim.Agent || wr.Local != nil
	}
	return false
}

// readRoom reports whether one more may be under way.
func (q *pair) readRoom() bool {
	n := uint64(len(q.reads))
	return n > 0 && (q.numReads < n || q.reads[q.numReads%n] <= q.done)
}

// count is how many work requests a request makes.
func (t *Transport) count(r *channel.Request) uint64 {
	n := uint64(0)
	switch r.Op {
	case channel.OpNop:
		return 0
	case channel.OpPut:
		if r.Size > 0 {
			n = 1
		}
	case channel.OpGet:
		if r.Size > 0 {
			n = 1
		}
		return n
	case channel.OpIPut, channel.OpIGet:
		if dense(r) {
			return min(r.Size, 1)
		}
		return r.Size
	case channel.OpSignal:
	default:
		return 1
	}
	if r.SigOp != channel.SigNone {
		n++
	}
	return n
}

// dense reports whether a strided request is a plain one.
func dense(r *channel.Request) bool { return r.SigOff == 1 && r.SigVal == 1 }

// build makes work request i of a request. Its extents were checked when it was
// queued, with the target's sizes.
func (t *Transport) build(q *pair, r *channel.Request, i uint64, wr *WR) {
	*wr = WR{}
	switch r.Op {
	case channel.OpPut:
		if r.Size > 0 && i == 0 {
			t.transfer(q, wr, OpWrite, r.DstRegion, r.DstOff, q.localSide(r, r.SrcRegion, r.SrcOff), r.SrcRegion, r.Size)
			return
		}
		t.change(q, r, wr)
	case channel.OpSignal:
		t.change(q, r, wr)
	case channel.OpGet:
		t.transfer(q, wr, OpRead, r.SrcRegion, r.SrcOff, q.localSide(r, r.DstRegion, r.DstOff), r.DstRegion, r.Size)
	case channel.OpIPut, channel.OpIGet:
		size := r.Type.Size()
		n := size
		if dense(r) {
			n *= r.Size
		}
		dst, src := i*r.SigOff*size, i*r.SigVal*size
		if r.Op == channel.OpIPut {
			t.transfer(q, wr, OpWrite, r.DstRegion, r.DstOff+dst, unsafe.Add(q.localSide(r, r.SrcRegion, r.SrcOff), src), r.SrcRegion, n)
		} else {
			t.transfer(q, wr, OpRead, r.SrcRegion, r.SrcOff+src, unsafe.Add(q.localSide(r, r.DstRegion, r.DstOff), dst), r.DstRegion, n)
		}
	default:
		if t.byMessage() {
			t.request(r, wr)
			return
		}
		k := &q.keys[r.DstRegion]
		wr.Op, wr.AMO, wr.Elem, wr.Length = OpAtomic, r.Op, r.Type, uint32(r.Type.Size())
		wr.RKey, wr.Remote, wr.Operand, wr.Compare = k.RKey, k.Addr+r.DstOff, r.SigVal, r.SigOff
		if r.Flags&channel.FlagFetch != 0 {
			wr.Local = q.localSide(r, r.SrcRegion, r.SrcOff)
			wr.LKey = t.lkey(q, r, r.SrcRegion)
		}
	}
}

// transfer fills in a WRITE or READ of n bytes.
func (t *Transport) transfer(q *pair, wr *WR, op Opcode, region uint16, off uint64, local unsafe.Pointer, localRegion uint16, n uint64) {
	k := &q.keys[region]
	wr.Op, wr.Length, wr.RKey, wr.Remote, wr.Local = op, uint32(n), k.RKey, k.Addr+off, local
	if op == OpWrite && n <= uint64(t.lim.Inline) {
		wr.Flags = WRInline
	} else if mr := t.mrs[q.local][localRegion%regions]; mr != nil && !t.lim.AnyMemory {
		wr.LKey = mr.LKey()
	}
}

func (t *Transport) lkey(q *pair, r *channel.Request, region uint16) uint32 {
	if t.lim.AnyMemory || r.Flags&channel.FlagLocalPtr != 0 {
		return 0
	}
	return t.mrs[q.local][region%regions].LKey()
}

// localSide is the address of a request's local side.
func (q *pair) localSide(r *channel.Request, region uint16, off uint64) unsafe.Pointer {
	if r.Flags&channel.FlagLocalPtr != 0 {
		return r.Local
	}
	return q.lane.LocalAddr(region, off)
}

// change fills in the change of a signal: an add is the adapter's FETCH_AND_ADD
// behind the WRITEs, to the cell that adapters have for themselves; a set an inline
// WRITE.
func (t *Transport) change(q *pair, r *channel.Request, wr *WR) {
	region, cell := heap.RegionHeap, r.SigOff+heap.NICCell
	if r.Flags&channel.FlagSigRuntime != 0 {
		region, cell = heap.RegionRuntime, t.env.Layout.NICCell(r.SigOff)
	}
	if t.lim.Agent || r.SigOp == channel.SigSet {
		cell = r.SigOff
	}
	k := &q.keys[region]
	wr.RKey, wr.Remote, wr.Operand, wr.Length = k.RKey, k.Addr+cell, r.SigVal, 8
	wr.Op = OpFetchAdd
	if r.SigOp == channel.SigSet {
		wr.Op, wr.Flags = OpWrite, WRInline
	}
}
