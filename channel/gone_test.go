package channel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/internal/errs"
)

// A peer that leaves before a lane to it is connected will not connect any more:
// what is queued fails, instead of holding up Close. A connected lane goes on.
func TestPeerGone(t *testing.T) {
	r := newRig(t, 2, 8, 4, 16, 1)
	d, p := put(64, []byte("12345678"))
	r.f.connectIn = 0
	r.wait(r.submit(0, d, p).Done)
	r.f.connectIn = 1 << 30 // no answer from peer 1
	stuck := r.submit(1, d, p)
	gone := &errs.ClosedError{PE: 1}
	for i := range 2 {
		r.lanes[i].Load().PeerGone(gone)
	}
	r.wait(stuck.Done)
	require.ErrorIs(t, stuck.Err(), errs.ErrClosed)
	_, err := r.p.TrySubmit(r.lanes[1].Load(), &d, p)
	require.ErrorIs(t, err, errs.ErrClosed)
	again := r.submit(0, d, p)
	r.wait(again.Done)
	require.NoError(t, again.Err())
}
