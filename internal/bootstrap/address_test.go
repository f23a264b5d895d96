package bootstrap

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/internal/errs"
)

func TestAddresses(t *testing.T) {
	for addr, is := range map[string]error{
		"":              errs.ErrConfig,
		"unix":          errs.ErrConfig,
		"unix:":         errs.ErrConfig,
		"unix:@":        errs.ErrConfig,
		"unix:/":        errs.ErrConfig,
		"unix:relative": errs.ErrConfig,
		":@x":           errs.ErrConfig,
		"unix:@a\x00b":  errs.ErrConfig,
		"unix:@" + strings.Repeat("x", maxSocketName): errs.ErrConfig,
		"127.0.0.1":         errs.ErrConfig,
		"127.0.0.1:":        errs.ErrConfig,
		"127.0.0.1:0":       errs.ErrConfig,
		"127.0.0.1:65536":   errs.ErrConfig,
		"127.0.0.1:05":      errs.ErrConfig,
		"127.0.0.1:+5":      errs.ErrConfig,
		"host:http":         errs.ErrConfig,
		":5000":             errs.ErrConfig,
		"tcp:5000":          errs.ErrConfig,
		"tcp::5000":         errs.ErrConfig,
		"::1:5000":          errs.ErrConfig,
		"user@host:5000":    errs.ErrConfig,
		"192.0.2.1:5000":    errs.ErrConfig, // of no host
		"[2001:db8::1]:500": errs.ErrConfig,
	} {
		_, err := Listen(addr)
		require.ErrorIs(t, err, is, "%q", addr)
	}
	long, err := Listen(testAddress(t) + strings.Repeat("x", 20))
	require.NoError(t, err)
	require.NoError(t, long.Close())
	_, err = Listen("unix:/no/such/folder/s")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestListenAbstract(t *testing.T) {
	addr := testAddress(t)
	l, err := Listen(addr)
	require.NoError(t, err)
	_, err = Listen(addr)
	require.ErrorIs(t, err, errs.ErrConfig)
	require.NoError(t, l.Close())
	l, err = Listen(addr)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func TestListenPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen("unix:" + path)
	require.NoError(t, err)
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, st.Mode().Perm())
	_, err = Listen("unix:" + path)
	require.ErrorIs(t, err, errs.ErrConfig) // somebody listens
	require.NoError(t, l.Close())
	_, err = os.Stat(path)
	require.ErrorIs(t, err, os.ErrNotExist)

	// What a dead process left is replaced, by one of all that want to.
	stale, err := net.Listen("unix", path)
	require.NoError(t, err)
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, stale.Close())
	var wg sync.WaitGroup
	var won atomic.Int32
	release := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			l, err := Listen("unix:" + path)
			if err != nil {
				if os.IsNotExist(err) {
					t.Error(err)
				}
				return
			}
			won.Add(1)
			<-release
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return won.Load() == 1 }, deadline, 1e6)
	close(release)
	wg.Wait()

	// Anything else stays.
	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	_, err = Listen("unix:" + path)
	require.ErrorIs(t, err, errs.ErrConfig)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "mine", string(b))
}
