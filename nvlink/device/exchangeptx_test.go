package device_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The PTX of the kernel of alltoallvs was made from the sources beside it.
func TestExchangePTX(t *testing.T) {
	h := sha256.New()
	for _, f := range []string{"cudadev/exchange.cu", "goshmem.cuh"} {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		h.Write(b)
	}
	want, err := os.ReadFile("cudadev/exchange.sha256")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(want)), hex.EncodeToString(h.Sum(nil)), "make ptx")
}
