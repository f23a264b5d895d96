package bootstrap

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Close returns when the hub has taken the goodbye. Otherwise a rank that joins
// the job's next world at once might be refused, for good, because it is still
// there.
func TestLeftWhenClosed(t *testing.T) {
	ctx := testContext(t)
	hub, addr := newHub(t, HubConfig{Size: 2})
	cfg := DialConfig{Address: addr, Rank: 1, Size: 2}
	m, err := Dial(ctx, cfg)
	require.NoError(t, err)

	hub.mu.Lock() // it takes nothing
	closed := make(chan error, 1)
	go func() {
		err := m.Goodbye()
		if e := m.Close(); err == nil {
			err = e
		}
		closed <- err
	}()
	select {
	case <-closed:
		hub.mu.Unlock()
		t.Fatal("closed before the hub knows")
	case <-time.After(closeGrace / 10):
	}
	hub.mu.Unlock()
	require.NoError(t, <-closed)

	network, name, err := splitAddress(addr)
	require.NoError(t, err)
	require.NoError(t, cfg.complete())
	_, again, err := dialOnce(ctx, network, name, &cfg)
	var r *RefusedError
	require.ErrorAs(t, err, &r)
	require.Equal(t, RefusedLeft, r.Code, r.Reason)
	require.True(t, again)
}
