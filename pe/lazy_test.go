package pe_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/pe"
	"goshmem/rma"
)

// What a world keeps of a peer is made when they first talk: PEs that are silent
// have no lanes and no connections, however many they are, and one pair that talks
// takes as many in a small world as in a large one.
func TestSilentPeersTakeNothing(t *testing.T) {
	for _, path := range []string{"direct", "tcp"} {
		t.Run(path, func(t *testing.T) {
			small, large := uses(t, path, 3), uses(t, path, 12)
			require.Zero(t, large.silent.lanes, "lanes of PEs that never talked")
			require.Equal(t, 1, large.talk.lanes, "lanes of one PE that talked to one")
			require.Equal(t, small.talk.sockets, large.talk.sockets, "sockets that a pair takes")
			require.Equal(t, path == "tcp", large.talk.sockets > 0)
			require.Equal(t, small.silent.sockets, large.silent.sockets, "sockets of a process whose PEs are silent")
		})
	}
}

// use is what was counted.
type use struct{ lanes, sockets int }

type grown struct {
	silent, talk use // talk: beyond silent
}

// uses counts before and after PE 0 puts to PE 1.
func uses(t *testing.T, path string, pes int) (g grown) {
	before := sockets(t)
	err := pe.Run(t.Context(), pe.Config{Size: pes, Path: path, HeapSize: 1 << 20}, func(p *pe.PE) error {
		a, err := pe.Calloc[int64](t.Context(), p, 8)
		if err != nil {
			return err
		}
		meet := func() error { _, err := p.Team().Gather(t.Context(), "meet", nil); return err }
		if err := meet(); err != nil {
			return err
		}
		if p.Rank() == 0 {
			g.silent = use{len(p.World().Stats().Lanes), sockets(t) - before}
			if err := rma.Put(p.Context(), a, []int64{1}, 1); err != nil {
				return err
			}
			if err := rma.Quiet(t.Context(), p.Context()); err != nil {
				return err
			}
			g.talk = use{len(p.World().Stats().Lanes) - g.silent.lanes, sockets(t) - before - g.silent.sockets}
		}
		return meet()
	})
	require.NoError(t, err)
	return g
}

// sockets is how many this process has open.
func sockets(t *testing.T) (n int) {
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}
