package launch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/internal/bootstrap"
	"goshmem/internal/errs"
	"goshmem/internal/options"
)

const patience = 30 * time.Second

// meet opens a meeting; events are what it noted so far.
func meet(t *testing.T, n int, join time.Duration) (m *meeting, events func() []bootstrap.Event) {
	t.Helper()
	var mu sync.Mutex
	var noted []bootstrap.Event
	m, err := newMeeting(n, options.Values{JoinTimeout: join, FailureDeadline: patience, Heartbeat: time.Second}, slog.New(slog.DiscardHandler), func(e bootstrap.Event) {
		mu.Lock()
		defer mu.Unlock()
		noted = append(noted, e)
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.close()) })
	return m, func() []bootstrap.Event {
		mu.Lock()
		defer mu.Unlock()
		return append([]bootstrap.Event(nil), noted...)
	}
}

func join(t *testing.T, m *meeting, rank int) (bootstrap.Member, error) {
	t.Helper()
	c := m.launch(rank).Config()
	c.JoinDeadline = patience
	return bootstrap.Connect(context.Background(), c)
}

// together joins all ranks.
func together(t *testing.T, m *meeting, n int) []bootstrap.Member {
	t.Helper()
	members, faults := make([]bootstrap.Member, n), make([]error, n)
	var wg sync.WaitGroup
	for rank := range n {
		wg.Go(func() { members[rank], faults[rank] = join(t, m, rank) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(faults...))
	return members
}

func leave(t *testing.T, members []bootstrap.Member) {
	t.Helper()
	for _, x := range members {
		require.NoError(t, x.Goodbye())
	}
	for _, x := range members {
		require.NoError(t, x.Close())
	}
}

func TestMeetAgainAndAgain(t *testing.T) {
	m, events := meet(t, 3, patience)
	for range 4 {
		members := together(t, m, 3)
		for _, x := range members {
			assert.Equal(t, bootstrap.HolderLauncher, x.Holder())
		}
		leave(t, members)
	}
	for rank := range 3 {
		m.gone(rank, "exit status 0")
	}
	<-m.settled()
	count := map[bootstrap.EventKind]int{}
	for _, e := range events() {
		count[e.Kind]++
	}
	assert.Equal(t, map[bootstrap.EventKind]int{bootstrap.EventJoined: 12, bootstrap.EventGoodbye: 12}, count)
}

// The deadline counts from the first who comes.
func TestFirstComesLate(t *testing.T) {
	m, _ := meet(t, 1, 2*time.Second)
	time.Sleep(2500 * time.Millisecond)
	leave(t, together(t, m, 1))
}

// Who waits is told of processes that ended, before the world began or after;
// losses of those that took no part are not noted.
func TestGone(t *testing.T) {
	for _, before := range []bool{true, false} {
		m, events := meet(t, 3, patience)
		if before {
			m.gone(2, "exit status 4")
		} else {
			time.AfterFunc(50*time.Millisecond, func() { m.gone(2, "exit status 4") })
		}
		_, err := join(t, m, 0)
		var lost *errs.PeerLostError
		require.ErrorAs(t, err, &lost)
		assert.Equal(t, 2, lost.PE)
		assert.Equal(t, "exit status 4", lost.Cause)
		m.gone(0, "exit status 1")
		m.gone(1, "exit status 1")
		<-m.settled()
		for _, e := range events() {
			assert.Equal(t, 0, e.PE, "%v", e)
		}
	}
}

// A world that lost somebody is not followed by another.
func TestNoWorldAfterALoss(t *testing.T) {
	m, events := meet(t, 2, patience)
	members := together(t, m, 2)
	require.NoError(t, members[1].Close()) // without goodbye
	_, err := members[0].Gather(context.Background(), "x", []int{0, 1}, nil)
	assert.ErrorIs(t, err, errs.ErrPeerLost)
	leave(t, members[:1])
	<-m.settled()
	_, err = join(t, m, 1)
	var refused *bootstrap.RefusedError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, bootstrap.RefusedLost, refused.Code)
	last := events()
	assert.Equal(t, bootstrap.EventLost, last[2].Kind)
	assert.Equal(t, 1, last[2].PE)
}

func TestNobodyCame(t *testing.T) {
	m, events := meet(t, 2, patience)
	m.gone(0, "exit status 0")
	m.gone(1, "exit status 0")
	<-m.settled()
	assert.Empty(t, events())
}

func TestMeetingRefuses(t *testing.T) {
	_, err := newMeeting(0, options.Values{}, nil, nil)
	assert.ErrorIs(t, err, errs.ErrConfig)
}
