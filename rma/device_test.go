package rma_test

import (
	"os"
	"testing"

	"goshmem/internal/suite"
)

// On devices simulated in host memory; where the run is meant for a GPU, there.
func TestDevice(t *testing.T) {
	driver := "host"
	if os.Getenv("GOSHMEM_TEST_GPU") != "" {
		driver = "cuda"
	}
	for _, s := range suite.DeviceSetups(driver, testing.Short()) {
		suite.Run(t, s, suite.Device())
	}
}
