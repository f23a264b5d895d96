package bootstrap

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/internal/errs"
)

// court is a hub's state with size ranks, of which all are alive.
func court(size, holder int) *Hub {
	h := bareHub(size)
	h.cfg.Holder = holder
	for r := range size {
		h.admit(r, &fakeSink{}, Peer{Rank: r, PID: 1}, nil)
	}
	return h
}

func (h *Hub) lostRanks() (all []int) {
	for r := range h.slots {
		if h.slots[r].state == stateLost {
			all = append(all, r)
		}
	}
	return all
}

func TestFeuds(t *testing.T) {
	type word [2]int // who accuses whom
	for name, c := range map[string]struct {
		holder int
		rounds [][]word // settled one after the other
		lost   []int
	}{
		"the lower rank stays":        {-1, [][]word{{{1, 2}}}, []int{2}},
		"whoever tells":               {-1, [][]word{{{2, 1}}}, []int{2}},
		"both tell":                   {-1, [][]word{{{2, 1}, {1, 2}}}, []int{2}},
		"the holder stays":            {2, [][]word{{{1, 2}}}, []int{1}},
		"who is cut off from several": {-1, [][]word{{{2, 1}, {3, 1}}}, []int{1}},
		"one that accuses everybody":  {-1, [][]word{{{1, 0}, {1, 2}, {1, 3}}}, []int{1}},
		"and one after the other":     {-1, [][]word{{{1, 2}}, {{1, 3}}, {{1, 0}}}, []int{1, 2}},
		"the holder that accuses all": {0, [][]word{{{0, 1}, {0, 2}, {0, 3}}}, []int{0}},
		"two pairs":                   {-1, [][]word{{{0, 1}, {2, 3}}}, []int{1, 3}},
		"the dead are not accused":    {-1, [][]word{{{1, 2}}, {{3, 2}, {0, 2}}}, []int{2}},
	} {
		h := court(4, c.holder)
		for _, round := range c.rounds {
			for _, w := range round {
				require.NoError(t, h.receive(w[0], h.slots[w[0]].sink, &msg{kind: kindAccuse, src: w[0], dst: w[1], text: "x"}), name)
			}
			h.settleFeuds()
		}
		require.Equal(t, c.lost, h.lostRanks(), name)
		require.Empty(t, h.feuds, name)
	}
	h := court(2, -1)
	require.NoError(t, h.receive(1, h.slots[1].sink, &msg{kind: kindAccuse, src: 1, dst: 1, text: "I give up"}))
	require.Equal(t, []int{1}, h.lostRanks())
	require.Equal(t, "I give up", h.slots[1].cause)
	for _, dst := range []int{-1, 2} {
		require.ErrorIs(t, h.receive(0, h.slots[0].sink, &msg{kind: kindAccuse, src: 0, dst: dst}), errWire)
	}
}

// Who dies of something else after the word settles it; and nobody is judged who
// was not heard since.
func TestFeudWaitsForLife(t *testing.T) {
	j, _ := newJudged(t, 1<<20)
	j.h.admit(0, &fakeSink{}, Peer{Rank: 0, PID: 1}, nil)
	require.NoError(t, j.h.accuse(0, 1, "x"))
	for range silentTicks {
		j.h.ticks++
		j.tick(1)
		j.h.settleFeuds()
	}
	require.Equal(t, []int{1}, j.h.lostRanks())
	require.Contains(t, j.h.slots[1].cause, "silent")
	require.Empty(t, j.h.feuds)
	require.Zero(t, j.h.slots[0].blamed)
}

// All learn of a connection that broke, however they are attached, and the world
// goes on without one of the two.
func TestAccuse(t *testing.T) {
	forEach(t, func(t *testing.T, a attachment) {
		j := a.start(t, HubConfig{Size: 4, Holder: HolderLauncher, FailureDeadline: 200 * time.Millisecond, Heartbeat: 10 * time.Millisecond})
		for _, bad := range []int{-1, 4} {
			require.ErrorIs(t, j.members[1].Accuse(bad, "x"), errs.ErrPeer)
		}
		recs := make([]*recorder, 4)
		for r, m := range j.members {
			recs[r] = record(t, m)
		}
		require.NoError(t, j.members[1].Accuse(2, "its socket broke"))
		for _, r := range recs {
			require.Equal(t, "its connection with pe 1 broke, says pe 1: its socket broke", r.expect(EventLost, 2).Cause)
		}
		require.ErrorIs(t, j.members[2].Accuse(1, "no"), errs.ErrPeerLost)
		j.complete("after", 0, 1, 3)

		require.NoError(t, j.members[3].Accuse(3, "I give up"))
		require.NoError(t, j.members[3].Close())
		for _, r := range []int{0, 1} {
			require.Equal(t, "I give up", recs[r].expect(EventLost, 3).Cause)
		}
		j.complete("at last", 0, 1)
	})
}

// Who broke with one that died by itself is no worse for it.
func TestFeudWithTheDead(t *testing.T) {
	for range 20 { // feuds are looked at in any order
		h := court(4, -1)
		for _, pe := range []int{3, 1} {
			require.NoError(t, h.accuse(0, pe, "x"))
		}
		h.lose(3, "it died")
		h.settleFeuds()
		require.Equal(t, []int{1, 3}, h.lostRanks())
	}
}
