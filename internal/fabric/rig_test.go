package fabric

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/futex"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rigHeap = 1 << 15

// rig is a transport of a world of PEs that are slices of this test.
type rig struct {
	t     *testing.T
	f     *Fabric
	tr    channel.Transport
	table *heap.Table
	mem   [][]byte
	env   channel.Env
	bell  *futex.Bell
	group channel.Group
	lost  map[int]error
	knock map[int]int
	mail  []mail // sent, not delivered
}

type mail struct {
	from, to int
	msg      []byte
}

// bare is a rig without a transport.
func bare(t *testing.T, pes int) *rig {
	r := &rig{t: t, table: heap.NewTable(7, pes, 2), lost: map[int]error{}, knock: map[int]int{}}
	words := new([2]uint32)
	r.bell = futex.NewSleeper(&words[0], &words[1], false).Bell()
	for i := range pes {
		for region := range uint16(2) {
			buf := make([]uint64, rigHeap/8)
			r.table.Set(i, region, heap.Memory{Base: unsafe.Pointer(&buf[0]), Size: rigHeap})
		}
		r.mem = append(r.mem, unsafe.Slice((*byte)(r.table.Region(i, heap.RegionHeap).Base), rigHeap))
		r.env.Peers = append(r.env.Peers, channel.PeerInfo{PE: i, Node: i})
	}
	r.env.Size, r.env.Table = pes, r.table
	r.env.Send = func(from, to int, msg []byte) error {
		r.mail = append(r.mail, mail{from, to, msg})
		return nil
	}
	r.env.Lost = func(pe int, err error) { r.lost[pe] = err }
	r.env.Knock = func(pe int) { r.knock[pe]++ }
	return r
}

// newRig is a rig over a fabric.
func newRig(t *testing.T, pes int, cfg Config) *rig {
	t.Helper()
	r := bare(t, pes)
	var err error
	r.f, err = New(cfg)
	require.NoError(t, err)
	r.tr, err = r.f.Factory()(context.Background(), r.env)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.tr.Close(context.Background())) })
	return r
}

// lane makes a lane; connect also connects it.
func (r *rig) lane(owner, peer int) *channel.Lane {
	return channel.NewLane(channel.LaneConfig{
		Owner: owner, Peer: peer, TeamPE: peer, Ctx: 1, Path: "fabric", Table: r.table, Bell: r.bell, OwnBell: r.bell,
		Group: &r.group, Transport: r.tr, Window: 64, Backlog: 1 << 20,
	})
}

func (r *rig) connect(owner, peer int) *channel.Lane {
	r.t.Helper()
	l := r.lane(owner, peer)
	for range 1 << 20 {
		ready, err := r.tr.Connect(l)
		require.NoError(r.t, err)
		if ready {
			return l
		}
		r.tr.Poll(make([]channel.Completion, 4))
		r.deliver()
	}
	r.t.Fatal("never connected")
	return nil
}

func (r *rig) deliver() {
	for len(r.mail) > 0 {
		m := r.mail[0]
		r.mail = r.mail[1:]
		require.NoError(r.t, r.tr.Deliver(m.to, m.from, m.msg))
	}
}

// post posts all of reqs, at once if it may.
func (r *rig) post(l *channel.Lane, reqs ...channel.Request) {
	r.t.Helper()
	for i := 0; len(reqs) > 0; i++ {
		n, err := r.tr.Post(l, reqs)
		require.NoError(r.t, err)
		reqs = reqs[n:]
		require.Less(r.t, i, 1<<20, "never taken")
	}
}

// drain polls until n requests are complete, and returns the errors of those
// that failed.
func (r *rig) drain(n int) (failed []error) {
	r.t.Helper()
	out := make([]channel.Completion, 3)
	for polls := 0; n > 0; polls++ {
		for _, c := range out[:r.tr.Poll(out)] {
			n -= c.N
			if c.Err != nil {
				require.Equal(r.t, 1, c.N)
				failed = append(failed, c.Err)
			}
		}
		require.Less(r.t, polls, 1<<20, "never complete")
	}
	require.Zero(r.t, n)
	return failed
}

// tick polls once and expects no completion.
func (r *rig) tick() {
	r.t.Helper()
	require.Zero(r.t, r.tr.Poll(make([]channel.Completion, 4)))
}

func (r *rig) word(pe int, off uint64) *uint64 {
	return (*uint64)(r.table.Region(pe, heap.RegionHeap).At(off))
}

func putReq(off uint64, src []byte) channel.Request {
	return channel.Request{
		Desc: channel.Desc{
			Op: channel.OpPut, Flags: channel.FlagLocalPtr, DstRegion: heap.RegionHeap, DstOff: off, Size: uint64(len(src)),
		},
		Local: unsafe.Pointer(unsafe.SliceData(src)),
	}
}

func signalReq(off, v uint64) channel.Request {
	return channel.Request{Desc: channel.Desc{Op: channel.OpSignal, SigOp: channel.SigAdd, SigOff: off, SigVal: v}}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
