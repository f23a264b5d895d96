package devicetest

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Kernels is kernels.cu, compiled.
//
//go:embed kernels.ptx
var Kernels []byte

// CheckPTX fails unless the PTX in dir was made from the sources beside it: `make
// ptx` leaves the hash of kernels.cu and goshmem.cuh with it.
func CheckPTX(t *testing.T, dir, header string) {
	h := sha256.New()
	for _, f := range []string{filepath.Join(dir, "kernels.cu"), header} {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		h.Write(b)
	}
	want, err := os.ReadFile(filepath.Join(dir, "kernels.sha256"))
	require.NoError(t, err)
	require.Equal(t, string(bytes.TrimSpace(want)), hex.EncodeToString(h.Sum(nil)),
		"%s was changed and not compiled: make ptx", dir)
}
