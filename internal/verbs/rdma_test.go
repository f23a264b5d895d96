//go:build rdma

package verbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

// These tests need an RDMA device, and fail without one: lanes/rxe gives them one.

const (
	remote  = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic
	memSize = 1 << 16
	far     = memSize / 2 // what is written to, read from, added to
)

type rig struct {
	t    *testing.T
	c    *Context
	pd   *PD
	cq   *CQ
	port PortAttr
	gid  GIDEntry
	mem  []byte
	mr   *MR
}

func newRig(t *testing.T) *rig {
	t.Helper()
	lib, err := Load()
	ok(t, err)
	r := &rig{t: t}
	r.c, err = lib.Open("")
	ok(t, err)
	t.Cleanup(func() { ok(t, r.c.Close()) })
	r.port, err = r.c.QueryPort(1)
	ok(t, err)
	gids, err := r.c.GIDs(1)
	ok(t, err)
	for _, g := range gids {
		if g.Type == GIDRoCEv2 && !g.GID.LinkLocal() {
			r.gid = g
		}
	}
	r.pd, err = r.c.AllocPD()
	ok(t, err)
	t.Cleanup(func() { ok(t, r.pd.Close()) })
	r.cq, err = r.c.CreateCQ(256, nil)
	ok(t, err)
	t.Cleanup(func() { ok(t, r.cq.Close()) })
	r.mem, err = unix.Mmap(-1, 0, memSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	ok(t, err)
	r.mr, err = r.pd.RegMR(r.at(0), memSize, uint64(uintptr(r.at(0))), remote)
	ok(t, err)
	t.Cleanup(func() { ok(t, r.mr.Close()) })
	return r
}

func (r *rig) at(off int) unsafe.Pointer { return unsafe.Pointer(&r.mem[off]) }
func (r *rig) addr(off int) uint64       { return uint64(uintptr(r.at(off))) }
func (r *rig) word(off int) *uint64      { return (*uint64)(r.at(off)) }

// qp makes a queue pair in INIT.
func (r *rig) qp(access Access) *QP {
	r.t.Helper()
	q, err := r.pd.CreateQP(r.cq, r.cq, QPCap{SendWR: 64, RecvWR: 4, Inline: 64}, 16)
	ok(r.t, err)
	r.t.Cleanup(func() { ok(r.t, q.Close()) })
	ok(r.t, q.ToInit(1, 0, access))
	return q
}

func (r *rig) path(to *QP) Path {
	return Path{Port: 1, MTU: r.port.ActiveMTU, DestQPN: to.Num(), DestGID: r.gid.GID, SGID: r.gid.Index, Global: true, DestRd: 16, RNRTimer: 12}
}

var retry = Retry{Timeout: 14, RetryCnt: 3, RNRRetry: 7, RdAtomic: 16}

// loop is a queue pair connected to itself.
func (r *rig) loop(access Access) *QP {
	r.t.Helper()
	q := r.qp(access)
	ok(r.t, q.ToRTR(r.path(q)))
	ok(r.t, q.ToRTS(retry))
	return q
}

// wait reaps n completions.
func (r *rig) wait(n int) []WC {
	r.t.Helper()
	var all []WC
	for until := time.Now().Add(20 * time.Second); len(all) < n; {
		wcs, err := r.cq.Poll(64)
		ok(r.t, err)
		all = append(all, wcs...)
		if time.Now().After(until) {
			r.t.Fatalf("%d of %d completions", len(all), n)
		}
	}
	return all
}

func (r *rig) success(wcs []WC, ids ...uint64) {
	r.t.Helper()
	for i, wc := range wcs {
		if wc.Status != WCSuccess || wc.ID != ids[i] {
			r.t.Errorf("completion %d: id %d, %s", i, wc.ID, r.c.lib.StatusText(wc.Status))
		}
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDevice(t *testing.T) {
	r := newRig(t)
	d, err := r.c.QueryDevice()
	ok(t, err)
	t.Logf("%s: %+v, port %+v", r.c.Name, d, r.port)
	if d.Ports < 1 || d.MaxQPWR < 64 || d.MaxCQE < 256 || d.MaxRdAtom < 16 || d.Atomic != AtomicHCA {
		t.Errorf("%+v", d)
	}
	if r.port.State != PortActive || r.port.Link != LinkEthernet || r.port.MaxMessage < 1<<20 || r.port.ActiveMTU.Bytes() != 4096 {
		t.Errorf("%+v", r.port)
	}
	if !r.gid.GID.Addr().Is4() || r.gid.Iface == 0 {
		t.Errorf("%+v", r.gid)
	}
	if key, err := r.c.Pkey(1, 0); err != nil || key != 0xffff {
		t.Errorf("pkey %#x, %v", key, err)
	}
	if _, err := r.c.QueryPort(7); err == nil {
		t.Error("port 7 exists")
	}
	if _, err := r.c.lib.Open("nosuch0"); !errors.Is(err, errs.ErrUnsupported) || !strings.Contains(err.Error(), r.c.Name) {
		t.Error(err)
	}
}

// A WRITE and the FETCH_AND_ADD behind it, in one post: the data is there when
// the word has moved; one completion, for the last.
func TestWriteThenAdd(t *testing.T) {
	r := newRig(t)
	q := r.loop(remote)
	for i := range 100 {
		for k := range 4096 {
			r.mem[k] = byte(i + k*7)
		}
		w := q.WR(0)
		w.ID, w.Opcode, w.Flags = 1, WRRDMAWrite, 0
		w.SetRKey(r.addr(far), r.mr.RKey())
		q.SetLocal(0, r.at(0), 4096, r.mr.LKey())
		w = q.WR(1)
		w.ID, w.Opcode, w.Flags = uint64(i), WRFetchAdd, SendSignaled
		w.SetAtomic(r.addr(far+8192), r.mr.RKey(), 3, 0)
		q.SetLocal(1, r.at(8192), 8, r.mr.LKey())
		if n, err := q.Post(2); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		for until := time.Now().Add(10 * time.Second); atomic.LoadUint64(r.word(far+8192)) != uint64(3*i+3); {
			if time.Now().After(until) {
				t.Fatal("the word did not move")
			}
		}
		if !bytes.Equal(r.mem[:4096], r.mem[far:far+4096]) {
			t.Fatal("the signal came before its data")
		}
		r.success(r.wait(1), uint64(i))
		if old := *r.word(8192); old != uint64(3*i) {
			t.Fatalf("fetched %d, want %d", old, 3*i)
		}
	}
	if wcs, err := r.cq.Poll(8); err != nil || len(wcs) != 0 {
		t.Error("unsignalled requests completed", wcs, err)
	}
}

func TestReadCompareSwapInline(t *testing.T) {
	r := newRig(t)
	q := r.loop(remote)
	copy(r.mem[far:], "what is read")
	*r.word(far + 64) = 5
	one := func(op Opcode, flags SendFlags, set func(w *SendWR)) {
		t.Helper()
		w := q.WR(0)
		w.ID, w.Opcode, w.Flags = 9, op, SendSignaled|flags
		set(w)
		if n, err := q.Post(1); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		r.success(r.wait(1), 9)
	}
	one(WRRDMARead, 0, func(w *SendWR) {
		w.SetRKey(r.addr(far), r.mr.RKey())
		q.SetLocal(0, r.at(0), 12, r.mr.LKey())
	})
	if string(r.mem[:12]) != "what is read" {
		t.Errorf("read %q", r.mem[:12])
	}
	for _, c := range []struct{ compare, swap, old, then uint64 }{{5, 6, 5, 6}, {5, 7, 6, 6}} {
		one(WRCompareSwap, 0, func(w *SendWR) {
			w.SetAtomic(r.addr(far+64), r.mr.RKey(), c.compare, c.swap)
			q.SetLocal(0, r.at(64), 8, r.mr.LKey())
		})
		if *r.word(64) != c.old || *r.word(far + 64) != c.then {
			t.Errorf("compare-swap %+v: fetched %d, now %d", c, *r.word(64), *r.word(far + 64))
		}
	}
	// An inline request takes its bytes, of any memory, when it is posted.
	text := []byte("inline bytes")
	w := q.WR(0)
	w.ID, w.Opcode, w.Flags = 9, WRRDMAWrite, SendSignaled|SendInline
	w.SetRKey(r.addr(far+128), r.mr.RKey())
	q.SetLocal(0, unsafe.Pointer(&text[0]), uint32(len(text)), 0)
	if n, err := q.Post(1); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	clear(text)
	r.success(r.wait(1), 9)
	if string(r.mem[far+128:far+140]) != "inline bytes" {
		t.Errorf("%q", r.mem[far+128:far+140])
	}
	one(WRRDMAWrite, SendInline, func(w *SendWR) { // of nothing
		w.SetRKey(r.addr(far), r.mr.RKey())
		q.SetLocal(0, nil, 0, 0)
	})
}

func TestSendReceive(t *testing.T) {
	r := newRig(t)
	q := r.loop(remote)
	ok(t, q.PostRecv(77, r.at(far), 64, r.mr.LKey()))
	copy(r.mem, "a message")
	w := q.WR(0)
	w.ID, w.Opcode, w.Flags = 3, WRSend, SendSignaled
	q.SetLocal(0, r.at(0), 9, r.mr.LKey())
	if n, err := q.Post(1); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for _, wc := range r.wait(2) {
		if wc.Status != WCSuccess || wc.QPNum != q.Num() {
			t.Errorf("%+v", wc)
		}
		if recv := wc.Opcode&WCRecv != 0; recv && (wc.ID != 77 || wc.ByteLen != 9) || !recv && wc.ID != 3 {
			t.Errorf("%+v", wc)
		}
	}
	if string(r.mem[far:far+9]) != "a message" {
		t.Errorf("%q", r.mem[far:far+9])
	}
}

// A request that the target refuses: its status, then flushes, and the queue pair
// is in error.
func TestRefused(t *testing.T) {
	write := func(r *rig, w *SendWR) { w.SetRKey(r.addr(far), r.mr.RKey()) }
	for name, c := range map[string]struct {
		access Access
		op     Opcode
		set    func(r *rig, w *SendWR)
		status string
	}{
		"wrong rkey":      {remote, WRRDMAWrite, func(r *rig, w *SendWR) { w.SetRKey(r.addr(far), r.mr.RKey()^0x5500) }, "remote access error"},
		"past the end":    {remote, WRRDMAWrite, func(r *rig, w *SendWR) { w.SetRKey(r.addr(0)+memSize-4, r.mr.RKey()) }, "remote access error"},
		"no right":        {remote &^ AccessRemoteWrite, WRRDMAWrite, write, "remote invalid request error"},
		"no atomic right": {remote &^ AccessRemoteAtomic, WRFetchAdd, func(r *rig, w *SendWR) { w.SetAtomic(r.addr(far), r.mr.RKey(), 1, 0) }, "remote invalid request error"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			q := r.loop(c.access)
			for i := range 2 {
				w := q.WR(i)
				w.ID, w.Opcode, w.Flags = uint64(i), c.op, SendSignaled
				c.set(r, w)
				q.SetLocal(i, r.at(0), 8, r.mr.LKey())
			}
			if n, err := q.Post(2); n != 2 || err != nil {
				t.Fatal(n, err)
			}
			wcs := r.wait(2)
			if got := r.c.lib.StatusText(wcs[0].Status); wcs[0].ID != 0 || got != c.status {
				t.Errorf("%s, want %s", got, c.status)
			}
			if wcs[1].Status != WCFlushErr {
				t.Error(r.c.lib.StatusText(wcs[1].Status))
			}
			if s, err := q.State(); s != QPSErr || err != nil {
				t.Error(s, err)
			}
		})
	}
}

// A misaligned atomic is refused by the post, and the request before it is taken.
func TestPartialPost(t *testing.T) {
	r := newRig(t)
	q := r.loop(remote)
	for i := range 3 {
		w := q.WR(i)
		w.ID, w.Opcode, w.Flags = uint64(i), WRRDMAWrite, SendSignaled
		w.SetRKey(r.addr(far), r.mr.RKey())
		q.SetLocal(i, r.at(0), 8, r.mr.LKey())
	}
	w := q.WR(1)
	w.Opcode = WRFetchAdd
	w.SetAtomic(r.addr(far+4), r.mr.RKey(), 1, 0)
	q.SetLocal(1, r.at(8), 8, r.mr.LKey())
	n, err := q.Post(3)
	if n != 1 || !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "ibv_post_send (request 2 of 3)") {
		t.Fatal(n, err)
	}
	r.success(r.wait(1), 0)
}

// What cannot be says which verb failed, why, and both ends' values.
func TestWrongValues(t *testing.T) {
	r := newRig(t)
	q := r.qp(remote)
	p := r.path(q)
	p.SGID = 200
	err := q.ToRTR(p)
	var verb *Error
	if !errors.As(err, &verb) || verb.Verb != "ibv_modify_qp" || verb.Errno == 0 {
		t.Fatal(err)
	}
	t.Log(err)
	for _, want := range []string{"to RTR", "gid index 200", "gid " + r.gid.GID.String()} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no %q", err, want)
		}
	}
	if err := q.ToRTS(retry); !errors.Is(err, errs.ErrConfig) { // not from INIT
		t.Error(err)
	}
	if _, err := r.pd.CreateQP(r.cq, r.cq, QPCap{SendWR: 1 << 24}, 1); err == nil {
		t.Error("a send queue of 2^24")
	}
	if _, err := r.c.CreateCQ(1<<30, nil); err == nil {
		t.Error("a completion queue of 2^30")
	}
	if _, err := r.pd.RegMR(nil, 4096, 0, remote); err == nil {
		t.Error("registered nothing")
	}
	if _, err := r.pd.RegDmabufMR(-1, 0, 4096, 0, remote); err == nil {
		t.Error("registered no dma-buf")
	}
	// Relaxed ordering is a wish that needs iova2; other names for the memory work.
	mr, err := r.pd.RegMR(r.at(0), 4096, 0x10000, remote|AccessRelaxedOrdering)
	ok(t, err)
	ok(t, mr.Close())
}

// A peer that is not there ends by the retries; an event may be waiting or not,
// asking never blocks.
func TestNoAnswer(t *testing.T) {
	r := newRig(t)
	ok(t, r.c.SetNonblock())
	q := r.qp(remote)
	p := r.path(q)
	p.DestQPN = q.Num() ^ 0x4000
	ok(t, q.ToRTR(p))
	ok(t, q.ToRTS(Retry{Timeout: 10, RetryCnt: 2, RNRRetry: 7, RdAtomic: 1}))
	w := q.WR(0)
	w.Opcode, w.Flags = WRRDMAWrite, SendSignaled
	w.SetRKey(0, 0)
	q.SetLocal(0, nil, 0, 0)
	if n, err := q.Post(1); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if wc := r.wait(1)[0]; wc.Status != WCRetryExcErr {
		t.Error(r.c.lib.StatusText(wc.Status))
	}
	for range 10 {
		ev, more, err := r.c.Event()
		ok(t, err)
		if !more {
			break
		}
		t.Log(r.c.lib.EventText(ev.Type), ev)
	}
	q2 := r.loop(remote)
	ok(t, q2.ToError())
	if s, err := q2.State(); s != QPSErr || err != nil {
		t.Error(s, err)
	}
}

// A channel tells of a completion that was asked for, once, and ends when it is
// interrupted.
func TestCompletionChannel(t *testing.T) {
	r := newRig(t)
	ch, err := r.c.CreateCompChannel()
	ok(t, err)
	cq, err := r.c.CreateCQ(16, ch)
	ok(t, err)
	q, err := r.pd.CreateQP(cq, cq, QPCap{SendWR: 4, RecvWR: 4, Inline: 8}, 1)
	ok(t, err)
	ok(t, q.ToInit(1, 0, remote))
	ok(t, q.ToRTR(r.path(q)))
	ok(t, q.ToRTS(retry))
	ok(t, cq.Notify())
	told := make(chan error, 2)
	go func() { told <- ch.Wait(); told <- ch.Wait() }()
	w := q.WR(0)
	w.ID, w.Opcode, w.Flags = 1, WRRDMAWrite, SendSignaled
	w.SetRKey(r.addr(far), r.mr.RKey())
	q.SetLocal(0, r.at(0), 8, r.mr.LKey())
	if n, err := q.Post(1); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	ok(t, <-told)
	if wcs, err := cq.Poll(4); len(wcs) != 1 || err != nil {
		t.Error(wcs, err)
	}
	ok(t, ch.Interrupt())
	if err := <-told; !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	ok(t, q.Close())
	ok(t, cq.Close())
	ok(t, ch.Close())
}

func TestPostAndPollDoNotAllocate(t *testing.T) {
	r := newRig(t)
	q := r.loop(remote)
	var buf [8]byte
	n := testing.AllocsPerRun(50, func() {
		binary.LittleEndian.PutUint64(buf[:], 7)
		w := q.WR(0)
		w.ID, w.Opcode, w.Flags = 1, WRFetchAdd, SendSignaled
		w.SetAtomic(r.addr(far), r.mr.RKey(), 1, 0)
		q.SetLocal(0, r.at(0), 8, r.mr.LKey())
		if _, err := q.Post(1); err != nil {
			t.Fatal(err)
		}
		for {
			wcs, err := r.cq.Poll(4)
			if err != nil {
				t.Fatal(err)
			}
			if len(wcs) > 0 {
				break
			}
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
