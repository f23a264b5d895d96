package cudadev

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/internal/errs"
	"goshmem/nvlink/device"
	"goshmem/nvlink/device/devicetest"
)

// load skips only where there is no driver or no GPU, and not where the run is
// meant for one.
func load(t testing.TB) *Driver {
	d, err := Load()
	if errors.Is(err, errs.ErrUnsupported) && os.Getenv("GOSHMEM_TEST_GPU") == "" {
		t.Skip(err)
	}
	require.NoError(t, err)
	return d
}

func TestConformance(t *testing.T) {
	devicetest.Conform(t, load(t), device.ShareVMM, device.ShareIPC)
}
