package hostdev

import (
	"testing"

	"goshmem/nvlink/device"
	"goshmem/nvlink/device/devicetest"
)

func TestConformance(t *testing.T) {
	devicetest.Conform(t, New(2), device.ShareVMM, device.ShareIPC)
}
