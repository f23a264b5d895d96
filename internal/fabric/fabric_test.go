package fabric

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
)

func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var all []event
		for i, at := range rapid.SliceOfN(rapid.IntRange(0, 9), 0, 60).Draw(t, "at") {
			e := event{at: int64(at), tie: uint64(i * 7 % 3), seq: uint64(i)}
			q.push(e)
			all = append(all, e)
		}
		slices.SortFunc(all, func(a, b event) int {
			if a.before(&b) {
				return -1
			}
			return 1
		})
		for _, e := range all {
			require.Equal(t, e, q.pop())
		}
		require.Empty(t, q)
	})
}

func TestRefusedConfigs(t *testing.T) {
	for what, c := range map[string]Config{
		"window":     {Window: -1},
		"connect":    {Connect: -1},
		"delay":      {Delay: -1},
		"skew":       {Skew: -1},
		"stall for":  {StallFor: -1},
		"retry":      {Retry: -1},
		"record":     {Record: -1},
		"slow pe":    {Slow: map[int]int{-1: 1}},
		"slow by":    {Slow: map[int]int{0: -1}},
		"late":       {Late: map[int]int{0: -1}},
		"dies":       {Dies: map[int]int{0: -1}},
		"stall":      {Stall: 1.5},
		"stall nan":  {Stall: math.NaN()},
		"loss":       {Loss: 1},
		"loss minus": {Loss: -0.5},
		"broken":     {Broken: numBroken},
	} {
		_, err := New(c)
		assert.ErrorIs(t, err, errs.ErrConfig, what)
	}
	f, err := New(Config{Late: map[int]int{3: 1}})
	require.NoError(t, err)
	_, err = f.Factory()(context.Background(), bare(t, 3).env)
	assert.ErrorIs(t, err, errs.ErrConfig)
	for seed := range uint64(200) {
		c := Random(seed)
		assert.NoError(t, c.check())
	}
}

// The same seed and the same calls: the same events. Another seed: others.
func TestReplay(t *testing.T) {
	run := func(seed uint64) []Event {
		cfg := Random(seed)
		cfg.Record, cfg.Handshake, cfg.Real = 1<<20, false, false
		cfg.Delay, cfg.Loss, cfg.Retry = 20, 0.2, 10
		r := newRig(t, 3, cfg)
		rng := rand.New(rand.NewPCG(1, 2))
		var lanes []*channel.Lane
		for _, p := range [][2]int{{0, 1}, {1, 0}, {0, 2}, {2, 1}, {0, 1}} {
			lanes = append(lanes, r.connect(p[0], p[1]))
		}
		src := make([]byte, 64)
		out := make([]channel.Completion, 3)
		under := map[*channel.Lane]int{}
		for range 2000 {
			l := lanes[rng.IntN(len(lanes))]
			if room := max(cfg.Window, 1) - under[l]; room > 0 && rng.IntN(3) == 0 {
				reqs := []channel.Request{putReq(0, src), signalReq(64, 1), putReq(128, src)}[:min(room, 3)]
				n, err := r.tr.Post(l, reqs)
				require.NoError(t, err)
				under[l] += n
			}
			for _, c := range out[:r.tr.Poll(out)] {
				under[c.Lane] -= c.N
			}
		}
		return r.f.Events()
	}
	for seed := range uint64(4) {
		a, b := run(seed), run(seed)
		require.NotEmpty(t, a)
		require.Equal(t, a, b, "seed %d", seed)
		require.NotEqual(t, a, run(seed+1000))
	}
}

// What happens to a request depends on nothing but the seed and its number.
func TestFate(t *testing.T) {
	c := Config{Seed: 3, Delay: 10, Skew: 5, Stall: 0.1, StallFor: 1000, Loss: 0.3, Slow: map[int]int{2: 30}}
	var lost, stalled int
	for n := range uint64(1000) {
		f := c.Fate(0, 1, 0, n)
		require.Equal(t, f, c.Fate(0, 1, 0, n))
		require.True(t, f.Sending <= 10 && f.Ack <= 10 && f.Lost <= maxLost)
		lost += min(f.Lost, 1)
		if f.Flight >= 1000 {
			stalled++
		}
	}
	assert.InDelta(t, 300, lost, 60)
	assert.InDelta(t, 100, stalled, 40)
	var slow, fast int
	for n := range uint64(100) {
		fast += c.Fate(0, 1, 0, n).Ack
		slow += c.Fate(1, 2, 0, n).Ack
	}
	assert.Greater(t, slow, 15*fast)
}

// The source is read when a request is sent: later than Post, earlier than its
// landing; and what landed is not complete yet.
func TestWhenDataMoves(t *testing.T) {
	for seed := range uint64(20) {
		r := newRig(t, 2, Config{Seed: seed, Delay: 40, Record: 100})
		l := r.connect(0, 1)
		fate := r.f.cfg.Fate(0, 1, 0, 0)
		if fate.Sending == 0 || fate.Flight == 0 || fate.Ack == 0 {
			continue
		}
		src := []byte("posted..")
		r.post(l, putReq(8, src))
		copy(src, "reused..") // too early: it shows
		happened := func(what string) bool {
			return slices.ContainsFunc(r.f.Events(), func(e Event) bool { return e.What == what })
		}
		for !happened("sending") {
			r.tick()
		}
		copy(src, "too late")
		assert.Equal(t, make([]byte, 8), r.mem[1][8:16])
		for !happened("arrived") {
			r.tick()
		}
		assert.Equal(t, "reused..", string(r.mem[1][8:16]))
		assert.False(t, happened("ended"))
		require.Empty(t, r.drain(1))
	}
}

// What is lost is sent again, is read again, and holds up its lane but no other.
func TestLoss(t *testing.T) {
	seed := uint64(0)
	for ; ; seed++ {
		c := Config{Seed: seed, Loss: 0.3}
		if c.Fate(0, 1, 0, 0).Lost > 0 && c.Fate(0, 1, 0, 1).Lost == 0 && c.Fate(0, 2, 0, 0).Lost == 0 {
			break
		}
	}
	r := newRig(t, 3, Config{Seed: seed, Loss: 0.3, Retry: 100, Record: 100})
	first, other := r.connect(0, 1), r.connect(0, 2)
	src := []byte("once")
	r.post(first, putReq(0, src), putReq(8, src))
	r.post(other, putReq(0, src))
	require.Empty(t, r.drain(1))
	assert.Equal(t, "once", string(r.mem[2][:4]))
	assert.Equal(t, make([]byte, 16), r.mem[1][:16])
	copy(src, "more")
	require.Empty(t, r.drain(2))
	assert.Equal(t, "more", string(r.mem[1][:4]), "read again")
	assert.Equal(t, "once", string(r.mem[1][8:12]), "sent in time, held up behind")
	s := r.f.Stats()
	assert.Positive(t, s.Lost)
	assert.Positive(t, s.Overtaken)
	assert.Zero(t, s.Unordered)
}

func TestStall(t *testing.T) {
	for _, p := range [][2]int{{0, 1}, {0, -1}, {-1, 1}, {-1, -1}} {
		r := newRig(t, 3, Config{Delay: 5})
		l, other := r.connect(0, 1), r.connect(2, 0)
		src := []byte("data")
		r.post(l, putReq(0, src), signalReq(64, 1))
		r.f.Stall(p[0], p[1])
		n, err := r.tr.Post(l, []channel.Request{signalReq(64, 1)})
		require.NoError(t, err)
		require.Zero(t, n)
		ready, err := r.tr.Connect(r.lane(0, 1))
		require.NoError(t, err)
		require.False(t, ready)
		if p != [2]int{-1, -1} {
			r.post(other, putReq(0, src))
			require.Empty(t, r.drain(1), "others go on")
		}
		for range 100 {
			r.tick()
		}
		assert.Zero(t, *r.word(1, 64))
		r.f.Resume(p[0], p[1])
		require.Empty(t, r.drain(2))
		assert.Equal(t, uint64(1), *r.word(1, 64))
		assert.Equal(t, "data", string(r.mem[1][:4]))
	}
}

func TestLate(t *testing.T) {
	r := newRig(t, 3, Config{Late: map[int]int{1: 5000}, Record: 10})
	onTime := r.connect(0, 2)
	l := r.lane(0, 1)
	tries := 0
	for ready := false; !ready; tries++ {
		var err error
		ready, err = r.tr.Connect(l)
		require.NoError(t, err)
		if !ready {
			r.tick()
		}
		require.Less(t, tries, 100, "the clock jumps")
	}
	r.post(onTime, signalReq(0, 1))
	r.drain(1)
	assert.GreaterOrEqual(t, r.f.Events()[0].Tick, int64(5000))
}

func TestConnect(t *testing.T) {
	seen := map[int]bool{}
	for seed := range uint64(40) {
		r := newRig(t, 2, Config{Seed: seed, Connect: 3})
		l := r.lane(0, 1)
		calls := 1
		for ; ; calls++ {
			ready, err := r.tr.Connect(l)
			require.NoError(t, err)
			if ready {
				break
			}
		}
		seen[calls] = true
	}
	assert.Equal(t, map[int]bool{1: true, 2: true, 3: true, 4: true}, seen)
}

func TestHandshake(t *testing.T) {
	r := newRig(t, 2, Config{Handshake: true})
	a, b := r.lane(0, 1), r.lane(0, 1)
	for range 3 {
		ready, err := r.tr.Connect(a)
		require.NoError(t, err)
		require.False(t, ready)
	}
	require.Len(t, r.mail, 1, "asked once")
	r.deliver()
	for _, l := range []*channel.Lane{a, b} { // a pair does it once
		ready, err := r.tr.Connect(l)
		require.NoError(t, err)
		require.True(t, ready)
	}
	assert.Equal(t, uint64(1), r.f.Stats().Greeted)
	assert.ErrorIs(t, r.tr.Deliver(0, 1, []byte{welcome, 0}), errs.ErrConfig, "a second time")

	r = newRig(t, 2, Config{Handshake: true})
	broken := errors.New("broken")
	say := errs.ErrWouldBlock
	r.tr.(*transport).w.env.Send = func(int, int, []byte) error { return say }
	l := r.lane(0, 1)
	ready, err := r.tr.Connect(l)
	assert.NoError(t, err, "later")
	assert.False(t, ready)
	say = broken
	_, err = r.tr.Connect(l)
	assert.ErrorIs(t, err, broken)
}

func FuzzDeliver(f *testing.F) {
	f.Add([]byte{hello, 0})
	f.Add([]byte{welcome, 0})
	f.Add([]byte{welcome, 1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, msg []byte) {
		r := newRig(t, 2, Config{Handshake: true})
		if err := r.tr.Deliver(0, 1, msg); err == nil {
			require.Equal(t, []byte{hello, 0}, msg) // nothing else is expected
			require.Equal(t, []mail{{0, 1, []byte{welcome, 1}}}, r.mail)
		}
	})
}

func TestKill(t *testing.T) {
	r := newRig(t, 3, Config{Delay: 5})
	to, from, other := r.connect(0, 1), r.connect(1, 0), r.connect(0, 2)
	for _, l := range []*channel.Lane{to, from, other} {
		r.post(l, signalReq(0, 1), signalReq(0, 1))
	}
	r.f.Kill(1)
	r.f.Kill(1)
	require.Len(t, r.lost, 1)
	assert.ErrorIs(t, r.lost[1], errs.ErrPeerLost)
	failed := r.drain(6)
	assert.Len(t, failed, 4)
	for _, err := range failed {
		assert.ErrorIs(t, err, errs.ErrPeerLost)
	}
	assert.Equal(t, uint64(2), *r.word(2, 0))
	assert.Zero(t, *r.word(0, 0))
	for _, l := range []*channel.Lane{to, from} {
		n, err := r.tr.Post(l, []channel.Request{signalReq(0, 1)})
		assert.Zero(t, n)
		assert.ErrorIs(t, err, errs.ErrPeerLost)
		_, err = r.tr.Connect(l)
		assert.ErrorIs(t, err, errs.ErrPeerLost)
	}
	_, err := r.tr.Connect(r.lane(2, 1))
	assert.ErrorIs(t, err, errs.ErrPeerLost, "a new lane")
	assert.Equal(t, uint64(4), r.f.Stats().Failed)
	// A world that comes later on the same fabric hears of it at once.
	late := bare(t, 3)
	tr, err := r.f.Factory()(context.Background(), late.env)
	require.NoError(t, err)
	assert.ErrorIs(t, late.lost[1], errs.ErrPeerLost)
	require.NoError(t, tr.Close(context.Background()))
}

func TestDies(t *testing.T) {
	r := newRig(t, 2, Config{Delay: 3, Dies: map[int]int{0: 5}})
	l := r.connect(0, 1)
	var reqs []channel.Request
	for range 20 {
		reqs = append(reqs, signalReq(0, 1))
	}
	r.post(l, reqs...)
	failed := r.drain(20)
	assert.GreaterOrEqual(t, len(failed), 14)
	assert.ErrorIs(t, r.lost[0], errs.ErrPeerLost)
	assert.LessOrEqual(t, *r.word(1, 0), uint64(20-len(failed))+6)
	assert.Less(t, *r.word(1, 0), uint64(20))
}

func TestFail(t *testing.T) {
	broken := errors.New("broken")
	r := newRig(t, 2, Config{Fail: func(owner, peer int, d *channel.Desc) error {
		if owner == 0 && peer == 1 && d.SigVal == 4 {
			return broken
		}
		return nil
	}})
	l := r.connect(0, 1)
	r.post(l, signalReq(0, 1), signalReq(0, 2), signalReq(0, 4), signalReq(0, 8))
	assert.Equal(t, []error{broken}, r.drain(4))
	assert.Equal(t, uint64(11), *r.word(1, 0))
	assert.Equal(t, 3, r.knock[1])
	r.post(l, channel.Request{Desc: channel.Desc{Op: 200}})
	require.Len(t, r.drain(1), 1)
}

func TestAbort(t *testing.T) {
	r := newRig(t, 2, Config{Delay: 5})
	l := r.connect(0, 1)
	r.post(l, putReq(0, []byte("never")))
	r.tr.Abort(l)
	for range 100 {
		r.tick()
	}
	assert.Equal(t, make([]byte, 5), r.mem[1][:5])
	_, err := r.tr.Post(l, []channel.Request{signalReq(0, 1)})
	assert.ErrorIs(t, err, errs.ErrClosed)
}

// The proxy's side of the contract.
func TestUnacceptable(t *testing.T) {
	r := newRig(t, 2, Config{MaxMessage: 4, Window: 2, Delay: 3})
	_, err := r.tr.Post(r.lane(0, 1), []channel.Request{signalReq(0, 1)})
	assert.ErrorIs(t, err, errs.ErrConfig, "not connected")
	l := r.connect(0, 1)
	n, err := r.tr.Post(l, []channel.Request{putReq(0, make([]byte, 4)), putReq(0, make([]byte, 5))})
	assert.Equal(t, 1, n)
	assert.ErrorIs(t, err, errs.ErrCapacity)
	n, err = r.tr.Post(l, []channel.Request{signalReq(0, 1), signalReq(0, 1)})
	assert.Equal(t, 1, n)
	assert.ErrorIs(t, err, errs.ErrCapacity)
	_, err = r.tr.Post(r.connect(0, 1), []channel.Request{{Desc: channel.Desc{Op: channel.OpBatch}}})
	assert.ErrorIs(t, err, errs.ErrUnsupported)
	r.drain(2)
	_, err = r.tr.Register(context.Background(), 0, heap.RegionHeap, heap.Memory{Kind: heap.KindCUDA})
	assert.ErrorIs(t, err, errs.ErrKind)
	_, err = r.tr.Register(context.Background(), 0, heap.RegionHeap, heap.Memory{})
	assert.NoError(t, err)
	assert.NoError(t, r.tr.Deregister(context.Background(), 0, heap.RegionHeap))
	_, mapped := r.tr.Map(1, heap.RegionHeap)
	assert.False(t, mapped)
	r.table.Set(1, heap.RegionHeap, heap.Memory{Size: rigHeap})
	_, err = r.tr.Connect(r.lane(0, 1))
	assert.ErrorIs(t, err, errs.ErrUnsupported, "not mapped")
}

func TestBroken(t *testing.T) {
	many := func(r *rig, l *channel.Lane) {
		for i := range uint64(30) {
			r.post(l, putReq(i*8, bytes.Repeat([]byte{1}, 8)), signalReq(1024, 1))
		}
	}
	r := newRig(t, 2, Config{Broken: UnorderedLane})
	l := r.connect(0, 1)
	many(r, l)
	require.Empty(t, r.drain(60))
	assert.Positive(t, r.f.Stats().Unordered)
	assert.Equal(t, []string{"broken on purpose: unordered lane"}, r.tr.Describe().Notes)

	r = newRig(t, 2, Config{Broken: EarlySignal})
	l = r.connect(0, 1)
	req := putReq(0, []byte("payload."))
	req.SigOp, req.SigOff, req.SigVal = channel.SigAdd, 1024, 1
	r.post(l, req)
	for *r.word(1, 1024) == 0 {
		r.tick()
	}
	assert.Zero(t, *r.word(1, 0))
	require.Empty(t, r.drain(1))
	assert.Equal(t, "payload.", string(r.mem[1][:8]))
	assert.Equal(t, uint64(1), *r.word(1, 1024), "raised once")

	r = newRig(t, 2, Config{Broken: EarlyAck, Seed: 1})
	l = r.connect(0, 1)
	land := func() uint64 { return atomic.LoadUint64(r.word(1, 0)) } // the clock ticks by itself
	var unseen bool
	for want := uint64(1); !unseen; want++ {
		r.post(l, signalReq(0, 1))
		require.Empty(t, r.drain(1))
		unseen = land() < want
		require.Less(t, want, uint64(1000))
	}
	for land() < r.f.Stats().Posted {
		r.tick()
	}
	assert.Equal(t, "broken(9)", Broken(9).String())
}

func TestRecord(t *testing.T) {
	r := newRig(t, 2, Config{Record: 4})
	l := r.connect(0, 1)
	r.post(l, signalReq(0, 1), signalReq(0, 1))
	r.drain(2)
	e := r.f.Events()
	require.Len(t, e, 4)
	assert.True(t, slices.IsSortedFunc(e, func(a, b Event) int { return int(a.Tick - b.Tick) }))
	assert.Equal(t, "completed", e[3].What)
	assert.True(t, strings.HasSuffix(e[3].String(), "completed signal 0>1/0 #0"), e[3])
	assert.Equal(t, "in-process, for tests, seed 0", r.tr.Describe().Detail)
}

// An aligned word moves in one access; every size moves.
func TestMove(t *testing.T) {
	src := make([]uint64, 4)
	for i := range src {
		src[i] = rand.Uint64()
	}
	s := unsafe.Slice((*byte)(unsafe.Pointer(&src[0])), 32)
	for n := range 17 {
		for off := range 9 {
			dst := make([]uint64, 4)
			d := unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 32)
			move(unsafe.Pointer(&d[off]), unsafe.Pointer(&s[off]), uintptr(n))
			want := make([]byte, 32)
			copy(want[off:off+n], s[off:off+n])
			require.Equal(t, want, d)
		}
	}
}
