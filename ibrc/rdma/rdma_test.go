//go:build rdma

package rdma

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"goshmem/heap"
	"goshmem/ibrc"
	"goshmem/internal/errs"
)

// These tests need an RDMA device, and fail without one: lanes/rxe gives them one.

const memSize = 4 << 20

// rig is a provider with a queue pair from PE 0 to PE 1 and one back.
type rig struct {
	t    *testing.T
	p    *Provider
	mem  []byte
	mr   ibrc.MR
	ends [2]ibrc.QP
	next [2]uint64
	got  []ibrc.WC
}

func newRig(t *testing.T, set func(c *Config)) *rig {
	t.Helper()
	cfg := Defaults()
	cfg.Timeout, cfg.Retries = 12, 3
	if set != nil {
		set(&cfg)
	}
	p, err := New(cfg)(t.Context(), ibrc.Env{Size: 2, Local: []int{0, 1}})
	ok(t, err)
	r := &rig{t: t, p: p.(*Provider), next: [2]uint64{1, 1}}
	t.Cleanup(func() { ok(t, r.p.Close(context.Background())) })
	r.mem, err = unix.Mmap(-1, 0, memSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	ok(t, err)
	r.mr, err = p.RegisterMemory(0, heap.Memory{Base: unsafe.Pointer(&r.mem[0]), Size: memSize, Kind: heap.KindHost})
	ok(t, err)
	for i := range r.ends {
		r.ends[i], err = p.NewQP(ibrc.QPConfig{Tag: uint32(i), Local: i, Remote: 1 - i})
		ok(t, err)
	}
	return r
}

func (r *rig) connect() *rig {
	r.t.Helper()
	for i, q := range r.ends {
		if ready, err := q.Connect(r.ends[1-i].Handle()); !ready || err != nil {
			r.t.Fatal(ready, err)
		}
	}
	return r
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) word(off int) *uint64  { return (*uint64)(unsafe.Pointer(&r.mem[off])) }
func (r *rig) remote(off int) uint64 { return r.mr.Key().Addr + uint64(off) }

// post numbers a chain from 0's end and posts it; it must be taken whole.
func (r *rig) post(wrs ...ibrc.WR) {
	r.t.Helper()
	for i := range wrs {
		wrs[i].ID = r.next[0]
		r.next[0]++
		if wrs[i].RKey == 0 {
			wrs[i].RKey = r.mr.Key().RKey
		}
	}
	if n, err := r.ends[0].Post(wrs); n != len(wrs) || err != nil {
		r.t.Fatal(n, err)
	}
}

// until polls until the latest request of 0's end is complete, or something comes
// with an error or a message.
func (r *rig) until() ibrc.WC {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if len(r.got) == 0 {
			r.got = make([]ibrc.WC, 16)
			r.got = r.got[:r.p.Poll(r.got)]
		}
		for len(r.got) > 0 {
			wc := r.got[0]
			r.got = r.got[1:]
			if wc.Err != nil || wc.Msg != nil || wc.Tag == 0 && wc.ID == r.next[0]-1 {
				return wc
			}
		}
	}
	r.t.Fatal("no completion")
	return ibrc.WC{}
}

// {WRITE, WRITE, FETCH_AND_ADD} is one native post, one completion.
func TestPutSignalIsOnePost(t *testing.T) {
	r := newRig(t, nil).connect()
	for i := range 50 {
		for k := range 1 << 16 {
			r.mem[k] = byte(i*5 + k)
		}
		before := r.p.Stats()
		r.post(
			ibrc.WR{Op: ibrc.OpWrite, Local: unsafe.Pointer(&r.mem[0]), Length: 1 << 15, Remote: r.remote(1 << 20)},
			ibrc.WR{Op: ibrc.OpWrite, Local: unsafe.Pointer(&r.mem[1<<15]), Length: 1 << 15, Remote: r.remote(1<<20 + 1<<15)},
			ibrc.WR{Op: ibrc.OpFetchAdd, Operand: 1, Remote: r.remote(2 << 20), Flags: ibrc.WRSignalled},
		)
		if s := r.p.Stats(); s.Posts != before.Posts+1 || s.Requests != before.Requests+3 || s.Staged != 0 {
			t.Fatalf("%+v, then %+v", before, s)
		}
		for end := time.Now().Add(10 * time.Second); atomic.LoadUint64(r.word(2<<20)) != uint64(i+1); {
			if time.Now().After(end) {
				t.Fatal("the signal did not come")
			}
		}
		if !bytes.Equal(r.mem[:1<<16], r.mem[1<<20:][:1<<16]) {
			t.Fatal("the signal came before its data")
		}
		if wc := r.until(); wc.Err != nil {
			t.Fatal(wc.Err)
		}
	}
}

// Memory that is not registered goes through slots, whatever the direction, and
// more requests than there are slots wait for one.
func TestStaged(t *testing.T) {
	r := newRig(t, nil).connect()
	src, dst := bytes.Repeat([]byte("abcdefg"), 100000), make([]byte, 700000)
	r.post(ibrc.WR{Op: ibrc.OpWrite, Local: unsafe.Pointer(&src[0]), Length: 700000, Remote: r.remote(0)},
		ibrc.WR{Op: ibrc.OpRead, Local: unsafe.Pointer(&dst[0]), Length: 700000, Remote: r.remote(0), Flags: ibrc.WRSignalled})
	if wc := r.until(); wc.Err != nil || !bytes.Equal(src, dst) {
		t.Fatal(wc.Err, bytes.Equal(src, dst))
	}
	var old uint64
	*r.word(8) = 41
	r.post(ibrc.WR{Op: ibrc.OpFetchAdd, Local: unsafe.Pointer(&old), Operand: 1, Remote: r.remote(8), Flags: ibrc.WRSignalled})
	if wc := r.until(); wc.Err != nil || old != 41 || *r.word(8) != 42 {
		t.Fatal(wc.Err, old, *r.word(8))
	}
	r.post(ibrc.WR{Op: ibrc.OpCompareSwap, Local: unsafe.Pointer(&old), Compare: 42, Operand: 7, Remote: r.remote(8), Flags: ibrc.WRSignalled})
	if wc := r.until(); wc.Err != nil || old != 42 || *r.word(8) != 7 {
		t.Fatal(wc.Err, old, *r.word(8))
	}
	many := make([]ibrc.WR, largeSlots+3)
	for i := range many {
		many[i] = ibrc.WR{Op: ibrc.OpWrite, ID: r.next[0] + uint64(i), Local: unsafe.Pointer(&src[0]), Length: 100000, Remote: r.remote(0), RKey: r.mr.Key().RKey}
	}
	taken := 0
	for end := time.Now().Add(20 * time.Second); taken < len(many) && time.Now().Before(end); {
		n, err := r.ends[0].Post(many[taken:])
		ok(t, err)
		if taken += n; n > largeSlots {
			t.Fatalf("%d taken at once with %d slots", n, largeSlots)
		}
		r.next[0] += uint64(n)
		if n > 0 {
			if wc := r.until(); wc.Err != nil {
				t.Fatal(wc.Err)
			}
		}
	}
	if taken != len(many) {
		t.Error(taken)
	}
	if n, err := r.ends[0].Post([]ibrc.WR{{Op: ibrc.OpWrite, ID: r.next[0], Local: unsafe.Pointer(&src[0]), Length: largeSlot + 1, Remote: r.remote(0)}}); n != 0 || !errors.Is(err, errs.ErrCapacity) {
		t.Error(n, err)
	}
}

// A signal's SET is an inline WRITE of the operand.
func TestInline(t *testing.T) {
	r := newRig(t, nil).connect()
	text := []byte("inline bytes are taken at once")
	r.post(ibrc.WR{Op: ibrc.OpWrite, Flags: ibrc.WRInline, Local: unsafe.Pointer(&text[0]), Length: uint32(len(text)), Remote: r.remote(64)},
		ibrc.WR{Op: ibrc.OpWrite, Flags: ibrc.WRInline | ibrc.WRSignalled, Operand: 0x1234567890, Length: 8, Remote: r.remote(0)})
	was := string(text)
	clear(text)
	if wc := r.until(); wc.Err != nil || *r.word(0) != 0x1234567890 || string(r.mem[64:][:len(was)]) != was {
		t.Fatalf("%v %#x %q", wc.Err, *r.word(0), r.mem[64:][:len(was)])
	}
	if s := r.p.Stats(); s.Staged != 0 || s.Posts != 1 {
		t.Errorf("%+v", s)
	}
}

func TestMessages(t *testing.T) {
	r := newRig(t, nil).connect()
	for i := range 3 * recvDepth {
		text := []byte{byte(i), 2, 3}
		r.post(ibrc.WR{Op: ibrc.OpSend, Local: unsafe.Pointer(&text[0]), Length: 3, Flags: ibrc.WRSignalled})
		for {
			if wc := r.until(); wc.Msg != nil {
				if wc.Tag != 1 || !bytes.Equal(wc.Msg, []byte{byte(i), 2, 3}) {
					t.Fatalf("%+v", wc)
				}
				break
			}
		}
	}
}

// Queues of one entry work, by whoever counts them.
func TestDepthOne(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SQDepth, c.CQDepth = 1, 1 }).connect()
	if l := r.p.Limits(); l.SQDepth != 1 || l.CQDepth != 1 {
		t.Fatalf("%+v", l)
	}
	for i := range 300 {
		r.post(ibrc.WR{Op: ibrc.OpFetchAdd, Operand: 2, Remote: r.remote(0), Flags: ibrc.WRSignalled})
		if wc := r.until(); wc.Err != nil || *r.word(0) != uint64(2*i+2) {
			t.Fatal(i, wc.Err, *r.word(0))
		}
	}
}

func TestRefusedRequest(t *testing.T) {
	r := newRig(t, nil).connect()
	r.post(ibrc.WR{Op: ibrc.OpWrite, Length: 8, Flags: ibrc.WRInline, Remote: r.remote(0)},
		ibrc.WR{Op: ibrc.OpFetchAdd, Remote: r.remote(0), RKey: r.mr.Key().RKey ^ 0x5500, Flags: ibrc.WRSignalled})
	wc := r.until()
	var status *ibrc.StatusError
	if !errors.As(wc.Err, &status) || status.Status != ibrc.StatusRemAccess || status.Op != ibrc.OpFetchAdd || !errors.Is(wc.Err, errs.ErrRange) || wc.ID != 2 {
		t.Fatal(wc)
	}
	me, peer := r.ends[0].(*qp).me, r.ends[1].(*qp).me
	for _, want := range []string{"remote access error", me.String(), peer.String(), "pe 1"} {
		if !strings.Contains(wc.Err.Error(), want) {
			t.Errorf("%v: no %q", wc.Err, want)
		}
	}
	if s := r.ends[0].State(); s != ibrc.StateError {
		t.Error(s)
	}
	if n, err := r.ends[0].Post([]ibrc.WR{{Op: ibrc.OpWrite, ID: 3}}); n != 0 || err == nil {
		t.Error("posted to a queue pair in error")
	}
}

func TestPeerGone(t *testing.T) {
	r := newRig(t, nil).connect()
	r.ends[1].Destroy()
	r.post(ibrc.WR{Op: ibrc.OpWrite, Length: 8, Flags: ibrc.WRInline, Remote: r.remote(0)}, ibrc.WR{Op: ibrc.OpFetchAdd, Remote: r.remote(0), Flags: ibrc.WRSignalled})
	if wc := r.until(); !errors.Is(wc.Err, errs.ErrPeerLost) || wc.ID != 1 {
		t.Error(wc)
	}
}

// What cannot be connected names the verb, errno and both ends' values.
func TestWrongAddress(t *testing.T) {
	r := newRig(t, nil)
	h := r.ends[1].(*qp).me
	h.gid = netip.MustParseAddr("198.51.100.9").As16() // no route there
	_, err := r.ends[0].Connect(h.encode())
	if err == nil {
		r.ends[0].(*qp).state = ibrc.StateRTS
		r.post(ibrc.WR{Op: ibrc.OpWrite, Length: 8, Flags: ibrc.WRInline | ibrc.WRSignalled, Remote: r.remote(0)})
		err = r.until().Err
	}
	t.Log(err)
	if err == nil || !strings.Contains(err.Error(), "198.51.100.9") || !strings.Contains(err.Error(), r.ends[0].(*qp).me.String()) {
		t.Error(err)
	}
	for name, set := range map[string]func(c *Config){
		"gid 200":              func(c *Config) { c.GIDIndex = 200 },
		"address 198.51.100.9": func(c *Config) { c.GID = netip.MustParseAddr("198.51.100.9") },
		"nosuch0":              func(c *Config) { c.Ports = "nosuch0" },
		"rxe0:3":               func(c *Config) { c.Ports = "rxe0:3" },
		"pkey 0x1234":          func(c *Config) { c.Pkey = 0x1234 },
	} {
		cfg := Defaults()
		set(&cfg)
		p, err := New(cfg)(t.Context(), ibrc.Env{})
		if err == nil || !strings.Contains(err.Error(), name) || p != nil && p.(*Provider) != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := r.p.Describe()
	if !strings.Contains(d.Detail, "rxe0 port 1, Ethernet, mtu 4096, gid 1, 192.0.2.1, RoCE v2") {
		t.Error(d)
	}
	if _, err := r.ends[0].Connect([]byte("nonsense")); !errors.Is(err, errs.ErrMismatch) && err != nil {
		t.Error(err)
	}
}

// What lies in a buffer is registered once and not copied, until it is forgotten;
// what does not, or only in part, is.
func TestBuffers(t *testing.T) {
	r := newRig(t, nil).connect()
	mem, err := unix.Mmap(-1, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	ok(t, err)
	defer unix.Munmap(mem)
	base, asked := unsafe.Pointer(&mem[0]), 0
	r.p.env.Buffer = func(at uintptr) (unsafe.Pointer, uint64) {
		if asked++; at < uintptr(base) || at >= uintptr(base)+32<<10 {
			return nil, 0
		}
		return base, 32 << 10
	}
	put := func(local unsafe.Pointer, n uint32) {
		t.Helper()
		r.post(ibrc.WR{Op: ibrc.OpWrite, Local: local, Length: n, Remote: r.remote(0), RKey: r.mr.Key().RKey, Flags: ibrc.WRSignalled})
		if wc := r.until(); wc.Err != nil {
			t.Fatal(wc.Err)
		}
	}
	regions := len(r.p.regions)
	for i, c := range []struct {
		off                    int
		n                      uint32
		staged, regions, asked int
	}{
		{0, 4096, 0, 1, 1}, {4096, 28 << 10, 0, 1, 1}, {30 << 10, 4096, 1, 1, 2}, {40 << 10, 4096, 2, 1, 3},
	} {
		mem[c.off] = byte(i + 1)
		put(unsafe.Add(base, c.off), c.n)
		if r.mem[0] != byte(i+1) || int(r.p.stats.Staged) != c.staged || len(r.p.regions) != regions+c.regions || asked != c.asked {
			t.Error(i, r.mem[0], r.p.stats, len(r.p.regions), asked)
		}
	}
	ok(t, r.p.Forget(base))
	ok(t, r.p.Forget(base))
	if len(r.p.regions) != regions {
		t.Error(len(r.p.regions))
	}
	put(base, 4096)
	if len(r.p.regions) != regions+1 || asked != 4 {
		t.Error(len(r.p.regions), asked)
	}
}

func TestPostAndPollDoNotAllocate(t *testing.T) {
	r := newRig(t, nil).connect()
	wrs := make([]ibrc.WR, 2)
	var wcs [8]ibrc.WC
	src := make([]byte, 4096)
	n := testing.AllocsPerRun(100, func() {
		wrs[0] = ibrc.WR{Op: ibrc.OpWrite, ID: r.next[0], Local: unsafe.Pointer(&src[0]), Length: 4096, Remote: r.remote(0), RKey: r.mr.Key().RKey}
		wrs[1] = ibrc.WR{Op: ibrc.OpFetchAdd, ID: r.next[0] + 1, Operand: 1, Remote: r.remote(8192), RKey: r.mr.Key().RKey, Flags: ibrc.WRSignalled}
		r.next[0] += 2
		if _, err := r.ends[0].Post(wrs); err != nil {
			t.Fatal(err)
		}
		for r.p.Poll(wcs[:]) == 0 {
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
