package channel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/raceflag"
)

func TestProxyDeliversInOrder(t *testing.T) {
	for _, capacity := range []int{1, 2, 64} {
		for _, window := range []int{1, 3, 64} {
			t.Run(fmt.Sprintf("ring %d window %d", capacity, window), func(t *testing.T) {
				r := newRig(t, 3, capacity, window, 16, uint64(capacity*100+window))
				r.f.connectIn = 5
				const each = 200
				var wg sync.WaitGroup
				for peer := range 3 {
					wg.Add(1)
					go func() {
						defer wg.Done()
						var last Ticket
						for i := range each {
							// Each overwrites the one before: order shows in what remains.
							src := bytes.Repeat([]byte{byte(i)}, 8)
							d, p := put(64, src)
							d.SigOp, d.SigOff, d.SigVal = SigAdd, 128, 1
							last = r.submit(peer, d, p)
						}
						r.wait(last.Done)
					}()
				}
				wg.Wait()
				for peer := range 3 {
					require.Equal(t, bytes.Repeat([]byte{byte(each - 1)}, 8), r.mem[peer][64:72])
					require.Equal(t, uint64(each), *(*uint64)(unsafe.Pointer(&r.mem[peer][128])))
					l := r.lanes[peer].Load()
					require.Equal(t, uint64(each), l.Issued())
					require.Equal(t, uint64(each), l.Acked())
					require.Zero(t, l.Pending())
				}
				require.Zero(t, r.group.Pending())
				require.NoError(t, r.group.TakeFailure())
			})
		}
	}
}

// Longer than the largest message: split, signalled once, on the last piece.
func TestProxySplits(t *testing.T) {
	r := newRig(t, 1, 4, 2, 16, 3)
	r.f.caps.MaxMessage = 7
	src := make([]byte, 1000)
	for i := range src {
		src[i] = byte(i * 7)
	}
	var sizes []uint64
	sigs := 0
	r.f.failAt = func(q *Request) error {
		sizes = append(sizes, q.Size)
		if q.SigOp != SigNone {
			sigs++
		}
		return nil
	}
	d, p := put(8, src)
	d.SigOp, d.SigOff, d.SigVal = SigSet, 4096, 9
	tk := r.submit(0, d, p)
	r.wait(tk.Done)
	require.NoError(t, tk.Err())
	require.Equal(t, src, r.mem[0][8:1008])
	require.Equal(t, 1, sigs)
	require.Equal(t, uint64(9), *(*uint64)(unsafe.Pointer(&r.mem[0][4096])))
	require.Len(t, sizes, 143)
	require.Equal(t, uint64(1), r.lanes[0].Load().Acked())

	back := make([]byte, 1000)
	tk = r.submit(0, Desc{Op: OpGet, Flags: FlagLocalPtr, SrcOff: 8, Size: 1000}, unsafe.Pointer(&back[0]))
	r.wait(tk.Done)
	require.Equal(t, src, back)
}

func TestProxyBatch(t *testing.T) {
	r := newRig(t, 1, 2, 3, 16, 4)
	r.f.caps.MaxMessage = 10
	var items []BatchItem
	want := make([]byte, rigHeap)
	for i := range 40 {
		src := bytes.Repeat([]byte{byte(i + 1)}, i%25)
		items = append(items, BatchItem{Dst: heap.MakeRef(7, heap.RegionHeap, uint64(i*20)), Src: src})
		copy(want[i*20:], src)
	}
	tk := r.submit(0, Desc{Op: OpBatch, Flags: FlagLocalPtr, Size: uint64(len(items))}, unsafe.Pointer(&items[0]))
	r.wait(tk.Done)
	require.NoError(t, tk.Err())
	require.Equal(t, want, r.mem[0])
	require.Equal(t, uint64(1), r.lanes[0].Load().Acked())

	// An item changed after the batch was queued must not reach outside.
	items = []BatchItem{{Dst: heap.MakeRef(7, heap.RegionHeap, 0), Src: []byte{1}}, {Dst: heap.MakeRef(7, heap.RegionHeap, rigHeap), Src: []byte{2}}}
	tk = r.submit(0, Desc{Op: OpBatch, Flags: FlagLocalPtr, Size: 2}, unsafe.Pointer(&items[0]))
	r.wait(tk.Done)
	require.ErrorIs(t, tk.Err(), errs.ErrRange)
	require.ErrorIs(t, r.group.TakeFailure(), errs.ErrRange)
	require.NoError(t, r.group.TakeFailure())
}

// A peer that takes nothing is set aside; the others go on, and its lane pushes
// back on its own producers only.
func TestProxySetsAside(t *testing.T) {
	r := newRig(t, 2, 2, 4, 8, 5)
	r.p.With(func() { r.f.stalled[0] = true })
	src := []byte("12345678")
	d, p := put(0, src)
	stuck := 0
	for {
		if _, err := r.p.TrySubmit(r.lanes[0].Load(), &d, p); err == nil {
			stuck++
		} else if r.lanes[0].Load().Pending() == 8 {
			require.ErrorIs(t, err, errs.ErrWouldBlock)
			break
		}
		r.p.TryPoll()
	}
	require.Equal(t, 8, stuck)
	for range 100 {
		tk := r.submit(1, d, p)
		r.wait(tk.Done)
	}
	require.Equal(t, uint64(0), r.lanes[0].Load().Acked())
	r.p.With(func() { delete(r.f.stalled, 0) })
	r.wait(func() bool { return r.lanes[0].Load().Pending() == 0 })
	require.Equal(t, uint64(8), r.lanes[0].Load().Acked())
}

// A failed operation is passed over by the frontier; its ticket has the error.
func TestProxyFailures(t *testing.T) {
	boom := errors.New("boom")
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("at completion ", late), func(t *testing.T) {
			r := newRig(t, 1, 8, 4, 32, 6)
			fail := func(q *Request) error {
				if q.DstOff == 800 {
					return boom
				}
				return nil
			}
			if late {
				r.f.doneErr = fail
			} else {
				r.f.failAt = fail
			}
			var tks []Ticket
			for i := range 20 {
				d, p := put(uint64(i)*100, []byte{byte(i + 1)})
				tks = append(tks, r.submit(0, d, p))
			}
			r.wait(tks[19].Done)
			for i, tk := range tks {
				require.True(t, tk.Done())
				if i == 8 {
					require.ErrorIs(t, tk.Err(), boom)
				} else {
					require.NoError(t, tk.Err(), i)
					require.Equal(t, byte(i+1), r.mem[0][i*100])
				}
			}
			require.Equal(t, uint64(20), r.lanes[0].Load().Acked())
			require.ErrorIs(t, r.group.TakeFailure(), boom)
		})
	}
}

// A lost lane fails what is queued, in flight and later; the transport is asked
// to abort once.
func TestProxyLoss(t *testing.T) {
	r := newRig(t, 2, 8, 2, 32, 7)
	r.p.With(func() { r.f.stalled[0] = true })
	d, p := put(0, []byte{1})
	var tks []Ticket
	for range 10 {
		tks = append(tks, r.submit(0, d, p))
	}
	lost := &errs.PeerLostError{PE: 0}
	r.p.Lose(r.lanes[0].Load(), lost)
	r.wait(tks[9].Done)
	for _, tk := range tks {
		require.ErrorIs(t, tk.Err(), errs.ErrPeerLost)
	}
	_, err := r.p.TrySubmit(r.lanes[0].Load(), &d, p)
	require.ErrorIs(t, err, errs.ErrPeerLost)
	require.False(t, r.lanes[0].Load().Enter())
	tk := r.submit(1, d, p)
	r.wait(tk.Done)
	require.NoError(t, tk.Err())
	r.p.With(func() { require.Equal(t, 1, r.f.aborted[r.lanes[0].Load()]) })
}

// The background goroutine finishes what nobody waits for, and an idle proxy
// comes back when it is needed.
func TestProxyBackground(t *testing.T) {
	r := newRig(t, 1, 4, 4, 16, 8)
	for range 5 {
		d, p := put(0, []byte{1, 2, 3})
		tk := r.submit(0, d, p)
		await(t, "not done", tk.Done)
		time.Sleep(2 * time.Millisecond) // it parks
	}
}

// Who holds the role while something is queued may leave it without a look at the
// ring; the background goroutine, which parks meanwhile, must not rely on it.
func TestProxyParksBesideTheRole(t *testing.T) {
	r := newRig(t, 1, 4, 4, 16, 12)
	d, p := put(0, []byte{1, 2, 3})
	var tk Ticket
	r.p.With(func() {
		await(t, "never parked", func() bool { return r.p.parked.Load() != 0 })
		var err error
		tk, err = r.p.TrySubmit(r.lanes[0].Load(), &d, p) // wakes it
		require.NoError(t, err)
		await(t, "never parked again", func() bool { return r.p.parked.Load() != 0 })
	})
	await(t, "left in the ring", tk.Done)
}

func TestHook(t *testing.T) {
	r := newRig(t, 1, 1, 1, 4, 9)
	steps, inside := 0, false
	done := make(chan struct{})
	var h *Hook
	h = r.p.AddHook(func() bool {
		if inside {
			t.Error("two steps at once")
		}
		inside = true
		defer func() { inside = false }()
		if steps++; steps == 10 {
			h.Disarm()
			close(done)
		}
		return true
	})
	h.Arm()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("the hook does not run")
	}
	h.Remove()
	h.Arm() // gone: nothing happens
	require.Equal(t, 10, steps)
	require.Zero(t, r.p.work.Load())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(t, r.p.Drain(ctx))
}

func TestProxyAllocsNothing(t *testing.T) {
	r := newRig(t, 1, 64, 64, 128, 10)
	r.f.caps.Synchronous = true
	r.f.failAt = nil
	src := make([]byte, 64)
	// Synchronous, and the fake keeps nothing: a transport of its own.
	r.lanes[0].Load().cfg.Transport = sink{}
	run := func() {
		for range 16 {
			d, p := put(0, src)
			r.submit(0, d, p)
		}
		r.wait(func() bool { return r.group.Pending() == 0 })
	}
	run()
	if raceflag.Enabled {
		t.Log("the race detector allocates: running only")
		run()
		return
	}
	require.Zero(t, testing.AllocsPerRun(50, run))
}

// sink is a transport that does nothing, at once.
type sink struct{ *fake }

func (sink) Caps() Caps                             { return Caps{Synchronous: true} }
func (sink) Connect(*Lane) (bool, error)            { return true, nil }
func (sink) Post(_ *Lane, r []Request) (int, error) { return len(r), nil }
func (sink) Abort(*Lane)                            {}

// BenchmarkPost is what the proxy itself costs a request, from submission to
// acknowledgement, on a transport that does nothing.
func BenchmarkPost(b *testing.B) {
	t := &testing.T{}
	r := newRig(t, 1, 1024, 1024, 4096, 11)
	r.lanes[0].Load().cfg.Transport = sink{}
	d, p := put(0, make([]byte, 8))
	r.p.Begin()
	defer r.p.End()
	b.ReportAllocs()
	for b.Loop() {
		for range 32 {
			if _, err := r.p.TrySubmit(r.lanes[0].Load(), &d, p); err != nil {
				b.Fatal(err)
			}
		}
		for r.group.Pending() != 0 {
			r.p.TryPoll()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/32, "ns/request")
}

// Who queues a signal, or what he waits for, posts it himself where the transport is
// prompt; the background goroutine is asleep.
func TestProxyPrompt(t *testing.T) {
	for _, set := range []func(d *Desc){
		func(d *Desc) { d.SigOp, d.SigVal = SigAdd, 1 },
		func(d *Desc) { d.Flags |= FlagAwaited },
	} {
		r := newRig(t, 1, 4, 4, 16, 10)
		r.lanes[0].Load().prompt = true
		require.Eventually(t, func() bool { return r.p.parked.Load() != 0 }, 20*time.Second, time.Millisecond)
		d, p := put(0, []byte{1})
		set(&d)
		tk := r.submit(0, d, p)
		posts := 0
		r.p.With(func() { posts = r.f.posts })
		require.Equal(t, 1, posts)
		r.wait(tk.Done)
	}
}
