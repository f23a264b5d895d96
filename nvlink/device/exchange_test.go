package device_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/nvlink/device"
)

// What lands has the same room in whole lines everywhere, and takes little of a heap.
func TestLanding(t *testing.T) {
	for _, c := range []struct {
		members int
		heap    uint64
		want    uint64
	}{
		{1, 1 << 30, 64 << 10}, {2, 1 << 30, 64 << 10}, {4, 1 << 30, 64 << 10}, {8, 1 << 30, 32 << 10}, {32, 1 << 40, 8 << 10},
		{2, 32 << 20, 64 << 10}, {2, 1 << 20, 4 << 10}, {2, 1 << 16, 1 << 10}, {31, 1 << 30, 8 << 10}, {0, 0, 1 << 10},
	} {
		n := device.Landing(c.members, c.heap)
		require.Equal(t, c.want, n, "%d members, heap of %d", c.members, c.heap)
		require.Zero(t, device.MailBytes(n)%64)
	}
}
