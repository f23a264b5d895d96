package pe_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"goshmem/pe"
)

// PEs that are told everything meet at a port, and share memory all the same.
func TestJoinAtPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	join := func(rank int, cfg pe.Config) (*pe.PE, error) {
		cfg.Rank, cfg.Size, cfg.Rendezvous, cfg.HeapSize = rank, 2, addr, 64<<10
		return pe.Join(t.Context(), cfg)
	}
	var g errgroup.Group
	for rank := range 2 {
		g.Go(func() error {
			p, err := join(rank, pe.Config{Secret: "c0ffee", Interface: "127.0.0.0/8", HostID: "one"})
			if err != nil {
				return err
			}
			info, _ := p.Peer(1 - rank)
			if info.Path != "direct" {
				t.Errorf("pe %d: path %s", rank, info.Path)
			}
			return p.Close(t.Context())
		})
	}
	require.NoError(t, g.Wait())
	_, err = join(0, pe.Config{})
	require.ErrorIs(t, err, pe.ErrConfig)
	require.ErrorContains(t, err, "GOSHMEM_SECRET_FILE")
	_, err = join(0, pe.Config{Secret: "c0ffee", Interface: "no-such-interface"})
	require.ErrorIs(t, err, pe.ErrConfig)
	require.ErrorContains(t, err, "no-such-interface")
}
