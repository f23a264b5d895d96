package verbs

import (
	"fmt"
	"unsafe"

	"goshmem/internal/dl"
)

// QPCap is the size of a queue pair's queues.
type QPCap struct {
	SendWR int // work requests posted and not reaped
	RecvWR int
	Inline int // bytes that a request may carry itself
}

// QP is a reliable-connected queue pair.
type QP struct {
	pd    *PD
	head  *qpHead
	arena *arena
	post  *dl.Frame
	recv  *dl.Frame
	bad   *unsafe.Pointer
	wrs   []SendWR
	sges  []sge
	rwr   *recvWR
	rsge  *sge
	cap   QPCap
}

// CreateQP makes a queue pair in state RESET, with work requests for chains of up
// to chain. What it sends completes in send, what it receives in recv; they may be
// the same.
func (p *PD) CreateQP(send, recv *CQ, c QPCap, chain int) (*QP, error) {
	chain = max(1, chain)
	a, err := newArena(2*room[dl.Frame](1) + room[unsafe.Pointer](1) + room[SendWR](chain) + room[sge](chain) + room[recvWR](1) + room[sge](1))
	if err != nil {
		return nil, err
	}
	init := &qpInitAttr{sendCQ: send.p, recvCQ: recv.p, qpType: qptRC, cap: qpCap{
		maxSendWR: uint32(c.SendWR), maxRecvWR: uint32(c.RecvWR), maxSendSGE: 1, maxRecvSGE: 1, maxInlineData: uint32(c.Inline),
	}}
	r, errno := dl.Call(p.c.lib.createQP, uintptr(p.p), uintptr(unsafe.Pointer(init)))
	if r == 0 {
		a.free()
		return nil, &Error{Verb: "ibv_create_qp", Errno: errno, Detail: fmt.Sprintf("%s, %d send and %d receive requests, %d B inline", p.c.Name, c.SendWR, c.RecvWR, c.Inline)}
	}
	q := &QP{pd: p, head: (*qpHead)(pointer(r)), arena: a}
	q.cap = QPCap{SendWR: int(init.cap.maxSendWR), RecvWR: int(init.cap.maxRecvWR), Inline: int(init.cap.maxInlineData)}
	q.layOut(chain)
	return q, nil
}

// layOut links the work requests to one chain, each with its scatter-gather entry.
func (q *QP) layOut(chain int) {
	a := q.arena
	q.post, q.recv = &take[dl.Frame](a, 1)[0], &take[dl.Frame](a, 1)[0]
	q.bad = &take[unsafe.Pointer](a, 1)[0]
	q.wrs, q.sges = take[SendWR](a, chain), take[sge](a, chain)
	q.rwr, q.rsge = &take[recvWR](a, 1)[0], &take[sge](a, 1)[0]
	for i := range q.wrs {
		q.wrs[i].sgList = unsafe.Pointer(&q.sges[i])
		if i > 0 {
			q.wrs[i-1].next = unsafe.Pointer(&q.wrs[i])
		}
	}
	q.rwr.sgList, q.rwr.numSGE = unsafe.Pointer(q.rsge), 1
	ops := &q.pd.c.head.ops
	qp, bad := uintptr(unsafe.Pointer(q.head)), uintptr(unsafe.Pointer(q.bad))
	*q.post = dl.Frame{Fn: ops[opPostSend], Args: [4]uintptr{qp, uintptr(unsafe.Pointer(&q.wrs[0])), bad}}
	*q.recv = dl.Frame{Fn: ops[opPostRecv], Args: [4]uintptr{qp, uintptr(unsafe.Pointer(q.rwr)), bad}}
}

// Num is the queue pair's number.
func (q *QP) Num() uint32 { return q.head.qpNum }

// Cap is what the device granted, at least what was asked for.
func (q *QP) Cap() QPCap { return q.cap }

// Chain is the most requests of one Post.
func (q *QP) Chain() int { return len(q.wrs) }

// WR is request i of the next Post. Everything of it is as it was last set.
func (q *QP) WR(i int) *SendWR { return &q.wrs[i] }

// SetLocal sets the local side of request i; length 0: it has none.
func (q *QP) SetLocal(i int, addr unsafe.Pointer, length, lkey uint32) {
	q.sges[i] = sge{addr: uint64(uintptr(addr)), length: length, lkey: lkey}
	q.wrs[i].numSGE = int32(min(length, 1))
}

// SetRKey makes w a WRITE or READ at addr of a peer.
func (w *SendWR) SetRKey(addr uint64, rkey uint32) {
	w.RemoteAddr = addr
	w.arg[0] = uint64(rkey)
}

// SetAtomic makes w an atomic at addr of a peer: add, or compare and swap.
func (w *SendWR) SetAtomic(addr uint64, rkey uint32, compareAdd, swap uint64) {
	w.RemoteAddr = addr
	w.arg = [3]uint64{compareAdd, swap, uint64(rkey)}
}

// Post posts the first n requests by one ibv_post_send. The error is about request
// posted, the first not taken.
func (q *QP) Post(n int) (posted int, err error) {
	last := &q.wrs[n-1]
	next := last.next
	last.next = nil
	r := q.post.Call()
	last.next = next
	if int32(r) == 0 {
		return n, nil
	}
	posted = int((uintptr(*q.bad) - uintptr(unsafe.Pointer(&q.wrs[0]))) / unsafe.Sizeof(q.wrs[0]))
	if posted < 0 || posted >= n {
		posted = 0
	}
	return posted, fail("ibv_post_send", r, fmt.Sprintf("request %d of %d", posted+1, n))
}

// PostRecv posts a receive of up to length bytes.
func (q *QP) PostRecv(id uint64, addr unsafe.Pointer, length, lkey uint32) error {
	q.rwr.id = id
	*q.rsge = sge{addr: uint64(uintptr(addr)), length: length, lkey: lkey}
	return fail("ibv_post_recv", q.recv.Call(), "")
}

// Close destroys the queue pair.
func (q *QP) Close() error {
	r, _ := dl.Call(q.pd.c.lib.destroyQP, uintptr(unsafe.Pointer(q.head)))
	if err := fail("ibv_destroy_qp", r, ""); err != nil {
		return err
	}
	q.arena.free()
	return nil
}
