package bootstrap

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A thousand hubs, opened and closed in all states, leave nothing behind.
func TestNothingIsLeft(t *testing.T) {
	fds, goroutines := warmFDs(t), runtime.NumGoroutine()
	ctx := testContext(t)
	for i := range 1000 {
		hub, err := NewHub(HubConfig{Size: 3})
		require.NoError(t, err)
		addr := testAddress(t)
		l, err := Listen(addr)
		require.NoError(t, err)
		require.NoError(t, hub.Serve(l))
		a, err := hub.Local(0)
		require.NoError(t, err)
		a.OnEvent(func(Event) {})
		b, err := Dial(ctx, DialConfig{Address: addr, Rank: 1, Size: 3})
		require.NoError(t, err)
		b.OnEvent(func(Event) {})
		if i%2 == 0 {
			require.NoError(t, b.Send(0, []byte("x")))
			require.NoError(t, b.Goodbye())
		}
		half := rawDial(t, addr)
		switch i % 3 {
		case 0:
			require.NoError(t, hub.Close())
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
		case 1:
			require.NoError(t, b.Close())
			require.NoError(t, a.Close())
			require.NoError(t, hub.Close())
		default:
			require.NoError(t, a.Close())
			require.NoError(t, hub.Close())
			require.NoError(t, b.Close())
		}
		require.NoError(t, half.Close())
	}
	for until := time.Now().Add(deadline); runtime.NumGoroutine() > goroutines && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
	steadyFDs(t, fds)
}
