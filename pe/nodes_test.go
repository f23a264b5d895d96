package pe_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"goshmem/channel"
	"goshmem/pe"
)

// Ranks are dealt to nodes in blocks; those of one node reach each other
// directly, the others through a transport.
func TestSimulatedNodes(t *testing.T) {
	for _, c := range []struct {
		size, nodes int
		want        []int
	}{
		{4, 0, []int{0, 0, 0, 0}},
		{4, 1, []int{0, 0, 0, 0}},
		{4, 2, []int{0, 0, 1, 1}},
		{5, 2, []int{0, 0, 0, 1, 1}},
		{5, 3, []int{0, 0, 1, 1, 2}},
		{3, 3, []int{0, 1, 2}},
	} {
		err := pe.Run(t.Context(), pe.Config{Size: c.size, Nodes: c.nodes, HeapSize: 1 << 20}, func(p *pe.PE) error {
			assert.Equal(t, max(c.nodes, 1), p.World().Nodes())
			for to := range p.Size() {
				info, ok := p.Peer(to)
				assert.True(t, ok)
				assert.Equal(t, c.want[to], info.Node)
				want := "remote"
				if c.want[to] == c.want[p.Rank()] {
					want = "direct"
				}
				assert.Equal(t, want, info.Path, "%d to %d of %v", p.Rank(), to, c.want)
			}
			return nil
		})
		require.NoError(t, err)
	}
}

func TestSimulatedNodesRefused(t *testing.T) {
	nothing := func(*pe.PE) error { return nil }
	for _, cfg := range []pe.Config{
		{Size: 2, Nodes: 3},
		{Size: 2, Nodes: -1},
		{Size: 0, Nodes: 2}, // a world of one
		{Size: 2, Nodes: 2, SimLatency: -1},
		{Size: 2, Nodes: 2, SimBandwidth: -1},
	} {
		assert.ErrorIs(t, pe.Run(t.Context(), cfg, nothing), pe.ErrConfig, "%+v", cfg)
	}
	assert.ErrorIs(t, pe.Run(t.Context(), pe.Config{Size: 2, Nodes: 2, Path: "direct"}, nothing), pe.ErrUnsupported)
	broken := errors.New("broken")
	err := pe.Run(t.Context(), pe.Config{
		Size: 2, Nodes: 2,
		Remote: func(context.Context, channel.Env) (channel.Transport, error) { return nil, broken },
	}, nothing)
	assert.ErrorIs(t, err, broken)
}

// Processes that disagree on the nodes are told so.
func TestSimulatedNodesDisagree(t *testing.T) {
	var g errgroup.Group
	for rank := range 2 {
		g.Go(func() error {
			_, err := pe.Join(t.Context(), pe.Config{
				Rank: rank, Size: 2, Nodes: 1 + rank, Rendezvous: fmt.Sprintf("unix:@goshmem-nodes-%d", os.Getpid()),
			})
			assert.ErrorIs(t, err, pe.ErrMismatch)
			assert.ErrorContains(t, err, "nodes")
			return nil
		})
	}
	require.NoError(t, g.Wait())
}
