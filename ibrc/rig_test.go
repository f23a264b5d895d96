package ibrc_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/ibrc"
	"goshmem/internal/futex"
	"goshmem/internal/spin"
)

// rig is a world of PEs that are slices of this test, one transport each, and a
// proxy that drives only PE 0's; handles are delivered when the test says so.
type rig struct {
	t     testing.TB
	table *heap.Table
	trs   []channel.Transport
	mail  []letter
	lost  map[int]error
	bell  *futex.Bell
	proxy *channel.Proxy
	group channel.Group
}

type letter struct {
	from, to int
	msg      []byte
}

const rigHeap = 1 << 16

func newRig(t testing.TB, pes int, provider func(pe int) ibrc.NewProvider) *rig {
	t.Helper()
	r := &rig{t: t, table: heap.NewTable(7, pes, 2), lost: map[int]error{}}
	words := new([2]uint32)
	r.bell = futex.NewSleeper(&words[0], &words[1], false).Bell()
	var peers []channel.PeerInfo
	for i := range pes {
		for region := range uint16(2) {
			buf := make([]uint64, rigHeap/8)
			at := unsafe.Pointer(&buf[0])
			r.table.Set(i, region, heap.Memory{Base: at, Addr: uint64(uintptr(at)), Size: rigHeap})
		}
		peers = append(peers, channel.PeerInfo{PE: i, Node: i})
	}
	var err error
	r.proxy, err = channel.NewProxy(channel.ProxyConfig{RingCapacity: 1024, Policy: spin.Policy{Turns: 8, InProcess: true, SleepAfter: 200 * time.Microsecond}})
	require.NoError(t, err)
	for i := range pes {
		env := channel.Env{
			World: 7, Size: pes, Local: []int{i}, Table: r.table, Peers: peers,
			Send: func(from, to int, msg []byte) error {
				r.mail = append(r.mail, letter{from, to, msg})
				return nil
			},
			Lost:  func(pe int, err error) { r.lost[pe] = err },
			Knock: func(int) {}, Live: func(bool) {}, Kick: func() {}, Log: slog.New(slog.DiscardHandler),
		}
		tr, err := ibrc.New(provider(i))(context.Background(), env)
		require.NoError(t, err)
		r.trs = append(r.trs, tr)
	}
	t.Cleanup(func() {
		require.NoError(t, r.proxy.Close(context.Background()))
		for _, tr := range r.trs {
			require.NoError(t, tr.Close(context.Background()))
		}
	})
	return r
}

func (r *rig) lane(owner, peer int) *channel.Lane {
	return channel.NewLane(channel.LaneConfig{
		Owner: owner, Peer: peer, TeamPE: peer, Ctx: 1, Slot: 4, Path: "mock", Table: r.table, Bell: r.bell, OwnBell: r.bell,
		Group: &r.group, Transport: r.trs[owner], Window: 64, Backlog: 1 << 20,
	})
}

// deliver passes on the messages sent so far, the latest first if turned.
func (r *rig) deliver(turned bool) {
	r.t.Helper()
	box := r.mail
	r.mail = nil
	for i := range box {
		m := box[i]
		if turned {
			m = box[len(box)-1-i]
		}
		require.NoError(r.t, r.trs[m.to].Deliver(m.to, m.from, m.msg))
	}
}

func (r *rig) poll() (done int, failed []error) {
	var out [8]channel.Completion
	for _, tr := range r.trs {
		for _, c := range out[:tr.Poll(out[:])] {
			done += c.N
			if c.Err != nil {
				failed = append(failed, c.Err)
			}
		}
	}
	return done, failed
}

func (r *rig) connect(l *channel.Lane, turned bool) {
	r.t.Helper()
	until(r.t, func() bool {
		ready, err := l.Config().Transport.Connect(l)
		require.NoError(r.t, err)
		r.deliver(turned)
		r.poll()
		return ready
	})
}

func until(t testing.TB, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("never")
		}
	}
}

func (r *rig) word(pe int, off uint64) *atomic.Uint64 {
	return (*atomic.Uint64)(r.table.Region(pe, heap.RegionHeap).At(off))
}

func putSignal(src []byte, off, sig uint64, op channel.SigOp, v uint64) channel.Request {
	return channel.Request{
		Desc: channel.Desc{
			Op: channel.OpPut, Flags: channel.FlagLocalPtr, DstRegion: heap.RegionHeap, DstOff: off, Size: uint64(len(src)),
			SigOp: op, SigOff: sig, SigVal: v,
		},
		Local: unsafe.Pointer(unsafe.SliceData(src)),
	}
}
