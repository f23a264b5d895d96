package fabric

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/fabric/sim"
)

// handClock is a clock that a test sets.
type handClock struct{ now time.Duration }

// newLinkRig is a rig over a simulated link. Every PE is a node.
func newLinkRig(t *testing.T, pes int, cfg LinkConfig) (*rig, *handClock) {
	t.Helper()
	r := bare(t, pes)
	c := &handClock{}
	var err error
	r.tr, err = newLink(cfg, r.env, func() time.Duration { return c.now })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.tr.Close(context.Background())) })
	return r, c
}

var testLink = sim.Link{Latency: 2000, Bandwidth: 1e9, Post: 300}

// complete polls at every nanosecond and tells when each request was complete.
func complete(r *rig, c *handClock, n int, until time.Duration) []time.Duration {
	var when []time.Duration
	out := make([]channel.Completion, 8)
	for ; len(when) < n && c.now < until; c.now++ {
		for _, d := range out[:r.tr.Poll(out)] {
			require.NoError(r.t, d.Err)
			for range d.N {
				when = append(when, c.now)
			}
		}
	}
	return when
}

func TestLinkTimes(t *testing.T) {
	r, c := newLinkRig(t, 3, LinkConfig{Link: testLink})
	l := r.connect(0, 1)
	src := make([]byte, 1000)
	src[0] = 7
	r.post(l, putReq(0, src), signalReq(2048, 1))
	c.now = 3299
	r.tick()
	assert.Zero(t, r.mem[1][0])
	c.now = 3300 // 300 to post, 2000 to travel, 1000 to arrive
	r.tick()
	assert.Equal(t, byte(7), r.mem[1][0])
	assert.Equal(t, uint64(1), *r.word(1, 2048), "right behind")
	assert.Equal(t, []time.Duration{5300, 5300}, complete(r, c, 2, 10000), "acknowledged after the latency")
	assert.Equal(t, 1, r.knock[1])

	// A get goes there, is read there, and comes back through the target's port.
	r, c = newLinkRig(t, 3, LinkConfig{Link: testLink})
	r.mem[1][0] = 9
	l = r.connect(0, 1)
	dst := make([]byte, 1000)
	get := putReq(0, dst)
	get.Op, get.SrcRegion, get.SrcOff = channel.OpGet, heap.RegionHeap, 0
	r.post(l, get, putReq(0, src))
	assert.Equal(t, []time.Duration{5300, 5600}, complete(r, c, 2, 10000))
	assert.Equal(t, byte(9), dst[0])

	// An atomic brings its old value back.
	*r.word(2, 64) = 5
	l = r.connect(0, 2)
	old := new(uint64)
	r.post(l, channel.Request{
		Desc: channel.Desc{
			Op: channel.OpAMOAdd, Type: channel.Elem64, Flags: channel.FlagFetch | channel.FlagLocalPtr,
			DstRegion: heap.RegionHeap, DstOff: 64, Size: 8, SigVal: 3,
		},
		Local: unsafe.Pointer(old),
	})
	at := c.now
	assert.Equal(t, []time.Duration{at + 300 + 2000 + 2000 + 8}, complete(r, c, 1, at+10000))
	assert.Equal(t, uint64(5), *old)
	assert.Equal(t, uint64(8), *r.word(2, 64))
}

// The link takes as long as the simulator says.
func TestLinkAgreesWithSimulator(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const pes = 3
		sharing := sim.Sharing(rapid.IntRange(0, 2).Draw(rt, "sharing"))
		var schedule []sim.Message
		for range rapid.IntRange(1, 12).Draw(rt, "messages") {
			m := sim.Message{Src: rapid.IntRange(0, pes-1).Draw(rt, "src"), Bytes: int64(rapid.IntRange(0, 3000).Draw(rt, "bytes"))}
			m.Dst = (m.Src + rapid.IntRange(1, pes-1).Draw(rt, "dst")) % pes
			schedule = append(schedule, m)
		}
		want, err := sim.Simulate(schedule, sim.Model{Node: []int{0, 1, 2}, Net: testLink, Sharing: sharing})
		require.NoError(rt, err)
		r, c := newLinkRig(t, pes, LinkConfig{Link: testLink, Sharing: sharing})
		lanes := map[[2]int]*channel.Lane{}
		src := make([]byte, 3000)
		done := map[*channel.Lane][]time.Duration{} // expected, in order
		for i, m := range schedule {
			k := [2]int{m.Src, m.Dst}
			if lanes[k] == nil {
				lanes[k] = r.connect(m.Src, m.Dst)
			}
			r.post(lanes[k], putReq(0, src[:m.Bytes]))
			done[lanes[k]] = append(done[lanes[k]], want.Done[i]+testLink.Latency)
		}
		out := make([]channel.Completion, 4)
		for left := len(schedule); left > 0; {
			at, ok := r.tr.(*link).w.next()
			require.True(rt, ok)
			c.now = time.Duration(at)
			for _, d := range out[:r.tr.Poll(out)] {
				for range d.N {
					require.Equal(rt, done[d.Lane][0], c.now)
					done[d.Lane] = done[d.Lane][1:]
					left--
				}
			}
		}
		require.Empty(rt, r.tr.(*link).w.lanes, "idle lanes are forgotten")
	})
}

// One Poll does not copy for ever.
func TestLinkTurn(t *testing.T) {
	r, c := newLinkRig(t, 2, LinkConfig{})
	l := r.connect(0, 1)
	big := make([]byte, rigHeap)
	for range 2 * linkTurn / rigHeap {
		r.post(l, putReq(0, big))
	}
	polls := 0
	out := make([]channel.Completion, 4)
	for n := 0; n < 2*linkTurn/rigHeap; polls++ {
		c.now++
		for _, d := range out[:r.tr.Poll(out)] {
			n += d.N
		}
	}
	assert.Greater(t, polls, 2)
}

func TestLinkRest(t *testing.T) {
	r, _ := newLinkRig(t, 2, LinkConfig{Link: testLink})
	d := r.tr.Describe()
	assert.Equal(t, "simulated link", d.Name)
	assert.Equal(t, "2µs, 1 GB/s, 300ns a post, a port a PE", d.Detail)
	assert.ErrorIs(t, r.tr.Deliver(0, 1, nil), errs.ErrUnsupported)
	_, err := r.tr.Register(context.Background(), 0, 0, heap.Memory{})
	assert.NoError(t, err)
	assert.NoError(t, r.tr.Deregister(context.Background(), 0, 0))
	_, mapped := r.tr.Map(1, 1)
	assert.False(t, mapped)
	l := r.connect(0, 1)
	r.post(l, putReq(0, []byte("never")))
	r.tr.Abort(l)
	r.tick()
	_, err = r.tr.Post(l, []channel.Request{signalReq(0, 1)})
	assert.ErrorIs(t, err, errs.ErrClosed)
	r.table.Set(1, heap.RegionHeap, heap.Memory{Size: rigHeap})
	_, err = r.tr.Connect(r.lane(0, 1))
	assert.ErrorIs(t, err, errs.ErrUnsupported)
	_, err = NewLink(LinkConfig{Link: sim.Link{Latency: -1}})(context.Background(), r.env)
	assert.ErrorIs(t, err, errs.ErrConfig)
}

// Random operations over the link, in real time.
func TestLinkConformance(t *testing.T) {
	for seed := range uint64(6) {
		r := bare(t, 4)
		var err error
		r.tr, err = NewLink(LinkConfig{Link: sim.Link{Latency: time.Microsecond, Bandwidth: 1e9, Post: 100}})(context.Background(), r.env)
		require.NoError(t, err)
		d := drive(r, 8)
		rng := rand.New(rand.NewPCG(seed, 4))
		for range 150 {
			d.step(rng)
		}
		d.finish()
		require.NoError(t, d.p.Close(within(t)))
	}
}
