package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/nvlink/device/devicetest"
	"goshmem/pe"
)

func TestPTX(t *testing.T) { devicetest.CheckPTX(t, ".", "../../nvlink/device/goshmem.cuh") }

// Devices simulated in host memory run no kernels, and it says so.
func TestNeedsGPU(t *testing.T) {
	cfg := pe.Config{Size: 1, DeviceHeap: 16 << 20, DeviceDriver: "host"}
	err := pe.Run(t.Context(), cfg, func(p *pe.PE) error { return ring(t.Context(), p, 1) })
	require.ErrorIs(t, err, pe.ErrUnsupported)
}
