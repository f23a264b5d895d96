// Package mock has providers for tests of ibrc: one that does nothing, and one
// that carries work requests out in memory when they are polled.
package mock

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/ibrc"
	"goshmem/internal/errs"
	"goshmem/internal/memcopy"
)

// Provider completes work requests in memory. Its queue pairs reach each other
// within one process.
type Provider struct {
	L       ibrc.Limits
	Nothing bool // complete without doing anything
	// Refuse, if set, fails a work request when it is carried out.
	Refuse func(wr *ibrc.WR) error
	// NoQP and NoConnect, if set, fail every queue pair, when it is made or when it
	// connects.
	NoQP, NoConnect error
	// Chains and WRs count what was posted; Deepest is the most work requests that
	// a queue pair held at a time, Signalled the most completions owed.
	Chains, WRs, Deepest, Signalled int

	env  ibrc.Env
	hub  *Hub
	qps  []*qp
	mrs  []*mr
	owed int
}

// QPs is how many queue pairs were made.
func (p *Provider) QPs() int { return len(p.qps) }

// Hub is where the providers of a test find each other's queue pairs.
type Hub struct {
	mu  sync.Mutex
	qps []*qp
}

// DefaultLimits are those of a small device without an agent.
func DefaultLimits() ibrc.Limits {
	return ibrc.Limits{MaxMessage: 1 << 20, Inline: 64, SQDepth: 64, CQDepth: 256, RDAtomic: 16, Send: 64, Recv: 8}
}

// New makes a factory of providers that meet in the hub; set gives each its
// settings.
func New(h *Hub, set func(*Provider)) ibrc.NewProvider {
	return func(_ context.Context, env ibrc.Env) (ibrc.Provider, error) {
		p := &Provider{L: DefaultLimits(), env: env, hub: h}
		if set != nil {
			set(p)
		}
		return p, nil
	}
}

// Describe names it.
func (p *Provider) Describe() channel.Description {
	return channel.Description{Name: "ibrc", Detail: "mock, in memory"}
}

// Limits are as set.
func (p *Provider) Limits() ibrc.Limits { return p.L }

type mr struct {
	p   *Provider
	i   int
	mem heap.Memory
}

func (m *mr) LKey() uint32 { return uint32(m.i) + 100 }
func (m *mr) Key() ibrc.RemoteKey {
	return ibrc.RemoteKey{Addr: m.mem.Addr, Size: m.mem.Size, RKey: uint32(m.i) + 1000}
}
func (m *mr) Deregister() error { m.mem = heap.Memory{}; return nil }

// RegisterMemory gives keys in order.
func (p *Provider) RegisterMemory(_ int, mem heap.Memory) (ibrc.MR, error) {
	m := &mr{p: p, i: len(p.mrs), mem: mem}
	p.mrs = append(p.mrs, m)
	return m, nil
}

type qp struct {
	p     *Provider
	cfg   ibrc.QPConfig
	n     uint32
	state ibrc.State
	peer  *qp
	sq    []ibrc.WR
	msgs  [][]byte
}

// NewQP makes a queue pair.
func (p *Provider) NewQP(cfg ibrc.QPConfig) (ibrc.QP, error) {
	if cfg.Depth < 1 || cfg.Depth > p.L.SQDepth {
		return nil, fmt.Errorf("mock: queue pair of depth %d: %w", cfg.Depth, errs.ErrConfig)
	}
	if p.NoQP != nil {
		return nil, p.NoQP
	}
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	q := &qp{p: p, cfg: cfg, n: uint32(len(p.hub.qps)), state: ibrc.StateInit}
	p.hub.qps = append(p.hub.qps, q)
	p.qps = append(p.qps, q)
	return q, nil
}

func (q *qp) Handle() []byte    { return binary.LittleEndian.AppendUint32(nil, q.n) }
func (q *qp) State() ibrc.State { return q.state }
func (q *qp) Destroy()          { q.state, q.sq, q.msgs = ibrc.StateError, nil, nil }

func (q *qp) Connect(h []byte) (bool, error) {
	if q.p.NoConnect != nil {
		return false, q.p.NoConnect
	}
	q.p.hub.mu.Lock()
	defer q.p.hub.mu.Unlock()
	if len(h) != 4 || binary.LittleEndian.Uint32(h) >= uint32(len(q.p.hub.qps)) {
		return false, fmt.Errorf("mock: handle %x: %w", h, errs.ErrConfig)
	}
	q.peer = q.p.hub.qps[binary.LittleEndian.Uint32(h)]
	q.state = ibrc.StateRTS
	return true, nil
}

func (q *qp) Post(wrs []ibrc.WR) (int, error) {
	p := q.p
	p.Chains++
	p.WRs += len(wrs)
	if p.Nothing && p.L.Batched {
		// The caller's accounting is the test; nothing is kept but the last.
		q.sq = append(q.sq[:0], wrs[len(wrs)-1])
		return len(wrs), nil
	}
	if len(q.sq)+len(wrs) > q.cfg.Depth {
		return 0, fmt.Errorf("mock: %d work requests on %d of %d: %w", len(wrs), len(q.sq), q.cfg.Depth, errs.ErrCapacity)
	}
	for _, w := range wrs {
		if (w.Flags&ibrc.WRInline != 0 || w.Op == ibrc.OpSend) && w.Local != nil {
			b := make([]byte, w.Length)
			copy(b, unsafe.Slice((*byte)(w.Local), w.Length))
			w.Local = unsafe.Pointer(unsafe.SliceData(b))
		}
		if w.Flags&ibrc.WRSignalled != 0 {
			p.owed++
		}
		q.sq = append(q.sq, w)
	}
	p.Deepest, p.Signalled = max(p.Deepest, len(q.sq)), max(p.Signalled, p.owed)
	return len(wrs), nil
}

// Poll carries out one work request of each queue pair and delivers messages.
func (p *Provider) Poll(wcs []ibrc.WC) int {
	n := 0
	for _, q := range p.qps {
		if n+1 >= len(wcs) {
			break
		}
		if len(q.msgs) > 0 {
			wcs[n] = ibrc.WC{Tag: q.cfg.Tag, Msg: q.msgs[0]}
			q.msgs = q.msgs[1:]
			n++
		}
		if len(q.sq) == 0 || q.state != ibrc.StateRTS {
			continue
		}
		w := q.sq[0]
		q.sq = append(q.sq[:0], q.sq[1:]...)
		var err error
		if !p.Nothing {
			own := w
			err = q.carry(&own)
		}
		if err == nil && w.Flags&ibrc.WRSignalled == 0 && !p.Nothing {
			continue
		}
		if err != nil {
			q.Destroy()
		}
		if w.Flags&ibrc.WRSignalled != 0 {
			p.owed--
		}
		wcs[n] = ibrc.WC{Tag: q.cfg.Tag, ID: w.ID, Err: err}
		n++
	}
	return n
}

func (q *qp) carry(w *ibrc.WR) error {
	if q.p.Refuse != nil {
		if err := q.p.Refuse(w); err != nil {
			return err
		}
	}
	local := w.Local
	if w.Flags&ibrc.WRInline != 0 && local == nil {
		local = unsafe.Pointer(&w.Operand)
	}
	if w.Op == ibrc.OpSend {
		b := append([]byte(nil), unsafe.Slice((*byte)(local), w.Length)...)
		q.peer.msgs = append(q.peer.msgs, b)
		return nil
	}
	if !q.p.L.AnyMemory && local != nil && w.Flags&ibrc.WRInline == 0 {
		if i := int(w.LKey) - 100; i < 0 || i >= len(q.p.mrs) || !inside(q.p.mrs[i].mem, uint64(uintptr(local)), uint64(w.Length)) {
			return &ibrc.StatusError{Op: w.Op, Status: ibrc.StatusLocProt}
		}
	}
	i := int(w.RKey) - 1000
	if i < 0 || i >= len(q.peer.p.mrs) || !inside(q.peer.p.mrs[i].mem, w.Remote, uint64(w.Length)) {
		return &ibrc.StatusError{Op: w.Op, Status: ibrc.StatusRemAccess}
	}
	m := q.peer.p.mrs[i].mem
	remote := m.At(w.Remote - m.Addr)
	switch w.Op {
	case ibrc.OpWrite:
		if w.Length == 8 && uintptr(remote)%8 == 0 { // a signal that is set, perhaps
			atomic.StoreUint64((*uint64)(remote), *(*uint64)(local))
			return nil
		}
		memcopy.Copy(remote, local, uintptr(w.Length))
	case ibrc.OpRead:
		memcopy.Copy(local, remote, uintptr(w.Length))
	default:
		op, el := w.AMO, w.Elem
		switch w.Op {
		case ibrc.OpFetchAdd:
			op, el = channel.OpAMOAdd, channel.Elem64
		case ibrc.OpCompareSwap:
			op, el = channel.OpAMOCompareSwap, channel.Elem64
		}
		old := channel.ApplyAMO(op, el, remote, w.Operand, w.Compare)
		if local != nil {
			channel.StoreElem(local, el.Size(), old)
		}
	}
	return nil
}

func inside(m heap.Memory, addr, n uint64) bool {
	return addr >= m.Addr && addr-m.Addr <= m.Size && n <= m.Size-(addr-m.Addr)
}

// Close has nothing to end.
func (p *Provider) Close(context.Context) error { return nil }
