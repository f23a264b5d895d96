package info

import (
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/nvlink/device"
	"goshmem/nvlink/device/hostdev"
)

func TestGPUs(t *testing.T) {
	text, err := gpus(hostdev.New(2), 2, false)
	require.NoError(t, err)
	require.Contains(t, text, "1 to 0: mapped, native atomics (NVLink), rank 0\n")
	require.Contains(t, text, "2 PEs: one a GPU")
	text, err = gpus(hostdev.New(2), 3, false)
	require.NoError(t, err)
	require.Contains(t, text, "3 PEs share GPUs: goshmem run starts an MPS daemon")
	text, err = gpus(hostdev.New(1), 2, true)
	require.NoError(t, err)
	require.Contains(t, text, "under the MPS daemon")
	require.Equal(t, "not mapped (no peer access): through pipes in host memory", pairText(device.Pair{}))
	require.Contains(t, pairText(device.Pair{Access: true}), "PCIe")
	s := gpusSection(2, func(string) string { return t.TempDir() })
	require.NotEmpty(t, s.Text)
}
