package pe_test

import (
	"fmt"
	"net"
	"strings"
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
	// To those of another host TCP; both say why, and listen where they were told.
	for rank := range 2 {
		g.Go(func() error {
			p, err := join(rank, pe.Config{
				Secret: "c0ffee", Interface: "127.0.0.0/8", HostID: fmt.Sprint("host", rank), Net: "tcp",
			})
			if err != nil {
				return err
			}
			info, _ := p.Peer(1 - rank)
			if info.Path != "tcp" || !strings.Contains(info.Why, "GOSHMEM_NET") {
				t.Errorf("pe %d: path %s: %s", rank, info.Path, info.Why)
			}
			d := p.World().Transports()[1]
			if !strings.Contains(d.Detail, "127.0.0.1") || !strings.Contains(fmt.Sprint(d.Notes), "GOSHMEM_INTERFACE") {
				t.Errorf("%+v", d)
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
