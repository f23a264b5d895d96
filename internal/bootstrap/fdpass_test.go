package bootstrap

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

// openFDs counts this process's descriptors.
func openFDs(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(d)
}

// steadyFDs waits until no more descriptors are open than before: runtimes and
// peers close some a moment later.
func steadyFDs(t testing.TB, before int) {
	t.Helper()
	require.Eventually(t, func() bool { return openFDs(t) <= before }, deadline, time.Millisecond)
}

func memfd(t *testing.T, content string) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	_, err = unix.Pwrite(fd, []byte(content), 0)
	require.NoError(t, err)
	return fd
}

// warmFDs opens what the runtime keeps open for ever: its poller.
func warmFDs(t *testing.T) int {
	l, err := Listen(testAddress(t))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return openFDs(t)
}

func TestFDPassing(t *testing.T) {
	before := warmFDs(t)
	fd := memfd(t, "shared")
	addr, stop, err := ServeFD([]byte("s"), fd)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd)) // it serves a duplicate

	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			got, err := FetchFD(testContext(t), addr, []byte("s"))
			if err != nil {
				t.Error(err)
				return
			}
			defer unix.Close(got)
			b := make([]byte, 10)
			n, err := unix.Pread(got, b, 0)
			if err != nil || string(b[:n]) != "shared" {
				t.Error(string(b[:n]), err)
			}
			flags, err := unix.FcntlInt(uintptr(got), unix.F_GETFD, 0)
			if err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Error("not close-on-exec", err)
			}
		})
	}
	// Half-open clients hold up nobody, not even stop.
	for range 5 {
		rawDial(t, addr)
	}
	wg.Wait()
	for _, secret := range [][]byte{nil, []byte("another")} {
		_, err = FetchFD(testContext(t), addr, secret)
		require.ErrorIs(t, err, errs.ErrConfig)
	}
	require.NoError(t, stop())
	require.NoError(t, stop())
	_, err = FetchFD(testContext(t), addr, []byte("s"))
	require.ErrorIs(t, err, unix.ECONNREFUSED)
	steadyFDs(t, before+5)
}

func TestFDPassingBadArguments(t *testing.T) {
	_, stop, err := ServeFD(nil, -1)
	require.NoError(t, stop(), "callers defer it before they look at the error")
	require.ErrorIs(t, err, unix.EBADF)
	_, _, err = ServeFD(make([]byte, maxSecret+1), 0)
	require.ErrorIs(t, err, errs.ErrConfig)
	_, err = FetchFD(testContext(t), "somewhere", nil)
	require.ErrorIs(t, err, errs.ErrConfig)
}

// Servers that do not keep to the protocol: an error, and no descriptor stays.
func TestFetchFDFromImpostors(t *testing.T) {
	fd := memfd(t, "x")
	defer unix.Close(fd)
	before := warmFDs(t)
	answer := func(secret string, rights ...int) func(*net.UnixConn) {
		return func(c *net.UnixConn) {
			var nonce [nonceSize]byte
			_, _ = c.Write(nonce[:])
			var ask [nonceSize + macSize]byte
			_, _ = io.ReadFull(c, ask[:])
			mac := proof([]byte(secret), "goshmem fd server 1", ask[:nonceSize], nonce[:])
			var oob []byte
			if len(rights) > 0 {
				oob = unix.UnixRights(rights...)
			}
			_, _, _ = c.WriteMsgUnix(mac[:], oob, nil)
		}
	}
	many := make([]int, 40)
	for i := range many {
		many[i] = fd
	}
	for name, tc := range map[string]struct {
		is    error
		serve func(*net.UnixConn)
	}{
		"secret":    {errs.ErrConfig, answer("wrong", fd)},
		"none":      {errs.ErrUnsupported, answer("s")},
		"two":       {errs.ErrUnsupported, answer("s", fd, fd)},
		"forty":     {errs.ErrUnsupported, answer("s", many...)},
		"silence":   {errs.ErrTimeout, func(c *net.UnixConn) { _, _ = io.Copy(io.Discard, c) }},
		"cancelled": {context.Canceled, func(c *net.UnixConn) { _, _ = io.Copy(io.Discard, c) }},
		"end":       {io.EOF, func(c *net.UnixConn) {}},
	} {
		t.Run(name, func(t *testing.T) {
			addr := testAddress(t)
			l, err := Listen(addr)
			require.NoError(t, err)
			var wg sync.WaitGroup
			wg.Go(func() {
				c, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(deadline))
				tc.serve(c.(*net.UnixConn))
			})
			ctx := testContext(t)
			if name == "silence" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
			}
			if name == "cancelled" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				time.AfterFunc(5*time.Millisecond, cancel)
				defer cancel()
			}
			_, err = FetchFD(ctx, addr, []byte("s"))
			require.ErrorIs(t, err, tc.is)
			require.NoError(t, l.Close())
			wg.Wait()
		})
	}
	steadyFDs(t, before)
}
