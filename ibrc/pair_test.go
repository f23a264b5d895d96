package ibrc_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"goshmem/channel"
	"goshmem/ibrc"
	"goshmem/ibrc/mock"
	"goshmem/internal/errs"
	"goshmem/internal/suite"
)

// mocks makes a rig whose providers it returns.
func mocks(t testing.TB, pes int, set func(pe int, p *mock.Provider)) (*rig, []*mock.Provider) {
	hub, all := &mock.Hub{}, make([]*mock.Provider, pes)
	r := newRig(t, pes, func(pe int) ibrc.NewProvider {
		return mock.New(hub, func(p *mock.Provider) {
			p.L.AnyMemory, p.L.Agent, p.L.Send = true, true, 0
			all[pe] = p
			if set != nil {
				set(pe, p)
			}
		})
	})
	return r, all
}

// A put with an added signal is one chain, {WRITE, FETCH_AND_ADD}, of which the
// last is signalled; a set is an inline WRITE.
func TestChain(t *testing.T) {
	var seen []ibrc.WR
	r, all := mocks(t, 2, func(_ int, p *mock.Provider) {
		p.Refuse = func(wr *ibrc.WR) error { seen = append(seen, *wr); return nil }
	})
	l := r.lane(0, 1)
	r.connect(l, false)
	src := make([]byte, 100)
	for i, op := range []channel.SigOp{channel.SigAdd, channel.SigSet} {
		chains := all[0].Chains
		n, err := r.trs[0].Post(l, []channel.Request{putSignal(src, 256, 64, op, 7)})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, chains+1, all[0].Chains)
		until(t, func() bool { n, _ := r.poll(); return n == 1 })
		require.Len(t, seen, 2*(i+1))
	}
	require.Equal(t, []ibrc.Opcode{ibrc.OpWrite, ibrc.OpFetchAdd, ibrc.OpWrite, ibrc.OpWrite},
		[]ibrc.Opcode{seen[0].Op, seen[1].Op, seen[2].Op, seen[3].Op})
	require.Zero(t, seen[0].Flags)
	require.Equal(t, ibrc.WRSignalled, seen[1].Flags)
	require.Equal(t, ibrc.WRSignalled|ibrc.WRInline, seen[3].Flags)
	require.Equal(t, uint64(7), r.word(1, 64).Load())
}

// A pair is made from either side, or from both at once, with handles in any
// order; then both sides use it.
func TestConnect(t *testing.T) {
	for _, c := range []struct{ first, both, turned bool }{{first: true}, {}, {both: true}, {both: true, turned: true}} {
		r, _ := mocks(t, 2, nil)
		a, b := r.lane(0, 1), r.lane(1, 0)
		switch {
		case c.both:
			until(t, func() bool {
				x, err := a.Config().Transport.Connect(a)
				require.NoError(t, err)
				y, err := b.Config().Transport.Connect(b)
				require.NoError(t, err)
				r.deliver(c.turned)
				r.poll()
				return x && y
			})
		case c.first:
			r.connect(a, false)
			r.connect(b, false)
		default:
			r.connect(b, false)
			r.connect(a, false)
		}
		self := r.lane(0, 0)
		r.connect(self, false)
		for _, l := range []*channel.Lane{a, b, self} {
			n, err := l.Config().Transport.Post(l, []channel.Request{putSignal(nil, 0, 8, channel.SigAdd, 1)})
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
		done := 0
		until(t, func() bool { n, _ := r.poll(); done += n; return done == 3 })
		require.Equal(t, uint64(2), r.word(0, 8).Load())
		require.Equal(t, uint64(1), r.word(1, 8).Load())
	}
}

// An end that cannot be made, or cannot connect, says so: the other one fails, and does
// not wait for ever.
func TestRefusedConnection(t *testing.T) {
	why := fmt.Errorf("no more: %w", errs.ErrCapacity)
	for name, set := range map[string]func(p *mock.Provider){
		"not made":      func(p *mock.Provider) { p.NoQP = why },
		"not connected": func(p *mock.Provider) { p.NoConnect = why },
	} {
		for _, confirm := range []bool{false, true} {
			r, _ := mocks(t, 2, func(pe int, p *mock.Provider) {
				if p.L.Confirm = confirm; pe == 1 {
					set(p)
				}
			})
			a, b := r.lane(0, 1), r.lane(1, 0)
			if !confirm && name == "not connected" {
				continue // its peer needs nothing of it
			}
			var err error
			until(t, func() bool {
				_, err = r.trs[0].Connect(a)
				r.deliver(false)
				r.poll()
				return err != nil
			})
			require.ErrorContains(t, err, "its end says: ")
			require.ErrorContains(t, err, "no more")
			require.ErrorIs(t, err, errs.ErrUnsupported)
			_, err = r.trs[1].Connect(b)
			require.ErrorIs(t, err, errs.ErrCapacity, name)
			r.deliver(false)
			r.poll()
			require.Empty(t, r.mail, "nobody answers a refusal")
		}
	}
}

// An end that could not be made is refused for good: when it can be made later, its own
// way, it hears so, and does not wait for a handle that was dropped.
func TestRefusedForGood(t *testing.T) {
	r, all := mocks(t, 2, nil)
	all[1].NoQP = fmt.Errorf("no more: %w", errs.ErrCapacity)
	a, b := r.lane(0, 1), r.lane(1, 0)
	failed := func(pe int, l *channel.Lane) (err error) {
		until(t, func() bool {
			_, err = r.trs[pe].Connect(l)
			r.deliver(false)
			r.poll()
			return err != nil
		})
		return err
	}
	require.ErrorContains(t, failed(0, a), "its end says: ")
	all[1].NoQP = nil
	require.ErrorContains(t, failed(1, b), "its end says: ")
}

// Peers never spoken to cost nothing: no queue pair, no memory.
func TestIdlePeers(t *testing.T) {
	r, all := mocks(t, 64, nil)
	l := r.lane(0, 63)
	for _, p := range all {
		require.Zero(t, p.QPs())
	}
	r.connect(l, false)
	for pe, p := range all {
		want := 0
		if pe == 0 || pe == 63 {
			want = 1
		}
		require.Equal(t, want, p.QPs(), "pe %d", pe)
	}
	require.Empty(t, r.mail)
}

// failing is a lane with five puts, of which the third's signal fails.
func failing(t *testing.T, status ibrc.Status) (*rig, *channel.Lane, []channel.Request) {
	carried := 0
	r, _ := mocks(t, 2, func(_ int, p *mock.Provider) {
		p.Refuse = func(wr *ibrc.WR) error {
			if carried++; carried == 6 {
				return &ibrc.StatusError{Op: wr.Op, Status: status}
			}
			return nil
		}
	})
	l := r.lane(0, 1)
	r.connect(l, false)
	var reqs []channel.Request
	for range 5 {
		reqs = append(reqs, putSignal(make([]byte, 8), 256, 64, channel.SigAdd, 1))
	}
	n, err := r.trs[0].Post(l, reqs)
	require.NoError(t, err)
	require.Equal(t, 5, n)
	return r, l, reqs
}

// A work request that fails is told of as what it is: what came before it is
// complete, it and what follows fail.
func TestFailure(t *testing.T) {
	r, l, reqs := failing(t, ibrc.StatusRemAccess)
	done, failed := 0, []error(nil)
	until(t, func() bool {
		n, f := r.poll()
		done, failed = done+n, append(failed, f...)
		return done == 5
	})
	require.Len(t, failed, 3)
	require.Equal(t, uint64(2), r.word(1, 64).Load())
	require.NotErrorIs(t, failed[0], errs.ErrPeerLost)
	require.NoError(t, r.lost[1])
	require.ErrorContains(t, failed[0], ibrc.StatusRemAccess.String())
	_, err := r.trs[0].Post(l, reqs[:1])
	require.ErrorIs(t, err, failed[0])
	r.trs[0].Abort(l)
	require.Zero(t, func() int { n, _ := r.poll(); return n }())
}

// A peer that does not answer is reported; what is pending waits for the verdict,
// which is not the transport's.
func TestNoAnswer(t *testing.T) {
	r, l, reqs := failing(t, ibrc.StatusRetryExc)
	done := 0
	until(t, func() bool {
		n, failed := r.poll()
		require.Empty(t, failed)
		done += n
		return r.lost[1] != nil && done == 2
	})
	require.ErrorIs(t, r.lost[1], errs.ErrPeerLost)
	require.ErrorContains(t, r.lost[1], ibrc.StatusRetryExc.String())
	for range 3 {
		n, err := r.trs[0].Post(l, reqs[:1])
		require.NoError(t, err)
		require.Zero(t, n)
		n, _ = r.poll()
		require.Zero(t, n)
	}
	r.trs[0].Abort(l)
	require.Zero(t, func() int { n, _ := r.poll(); return n }())
	_, err := r.trs[0].Connect(l)
	require.ErrorIs(t, err, errs.ErrPeerLost)
}

// The suite of amo, on providers of any depth, by an agent at the target:
// no send or completion queue is ever posted beyond its end (mock refuses that).
func TestDepths(t *testing.T) {
	for _, d := range []struct{ sq, cq, reads, inline int }{{1, 1, 1, 0}, {2, 2, 1, 8}, {3, 1, 2, 64}, {64, 5, 16, 64}} {
		t.Run(fmt.Sprintf("%+v", d), func(t *testing.T) {
			suite.Run(t, overMock(2, func(p *mock.Provider) {
				p.L.AnyMemory, p.L.Agent, p.L.Send, p.L.MaxMessage = true, true, 0, 4096
				p.L.SQDepth, p.L.CQDepth, p.L.RDAtomic, p.L.Inline = d.sq, d.cq, d.reads, uint32(d.inline)
			}), suite.AMO())
		})
	}
}

// poster posts puts with signals to a provider that does nothing, n at a time, and
// takes their completions in.
func poster(t testing.TB, n int) (post, poll func()) {
	r, _ := mocks(t, 2, func(_ int, p *mock.Provider) {
		p.Nothing, p.L.Batched, p.L.SQDepth, p.L.CQDepth, p.L.Inline = true, true, 1<<14, 1<<30, 4096
	})
	l := r.lane(0, 1)
	r.connect(l, false)
	reqs := make([]channel.Request, n)
	src := make([]byte, 8)
	for i := range reqs {
		reqs[i] = putSignal(src, 256, 64, channel.SigAdd, 1)
	}
	var out [8]channel.Completion
	return func() {
			if n, err := r.trs[0].Post(l, reqs); n != len(reqs) || err != nil {
				t.Fatal(n, err)
			}
		}, func() {
			r.trs[0].Poll(out[:])
		}
}

func TestPostAllocatesNothing(t *testing.T) {
	for _, n := range []int{1, 16} {
		post, poll := poster(t, n)
		require.Zero(t, testing.AllocsPerRun(1000, func() { post(); poll() }))
	}
}

// BenchmarkPost is what a put with signal costs from the descriptor taken to the
// post, on a provider that does nothing, where one comes at a time and where sixteen do;
// and with the completion's way back, looked for behind each post: by the clock, the median
// and the 99th percentile of batches of 1024, and in processor time, which other programs of
// the machine do not add to.
func BenchmarkPost(b *testing.B) {
	for _, n := range []int{1, 16} {
		post, poll := poster(b, n)
		b.Run(fmt.Sprintf("%d/post", n), func(b *testing.B) { benchmarkPost(b, n, post, poll) })
		b.Run(fmt.Sprintf("%d/post+poll", n), func(b *testing.B) {
			benchmarkPost(b, n, func() { post(); poll() }, func() {})
		})
	}
}

// benchmarkPost times batches of post; between is called behind each.
func benchmarkPost(b *testing.B, n int, post, between func()) {
	const batch = 1024
	var batches []float64
	var used time.Duration
	for b.Loop() {
		cpu, start := cpuTime(), time.Now()
		for range batch / n {
			post()
		}
		took := time.Since(start)
		used += cpuTime() - cpu
		batches = append(batches, float64(took.Nanoseconds())/batch)
		between()
	}
	slices.Sort(batches)
	b.ReportMetric(batches[len(batches)/2], "p50-ns/put-signal")
	b.ReportMetric(batches[len(batches)*99/100], "p99-ns/put-signal")
	b.ReportMetric(float64(used.Nanoseconds())/float64(batch*len(batches)), "cpu-ns/put-signal")
	b.ReportMetric(0, "ns/op")
}

// cpuTime is what this thread has run, to which the caller is bound from now on.
func cpuTime() time.Duration {
	runtime.LockOSThread()
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

func FuzzHandle(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, all := mocks(t, 2, nil)
		if err := r.trs[0].Deliver(0, 1, b); err != nil {
			return
		}
		r.poll() // a queue pair at most, and no panic
		require.LessOrEqual(t, all[0].QPs(), 1)
	})
}
