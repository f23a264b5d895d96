package device_test

import (
	"testing"

	"goshmem/nvlink/device/devicetest"
)

func TestPTX(t *testing.T) {
	devicetest.CheckPTX(t, "cudadev", "goshmem.cuh")
	devicetest.CheckPTX(t, "devicetest", "goshmem.cuh")
}
