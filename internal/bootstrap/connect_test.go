package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/internal/errs"
)

func TestConnect(t *testing.T) {
	addr := testAddress(t)
	const n = 3
	// Worlds one after the other at one address, of different sizes.
	for round := range 4 {
		size := n - round%2
		var wg sync.WaitGroup
		for r := range size {
			wg.Go(func() {
				ctx := testContext(t)
				m, err := Connect(ctx, Launch{Rank: r, Size: size, Rendezvous: addr, Secret: []byte("s")}.Config())
				if err != nil {
					t.Error(err)
					return
				}
				all := []int{0, 1, 2}[:size]
				blobs, err := m.Gather(ctx, "x", all, []byte(fmt.Sprint(round)))
				if err != nil || string(blobs[size-1]) != fmt.Sprint(round) {
					t.Error(blobs, err)
				}
				if err := errors.Join(m.Goodbye(), m.Close(), m.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

func TestConnectAlone(t *testing.T) {
	m, err := Connect(testContext(t), ConnectConfig{Size: 1})
	require.NoError(t, err)
	_, err = m.Gather(testContext(t), "x", []int{0}, nil)
	require.NoError(t, err)
	require.NoError(t, m.Goodbye())
	require.NoError(t, m.Close())
}

func TestConnectByALauncher(t *testing.T) {
	hub, addr := newHub(t, HubConfig{Size: 2, Holder: HolderLauncher})
	var wg sync.WaitGroup
	for r := range 2 {
		wg.Go(func() {
			m, err := Connect(testContext(t), Launch{Rank: r, Size: 2, Rendezvous: addr, HubExternal: true}.Config())
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(m.Goodbye(), m.Close()); err != nil || m.Holder() != HolderLauncher {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.NoError(t, hub.Drain(testContext(t)))
}

func TestConnectWithoutTheOthers(t *testing.T) {
	cfg := ConnectConfig{Address: testAddress(t), Size: 3, JoinDeadline: 200 * time.Millisecond}
	other := make(chan error, 1)
	go func() {
		cfg := cfg
		cfg.Rank, cfg.JoinDeadline = 1, deadline
		_, err := Connect(context.Background(), cfg)
		other <- err
	}()
	_, err := Connect(testContext(t), cfg)
	var te *errs.TimeoutError
	require.ErrorAs(t, err, &te)
	require.Contains(t, te.Missing, 2)
	if err := <-other; !errors.Is(err, errs.ErrTimeout) { // it joined in time, or not at all
		require.ErrorIs(t, err, errs.ErrClosed)
	}
	cfg.Rank = 2
	_, err = Connect(testContext(t), cfg)
	require.ErrorIs(t, err, errs.ErrTimeout)
	ctx, cancel := context.WithCancel(context.Background())
	go cancel()
	cfg.Rank, cfg.JoinDeadline = 0, 0
	_, err = Connect(ctx, cfg)
	require.ErrorIs(t, err, context.Canceled)
}

func TestConnectBadConfig(t *testing.T) {
	for _, c := range []ConnectConfig{
		{}, {Size: 2, Rank: 2}, {Size: 2}, {Size: 2, Rank: 1}, {Size: 1, LeaveDeadline: -1}, {Size: 1, JoinDeadline: -1}, {Size: 1, HubExternal: true},
	} {
		_, err := Connect(testContext(t), c)
		require.ErrorIs(t, err, errs.ErrConfig, "%+v", c)
	}
	// Another job holds the address.
	_, addr := newHub(t, HubConfig{Size: 2})
	_, err := Connect(testContext(t), ConnectConfig{Size: 2, Address: addr, JoinDeadline: 50 * time.Millisecond})
	require.ErrorIs(t, err, errs.ErrConfig)
	require.ErrorContains(t, err, "somebody listens there")
}

// Rank 0's Close keeps the hub for those who are still there, within its deadline.
func TestHolderLeavesLast(t *testing.T) {
	addr := testAddress(t)
	cfg := ConnectConfig{Address: addr, Size: 2, LeaveDeadline: 50 * time.Millisecond}
	late := make(chan Member, 1)
	go func() {
		cfg := cfg
		cfg.Rank = 1
		m, err := Connect(context.Background(), cfg)
		if err != nil {
			t.Error(err)
		}
		late <- m
	}()
	m, err := Connect(testContext(t), cfg)
	require.NoError(t, err)
	other := <-late
	events := record(t, other)
	require.NoError(t, m.Goodbye())
	var te *errs.TimeoutError
	require.ErrorAs(t, m.Close(), &te)
	require.Equal(t, []int{1}, te.Missing)
	events.expect(EventGoodbye, 0)
	events.expect(EventHubClosed, -1)
	var closed *errs.ClosedError
	require.ErrorAs(t, other.Send(1, nil), &closed)
	require.Equal(t, 0, closed.PE)
	require.NoError(t, other.Close())
}
