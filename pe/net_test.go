package pe

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/internal/bootstrap"
	"goshmem/internal/errs"
)

// PEs of other hosts are told no address that leads them to themselves, though the
// rendezvous has one here.
func TestOutwardIsNoLoopback(t *testing.T) {
	for _, want := range []string{"", bootstrap.AnyInterface} {
		listen, _, err := (&nets{meet: "127.0.0.1:1"}).outward(t.Context(), want)
		if err != nil { // there is nothing else
			require.ErrorIs(t, err, errs.ErrConfig)
			continue
		}
		at, err := netip.ParseAddrPort(listen)
		require.NoError(t, err)
		require.False(t, at.Addr().IsLoopback(), "%q: %v", want, at)
	}
}

// A segment that may not be locked is a reason against RDMA where the path is free.
func TestLockable(t *testing.T) {
	require.NoError(t, lockable(1<<20, 1<<20))
	require.ErrorIs(t, lockable(1<<20+1, 1<<20), errs.ErrUnsupported)
}
