package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/internal/errs"
)

func TestGatherGroupsAndTags(t *testing.T) {
	forEach(t, func(t *testing.T, a attachment) {
		j := a.start(t, HubConfig{Size: 4})
		all := []int{0, 1, 2, 3}
		for range 20 {
			j.complete("x", all...)
		}
		j.complete("x", 1, 3)
		j.complete("x", 2)

		// Two tags in flight, called in different orders.
		ctx := testContext(t)
		a1 := j.gather(ctx, "a", all, 0, 1)
		b1 := j.gather(ctx, "b", all, 2, 3)
		j.pending(2, 4)
		b2 := j.gather(ctx, "b", all, 0, 1)
		a2 := j.gather(ctx, "a", all, 2, 3)
		for _, wait := range []func() map[int]outcome{a1, a2, b1, b2} {
			for r, o := range wait() {
				require.NoError(t, o.err, "rank %d", r)
			}
		}
		j.pending(0, 0)
	})
}

func TestGatherBlobsAreTheCallers(t *testing.T) {
	forEach(t, func(t *testing.T, a attachment) {
		j := a.start(t, HubConfig{Size: 3})
		all := []int{0, 1, 2}
		for _, blob := range [][]byte{nil, {}, bytes.Repeat([]byte{7}, 2<<20)} {
			var wg sync.WaitGroup
			for _, m := range j.members {
				wg.Go(func() {
					mine := bytes.Clone(blob)
					got, err := m.Gather(testContext(t), "x", all, mine)
					if err != nil || len(got) != 3 {
						t.Error(err)
						return
					}
					for _, b := range got {
						if b == nil || !bytes.Equal(b, blob) {
							t.Error("wrong blob")
						}
						clear(b) // the race detector sees blobs that two members share
					}
					clear(mine)
				})
			}
			wg.Wait()
		}
	})
}

func TestGatherBadArguments(t *testing.T) {
	forEach(t, func(t *testing.T, a attachment) {
		j := a.start(t, HubConfig{Size: 3})
		ctx := testContext(t)
		m := j.members[1]
		for _, group := range [][]int{nil, {0, 2}, {1, 0}, {1, 1}, {-1, 1}, {1, 3}} {
			_, err := m.Gather(ctx, "x", group, nil)
			require.ErrorIs(t, err, errs.ErrConfig, "%v", group)
		}
		_, err := m.Gather(ctx, string(make([]byte, maxTag+1)), []int{1}, nil)
		require.ErrorIs(t, err, errs.ErrConfig)
		_, err = m.Gather(ctx, "x", []int{0, 1, 2}, make([]byte, MaxBlob/3+1))
		require.ErrorIs(t, err, errs.ErrCapacity)
		done, cancel := context.WithCancel(ctx)
		cancel()
		_, err = m.Gather(done, "x", []int{0, 1, 2}, nil)
		require.ErrorIs(t, err, context.Canceled)

		require.ErrorIs(t, m.Send(3, nil), errs.ErrPeer)
		require.ErrorIs(t, m.Send(-1, nil), errs.ErrPeer)
		require.ErrorIs(t, m.Send(0, make([]byte, MaxMessage+1)), errs.ErrCapacity)
		_, ok := m.Peer(3)
		require.False(t, ok)
		j.complete("x", 0, 1, 2) // none of these counted as a call
	})
}

// manualDeadline is a context whose deadline passes when the test says so.
type manualDeadline struct {
	context.Context
	done chan struct{}
}

func newManualDeadline() manualDeadline {
	return manualDeadline{context.Background(), make(chan struct{})}
}

func (c manualDeadline) Done() <-chan struct{} { return c.done }

func (c manualDeadline) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestGatherDeadlineNamesTheMissing(t *testing.T) {
	forEach(t, func(t *testing.T, a attachment) {
		j := a.start(t, HubConfig{Size: 4})
		all := []int{0, 1, 2, 3}
		patient := j.gather(testContext(t), "x", all, 1)
		j.pending(1, 1)
		short := newManualDeadline()
		hasty := j.gather(short, "x", all, 2)
		j.pending(1, 2)
		close(short.done)
		for r, o := range merge(patient(), hasty()) {
			var te *errs.TimeoutError
			require.ErrorAs(t, o.err, &te, "rank %d", r)
			require.Equal(t, []int{0, 3}, te.Missing)
			require.EqualValues(t, 4, te.Want)
			require.EqualValues(t, 2, te.Have)
			require.True(t, errors.Is(o.err, errs.ErrTimeout))
		}
		// The late callers get the same error; then all is in step again.
		for r, o := range j.gather(testContext(t), "x", all, 0, 3)() {
			var te *errs.TimeoutError
			require.ErrorAs(t, o.err, &te, "rank %d", r)
			require.Equal(t, []int{0, 3}, te.Missing)
		}
		j.pending(0, 0)
		j.complete("x", all...)
	})
}

func TestGatherCancelled(t *testing.T) {
	forEach(t, func(t *testing.T, a attachment) {
		j := a.start(t, HubConfig{Size: 3})
		all := []int{0, 1, 2}
		why := errors.New("changed my mind")
		ctx, cancel := context.WithCancelCause(testContext(t))
		quitter := j.gather(ctx, "x", all, 0)
		other := j.gather(testContext(t), "x", all, 1)
		j.pending(1, 2)
		cancel(why)
		got := quitter()[0]
		require.ErrorIs(t, got.err, context.Canceled)
		require.ErrorIs(t, got.err, why)
		for _, r := range []int{1, 2} {
			wait := other
			if r == 2 {
				wait = j.gather(testContext(t), "x", all, 2)
			}
			o := wait()[r]
			var ab *AbortedError
			require.ErrorAs(t, o.err, &ab)
			require.Equal(t, AbortedError{PE: 0, Missing: []int{2}}, *ab)
			require.ErrorIs(t, o.err, context.Canceled)
			require.NotErrorIs(t, o.err, errs.ErrTimeout)
		}
		j.complete("x", all...)
	})
}

func merge(ms ...map[int]outcome) map[int]outcome {
	all := make(map[int]outcome)
	for _, m := range ms {
		for r, o := range m {
			all[r] = o
		}
	}
	return all
}

func TestLoss(t *testing.T) {
	for _, how := range []string{"close", "hub"} {
		forEach(t, func(t *testing.T, a attachment) {
			t.Run(how, func(t *testing.T) {
				j := a.start(t, HubConfig{Size: 4, FailureDeadline: 2 * time.Second})
				var events []*recorder
				for _, m := range j.members {
					events = append(events, record(t, m))
				}
				launcher := record(t, j.hub)
				all := []int{0, 1, 2, 3}
				wait := j.gather(testContext(t), "x", all, 0, 2, 3)
				rest := j.gather(testContext(t), "rest", []int{0, 2, 3}, 0, 2)
				j.pending(2, 5)
				cause := "closed without goodbye"
				if how == "close" {
					require.NoError(t, j.members[1].Close())
				} else {
					cause = "signal: killed"
					require.NoError(t, j.hub.Lost(1, cause))
					require.NoError(t, j.hub.Lost(1, "twice"))
				}
				for r, o := range wait() {
					var lost *errs.PeerLostError
					require.ErrorAs(t, o.err, &lost, "rank %d", r)
					require.Equal(t, 1, lost.PE)
					require.ErrorIs(t, o.err, errs.ErrPeerLost)
				}
				for _, r := range []int{0, 2, 3} {
					ev := events[r].expect(EventLost, 1)
					if !a.remote(1) {
						require.Equal(t, cause, ev.Cause)
					}
					require.ErrorIs(t, j.members[r].Send(1, nil), errs.ErrPeerLost)
					require.NoError(t, j.members[r].Err())
				}
				launcher.expect(EventLost, 1)
				if how == "hub" {
					events[1].expect(EventLost, 1)
				}
				_, err := j.members[1].Gather(testContext(t), "x", all, nil)
				if how == "hub" {
					var lost *errs.PeerLostError
					require.ErrorAs(t, err, &lost)
					require.Equal(t, 1, lost.PE)
					require.ErrorIs(t, j.members[1].Send(0, nil), errs.ErrPeerLost)
					require.ErrorIs(t, j.members[1].Goodbye(), errs.ErrPeerLost)
				} else {
					require.ErrorIs(t, err, errs.ErrClosed)
				}
				// Sticky: further gathers fail, the rest goes on, the rank stays out.
				for _, o := range j.gather(testContext(t), "x", all, 2)() {
					require.ErrorIs(t, o.err, errs.ErrPeerLost)
				}
				last := j.gather(testContext(t), "rest", []int{0, 2, 3}, 3)
				for _, o := range merge(rest(), last()) {
					require.NoError(t, o.err)
				}
				j.complete("more", 0, 2, 3)
				_, err = a.attach(testContext(t), j.hub, j.address, 1)
				require.ErrorIs(t, err, errs.ErrPeerLost)
				j.pending(0, 0)
			})
		})
	}
}

func TestGoodbye(t *testing.T) {
	forEach(t, func(t *testing.T, a attachment) {
		j := a.start(t, HubConfig{Size: 3})
		var events []*recorder
		for _, m := range j.members {
			events = append(events, record(t, m))
		}
		launcher := record(t, j.hub)
		all := []int{0, 1, 2}
		wait := j.gather(testContext(t), "x", all, 0, 2)
		j.pending(1, 2)
		require.NoError(t, j.members[1].Send(0, []byte("last words")))
		require.NoError(t, j.members[1].Goodbye())
		require.NoError(t, j.members[1].Goodbye())
		for _, o := range wait() {
			var closed *errs.ClosedError
			require.ErrorAs(t, o.err, &closed)
			require.Equal(t, 1, closed.PE)
		}
		require.Equal(t, Event{Kind: EventMessage, PE: 1, Blob: []byte("last words")}, events[0].next())
		require.Equal(t, Event{Kind: EventGoodbye, PE: 1}, events[0].next())
		require.Equal(t, Event{Kind: EventGoodbye, PE: 1}, events[2].next())
		launcher.expect(EventGoodbye, 1)

		require.ErrorIs(t, j.members[0].Send(1, nil), errs.ErrClosed)
		_, err := j.members[1].Gather(testContext(t), "x", all, nil)
		require.ErrorIs(t, err, errs.ErrClosed)
		require.ErrorIs(t, j.members[1].Send(0, nil), errs.ErrClosed)
		require.ErrorIs(t, j.members[1].Err(), errs.ErrClosed)
		_, err = j.members[2].Gather(testContext(t), "x", all, nil)
		require.ErrorIs(t, err, errs.ErrClosed)
		j.complete("x", 0, 2)

		// One that has left still hears of the others, until it closes; that is no loss.
		require.NoError(t, j.hub.Lost(1, "its process ended"))
		require.NoError(t, j.members[2].Goodbye())
		require.Equal(t, Event{Kind: EventGoodbye, PE: 2}, events[1].next())
		require.NoError(t, j.members[1].Close())
		require.NoError(t, j.members[0].Goodbye())
		require.Equal(t, Event{Kind: EventGoodbye, PE: 2}, events[0].next())
		require.Equal(t, Event{Kind: EventGoodbye, PE: 0}, events[2].next())
		require.NoError(t, j.hub.Drain(testContext(t)))
	})
}

func TestSendOrderAndWindow(t *testing.T) {
	forEach(t, func(t *testing.T, a attachment) {
		j := a.start(t, HubConfig{Size: 3})
		// Nobody takes rank 1's events yet: the window fills, the others go on.
		blob := make([]byte, Window/8)
		sent := 0
		for ; ; sent++ {
			require.Less(t, sent, 9)
			if err := j.members[0].Send(1, blob); err != nil {
				require.ErrorIs(t, err, errs.ErrWouldBlock)
				break
			}
		}
		require.Equal(t, 7, sent) // the eighth does not fit, for each counts a little more than its bytes
		require.NoError(t, j.members[2].Send(1, []byte("from 2")))
		j.complete("x", 0, 1, 2)

		events := record(t, j.members[1])
		for range sent + 1 {
			require.Equal(t, EventMessage, events.next().Kind)
		}
		// Credit comes back: any number gets through, in order.
		const n = 1000
		go func() {
			for i := range n {
				b := make([]byte, 10<<10)
				copy(b, fmt.Sprint(i))
				for {
					err := j.members[0].Send(1, b)
					if err == nil {
						break
					}
					if !errors.Is(err, errs.ErrWouldBlock) {
						t.Error(err)
						return
					}
				}
			}
		}()
		for i := range n {
			ev := events.next()
			require.Equal(t, 0, ev.PE)
			require.Equal(t, fmt.Sprint(i), string(bytes.TrimRight(ev.Blob, "\x00")))
		}
		// To oneself, and nothing at all.
		require.NoError(t, j.members[1].Send(1, nil))
		require.Equal(t, Event{Kind: EventMessage, PE: 1, Blob: []byte{}}, events.next())
	})
}

func TestMessagesFromWithinTheEventFunction(t *testing.T) {
	forEach(t, func(t *testing.T, a attachment) {
		j := a.start(t, HubConfig{Size: 2})
		const hops = 500
		done := make(chan struct{})
		for i, m := range j.members {
			m.OnEvent(func(ev Event) {
				if ev.Kind != EventMessage {
					return
				}
				if ev.Blob[0]++; ev.Blob[0] == 0 {
					ev.Blob[1]++
				}
				if int(ev.Blob[0])+int(ev.Blob[1])<<8 == hops {
					close(done)
					return
				}
				if err := m.Send(1-i, ev.Blob); err != nil {
					t.Error(err)
				}
			})
		}
		require.NoError(t, j.members[0].Send(1, []byte{0, 0}))
		select {
		case <-done:
		case <-testContext(t).Done():
			t.Fatal("stuck")
		}
	})
}

func TestHubClose(t *testing.T) {
	forEach(t, func(t *testing.T, a attachment) {
		j := a.start(t, HubConfig{Size: 3, Holder: HolderLauncher})
		events := record(t, j.members[0])
		wait := j.gather(testContext(t), "x", []int{0, 1, 2}, 0, 1)
		j.pending(1, 2)
		require.NoError(t, j.members[2].Goodbye())
		wait()
		wait = j.gather(testContext(t), "x", []int{0, 1}, 0)
		j.pending(1, 1)
		require.NoError(t, j.hub.Close())
		for _, o := range wait() {
			require.ErrorIs(t, o.err, errs.ErrClosed)
		}
		events.expect(EventHubClosed, -1)
		_, err := j.members[0].Gather(testContext(t), "x", []int{0}, nil)
		require.ErrorIs(t, err, errs.ErrClosed)
		require.ErrorIs(t, j.members[0].Send(1, nil), errs.ErrClosed)
		select {
		case <-j.hub.Done():
		default:
			t.Fatal("not done")
		}
		require.NoError(t, j.members[0].Close())
		require.Empty(t, events.ch)
	})
}

func TestPeers(t *testing.T) {
	forEach(t, func(t *testing.T, a attachment) {
		j := a.start(t, HubConfig{Size: 3, HostID: "here"})
		for _, m := range j.members {
			require.Equal(t, 0, m.Holder())
			require.Equal(t, 3, m.Size())
			for r := range 3 {
				p, ok := m.Peer(r)
				require.True(t, ok)
				require.Equal(t, Peer{Rank: r, PID: os.Getpid(), HostID: "here"}, p)
			}
		}
		p, ok := j.hub.Peer(2)
		require.True(t, ok)
		require.Equal(t, os.Getpid(), p.PID)
		_, ok = j.hub.Peer(3)
		require.False(t, ok)
	})
}
