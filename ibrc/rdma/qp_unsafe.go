package rdma

import (
	"fmt"
	"math/rand/v2"
	"unsafe"

	"golang.org/x/sys/unix"

	"goshmem/ibrc"
	"goshmem/internal/deque"
	"goshmem/internal/errs"
	"goshmem/internal/verbs"
)

// maxChain is the most work requests of one ibv_post_send.
const maxChain = 64

// A completion carries tag and low bits of the ID.
const (
	idBits = 40
	idMask = 1<<idBits - 1
	maxTag = 1<<(64-idBits) - 1
)

// qp is a queue pair of the provider.
type qp struct {
	p     *Provider
	cfg   ibrc.QPConfig
	q     *verbs.QP
	mem   []byte // receive buffers, then the scratch word that old values go to
	mr    *verbs.MR
	me    handle
	peer  handle
	state ibrc.State

	last   uint64        // ID of the latest request posted
	ops    []ibrc.Opcode // by ID modulo their number
	staged deque.Deque[staged]
	values [maxChain]uint64 // operands of inline requests, read while they are posted
	failed bool
}

// staged is a request whose local side is a slot meanwhile.
type staged struct {
	slot slot
	id   uint64
	read unsafe.Pointer // where a READ's or atomic's bytes go; nil: nowhere
	n    uint32
}

// scratch is where old values that nobody wants go.
const scratch = recvDepth * sendMax

// NewQP makes a queue pair in INIT, its receives posted.
func (p *Provider) NewQP(cfg ibrc.QPConfig) (ibrc.QP, error) {
	if cfg.Tag > maxTag {
		return nil, fmt.Errorf("rdma: queue pair %d: %w", cfg.Tag, errs.ErrCapacity)
	}
	q := &qp{p: p, cfg: cfg, ops: make([]ibrc.Opcode, p.lim.SQDepth)}
	var err error
	if q.mem, q.mr, err = registered(p.pd, unix.Getpagesize()); err != nil {
		return nil, err
	}
	if q.q, err = p.pd.CreateQP(p.cq, p.rcq, p.cap(int(p.lim.Inline)), min(p.lim.SQDepth, maxChain)); err != nil {
		q.release()
		return nil, err
	}
	q.me = handle{
		qpn: q.q.Num(), psn: rand.Uint32() & 0xffffff, gid: p.e.gid.GID, lid: p.e.attr.LID, link: p.e.attr.Link,
		mtu: p.mtu, destRd: uint8(p.lim.RDAtomic), gidType: uint8(p.e.gid.Type),
	}
	if err = q.q.ToInit(p.e.port, p.pkey, access); err == nil {
		for i := 0; i < recvDepth && err == nil; i++ {
			err = q.receive(i)
		}
	}
	if err != nil {
		q.Destroy()
		return nil, err
	}
	q.state = ibrc.StateInit
	for len(p.qps) <= int(cfg.Tag) {
		p.qps = append(p.qps, nil)
	}
	p.qps[cfg.Tag] = q
	return q, nil
}

// receive posts buffer i for a message.
func (q *qp) receive(i int) error {
	return q.q.PostRecv(uint64(q.cfg.Tag)<<idBits|uint64(i), unsafe.Pointer(&q.mem[i*sendMax]), sendMax, q.mr.LKey())
}

// Handle is what the peer needs.
func (q *qp) Handle() []byte { return q.me.encode() }

// State is what the provider last did or saw.
func (q *qp) State() ibrc.State { return q.state }

// Connect goes to RTR and RTS at once. An error names both ends.
func (q *qp) Connect(b []byte) (bool, error) {
	if q.state == ibrc.StateRTS {
		return true, nil
	}
	h, err := decodeHandle(b)
	if err != nil {
		return false, err
	}
	q.peer = h
	if err := q.connect(); err != nil {
		return false, fmt.Errorf("rdma: connect %s port %d (%v) to pe %d (%v): %w", q.p.c.Name, q.p.e.port, q.me, q.cfg.Remote, h, err)
	}
	q.state = ibrc.StateRTS
	return true, nil
}

func (q *qp) connect() error {
	p, h := q.p, q.peer
	ethernet := p.e.attr.Link == verbs.LinkEthernet
	if (h.link == verbs.LinkEthernet) != ethernet || ethernet && h.gidType != q.me.gidType {
		return fmt.Errorf("link layers or gid types differ: %w", errs.ErrMismatch)
	}
	err := q.q.ToRTR(verbs.Path{
		Port: p.e.port, MTU: min(p.mtu, h.mtu), DestQPN: h.qpn, DestGID: h.gid, DestLID: h.lid, SGID: p.e.gid.Index,
		Global: ethernet || h.gid != (verbs.GID{}) && !h.gid.LinkLocal(),
		SL:     p.cfg.SL, TC: p.cfg.TC, RQPSN: h.psn, DestRd: p.lim.RDAtomic, RNRTimer: 12,
	})
	if err != nil {
		return err
	}
	q.state = ibrc.StateRTR
	return q.q.ToRTS(verbs.Retry{
		SQPSN: q.me.psn, Timeout: p.cfg.Timeout, RetryCnt: p.cfg.Retries, RNRRetry: p.cfg.RNR,
		RdAtomic: min(p.lim.RDAtomic, int(h.destRd)),
	})
}

// Post posts a chain by one ibv_post_send, as much of it as there are slots for.
func (q *qp) Post(wrs []ibrc.WR) (int, error) {
	if q.state != ibrc.StateRTS {
		return 0, fmt.Errorf("rdma: post in state %v: %w", q.state, errs.ErrConfig)
	}
	n := min(len(wrs), q.q.Chain())
	var err error
	for i := range n {
		var ok bool
		if ok, err = q.build(i, &wrs[i]); !ok || err != nil {
			n = i
			break
		}
	}
	if n == 0 {
		return 0, err
	}
	q.q.WR(n - 1).Flags |= verbs.SendSignaled // a chain that is cut here goes on by its completion
	q.p.stats.Posts++
	q.p.stats.Requests += uint64(n)
	took, perr := q.q.Post(n)
	if took < n {
		q.unstage(wrs[took].ID)
		err = perr
	}
	if took > 0 {
		q.last = wrs[took-1].ID
	}
	return took, err
}

// build fills in request i of the chain. ok is false if it must wait for a slot.
func (q *qp) build(i int, wr *ibrc.WR) (ok bool, err error) {
	w := q.q.WR(i)
	w.ID = uint64(q.cfg.Tag)<<idBits | wr.ID&idMask
	w.Flags = 0
	if wr.Flags&ibrc.WRSignalled != 0 {
		w.Flags = verbs.SendSignaled
	}
	q.ops[wr.ID%uint64(len(q.ops))] = wr.Op
	local, n, read := wr.Local, wr.Length, false
	switch wr.Op {
	case ibrc.OpWrite, ibrc.OpRead:
		w.Opcode, read = verbs.WRRDMAWrite, wr.Op == ibrc.OpRead
		if read {
			w.Opcode = verbs.WRRDMARead
		}
		w.SetRKey(wr.Remote, wr.RKey)
	case ibrc.OpFetchAdd, ibrc.OpCompareSwap:
		w.Opcode, read, n = verbs.WRFetchAdd, true, 8
		if wr.Op == ibrc.OpCompareSwap {
			w.Opcode = verbs.WRCompareSwap
			w.SetAtomic(wr.Remote, wr.RKey, wr.Compare, wr.Operand)
		} else {
			w.SetAtomic(wr.Remote, wr.RKey, wr.Operand, 0)
		}
		if local == nil {
			q.q.SetLocal(i, unsafe.Pointer(&q.mem[scratch]), 8, q.mr.LKey())
			return true, nil
		}
	case ibrc.OpSend:
		w.Opcode = verbs.WRSend
	default:
		return false, fmt.Errorf("rdma: %v: %w", wr.Op, errs.ErrUnsupported)
	}
	switch {
	case n == 0:
		q.q.SetLocal(i, nil, 0, 0)
		return true, nil
	case !read && (wr.Flags&ibrc.WRInline != 0 || wr.Op == ibrc.OpSend && n <= q.p.lim.Inline):
		w.Flags |= verbs.SendInline
		if local == nil {
			q.values[i] = wr.Operand
			local = unsafe.Pointer(&q.values[i])
		}
		q.q.SetLocal(i, local, n, 0)
		return true, nil
	}
	if key, known := q.p.lkey(local, n); known {
		q.q.SetLocal(i, local, n, key)
		return true, nil
	}
	return q.stage(i, wr.ID, local, n, read)
}

// stage gives request i a slot for its local side.
func (q *qp) stage(i int, id uint64, local unsafe.Pointer, n uint32, read bool) (bool, error) {
	s, ok, err := q.p.take(n)
	if !ok || err != nil {
		return false, err
	}
	q.p.stats.Staged++
	st := staged{slot: s, id: id, n: n}
	if read {
		st.read = local
	} else {
		copy(unsafe.Slice((*byte)(s.at()), n), unsafe.Slice((*byte)(local), n))
	}
	q.staged.Push(st)
	q.q.SetLocal(i, s.at(), n, s.class.mr.LKey())
	return true, nil
}

// unstage takes back the slots of requests from id on, which were not posted.
func (q *qp) unstage(id uint64) {
	for n := q.staged.Len(); n > 0 && q.staged.At(n-1).id >= id; n-- {
		q.staged.At(n - 1).slot.release()
		q.staged.Drop(1)
	}
}

// settle brings what was read to where it belongs and frees the slots, of
// requests up to id.
func (q *qp) settle(id uint64) {
	for q.staged.Len() > 0 && q.staged.At(0).id <= id {
		st := *q.staged.At(0)
		q.staged.Pop()
		if st.read != nil {
			copy(unsafe.Slice((*byte)(st.read), st.n), unsafe.Slice((*byte)(st.slot.at()), st.n))
		}
		st.slot.release()
	}
}

// Destroy ends the queue pair: the device touches no memory for it afterwards.
func (q *qp) Destroy() {
	if q.state == ibrc.StateError && q.q == nil { // done before
		return
	}
	q.state = ibrc.StateError
	if int(q.cfg.Tag) < len(q.p.qps) && q.p.qps[q.cfg.Tag] == q {
		q.p.qps[q.cfg.Tag] = nil
	}
	if q.q != nil {
		if err := q.q.Close(); err != nil {
			q.p.env.Log.Warn("rdma: queue pair not destroyed", "err", err)
		}
		q.q = nil
	}
	for q.staged.Len() > 0 {
		q.staged.At(0).slot.release()
		q.staged.Pop()
	}
	q.release()
}

func (q *qp) release() {
	if q.mr == nil {
		return
	}
	if err := q.mr.Close(); err != nil {
		q.p.env.Log.Warn("rdma: memory not deregistered", "err", err)
		return // the device may still use it
	}
	_ = unix.Munmap(q.mem)
	q.mr, q.mem = nil, nil
}
