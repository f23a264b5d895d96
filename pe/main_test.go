package pe_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"goshmem/internal/faultlab"
)

// The test binary runs itself as the processes of a job: see package faultlab.
func TestMain(m *testing.M) {
	if code, child := faultlab.Hook(faultRoles()); child {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}
