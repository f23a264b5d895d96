package pe_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/internal/bootstrap"
	"goshmem/pe"
)

// Where there is no RDMA device, path rdma says what was looked for; where there is
// one, lanes/rxe's suites are for it.
func TestPathRDMAWithoutDevice(t *testing.T) {
	err := pe.Run(t.Context(), pe.Config{Size: 2, HeapSize: 1 << 20, Path: "rdma"}, func(p *pe.PE) error {
		if info, _ := p.Peer(1); info.Path != "rdma" {
			t.Errorf("path %q", info.Path)
		}
		return nil
	})
	if err != nil && (!errors.Is(err, pe.ErrUnsupported) || !strings.Contains(err.Error(), "looked for")) {
		t.Error(err)
	}
	err = pe.Run(t.Context(), pe.Config{Size: 1, Path: "rdma", Net: "tcp"}, func(*pe.PE) error { return nil })
	if !errors.Is(err, pe.ErrConfig) {
		t.Error(err)
	}
	t.Setenv("GOSHMEM_RDMA_GID", "nonsense")
	err = pe.Run(t.Context(), pe.Config{Size: 1, Path: "rdma"}, func(*pe.PE) error { return nil })
	if !errors.Is(err, pe.ErrConfig) || !strings.Contains(err.Error(), "GOSHMEM_RDMA_GID") {
		t.Error(err)
	}
}

// twoHosts joins a world of two PEs that take each other for another host's.
func twoHosts(t *testing.T, with func(rank int, cfg *pe.Config), body func(p *pe.PE)) [2]error {
	t.Helper()
	addr, err := bootstrap.NewAddress()
	require.NoError(t, err)
	var errs [2]error
	var wg sync.WaitGroup
	for rank := range 2 {
		cfg := pe.Config{
			Rank: rank, Size: 2, Rendezvous: addr, Secret: "5ec3e7", HeapSize: 64 << 10, HostID: fmt.Sprint("host", rank),
			TCPListen: "127.0.0.1", JoinTimeout: 20 * time.Second,
		}
		with(rank, &cfg)
		wg.Go(func() {
			p, err := pe.Join(testContext(t), cfg)
			if err == nil {
				body(p)
				err = p.Close(testContext(t))
			}
			errs[rank] = err
		})
	}
	wg.Wait()
	return errs
}

// A port or address that was asked for by name and is not there is an error of Join
// for all; what is only excluded is a reason for TCP.
func TestPortAskedFor(t *testing.T) {
	errs := twoHosts(t, func(rank int, cfg *pe.Config) {
		if rank == 1 {
			cfg.NICs = "nosuch0"
		}
	}, func(*pe.PE) {})
	for rank, whose := range []string{"pe 1: ", ""} {
		err := errs[rank]
		if !errors.Is(err, pe.ErrConfig) || !strings.Contains(err.Error(), whose+"rdma: looked for RDMA ports GOSHMEM_NICS=nosuch0: ") {
			t.Errorf("pe %d: %v", rank, err)
		}
	}
	errs = twoHosts(t, func(_ int, cfg *pe.Config) { cfg.NICs = "^nosuch0" }, func(p *pe.PE) {
		if info, _ := p.Peer(1 - p.Rank()); info.Path != "tcp" && info.Path != "rdma" || !strings.Contains(info.Why, "RDMA") {
			t.Errorf("path %s: %s", info.Path, info.Why)
		}
	})
	if err := errors.Join(errs[0], errs[1]); err != nil {
		t.Error(err)
	}
	t.Setenv("GOSHMEM_RDMA_GID", "203.0.113.77")
	for rank, err := range twoHosts(t, func(int, *pe.Config) {}, func(*pe.PE) {}) {
		if !errors.Is(err, pe.ErrConfig) || !strings.Contains(err.Error(), "looked for RDMA ports GOSHMEM_RDMA_GID=203.0.113.77: ") {
			t.Errorf("pe %d: %v", rank, err)
		}
	}
	t.Setenv("GOSHMEM_RDMA_GID", "")
	errs = twoHosts(t, func(_ int, cfg *pe.Config) { cfg.Net, cfg.NICs = "rdma", "^nosuch0" }, func(*pe.PE) {})
	for rank, err := range errs { // or there is a device
		if err != nil && !(errors.Is(err, pe.ErrUnsupported) || errors.Is(err, pe.ErrConfig)) {
			t.Errorf("forced rdma, pe %d: %v", rank, err)
		}
	}
}
