package pe

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/internal/errs"
)

// A PE that ends because it was told of a loss is lost too. The others name the
// one that was lost first, not the one with the lowest rank.
func TestFirstLossIsNamed(t *testing.T) {
	w := &World{size: 4, state: make([]peerState, 4)}
	w.markLost(2, &errs.PeerLostError{PE: 2, Cause: "killed"})
	w.markLost(1, &errs.PeerLostError{PE: 1, Cause: "gave up over pe 2"})
	w.markLost(2, &errs.PeerLostError{PE: 2, Cause: "once more"})
	here := &PE{world: w, ackedSet: map[int]bool{}}
	here.context = &Context{pe: here}
	team := &Team{pe: here, members: []int{0, 1, 2, 3}}
	want := func(pe int, err error) {
		t.Helper()
		var lost *errs.PeerLostError
		require.ErrorAs(t, err, &lost)
		assert.Equal(t, pe, lost.PE)
	}
	want(2, here.hopeless(team, nil))
	want(2, here.hopeless(team, []int{1, 2}))
	want(1, here.hopeless(team, []int{1, 3}))
	_, err := here.living(team.members)
	want(2, err)
	require.NoError(t, here.AckLost(2))
	want(1, here.hopeless(team, nil))
	_, err = here.living(team.members)
	want(1, err)
	require.NoError(t, here.AckLost(1))
	assert.NoError(t, here.hopeless(team, nil))
	living, err := here.living(team.members)
	assert.NoError(t, err)
	assert.Equal(t, []int{0, 3}, living)
}
