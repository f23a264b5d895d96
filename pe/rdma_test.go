package pe_test

import (
	"errors"
	"strings"
	"testing"

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
