package counters

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWriteMetrics(t *testing.T) {
	s := Stats{
		RingClaimed: 5, RingConsumed: 4, Lost: []int{3},
		Lanes: []LaneStats{
			{PE: 0, Peer: 1, Ctx: 1, Path: "direct", Issued: 10, Posted: 11, Acked: 9, Pending: 1},
			{PE: 0, Peer: 2, Ctx: 1, Path: "proxy", Issued: 1, Posted: 1, Acked: 1},
		},
		Heap: []HeapStats{{PE: 0, Size: 4096, InUse: 64}},
	}
	var b strings.Builder
	require.NoError(t, s.WriteMetrics(&b))
	for _, line := range []string{
		"# TYPE goshmem_lane_acked_total counter",
		`goshmem_lane_acked_total{pe="0",peer="1",ctx="1",path="direct"} 9`,
		`goshmem_lane_pending{pe="0",peer="2",ctx="1",path="proxy"} 0`,
		"goshmem_ring_claimed_total 5",
		`goshmem_heap_in_use_bytes{pe="0"} 64`,
		"goshmem_lost_pes 1",
	} {
		require.Contains(t, b.String(), line+"\n")
	}
	require.Equal(t, LaneStats{Issued: 11, Posted: 12, Acked: 10, Pending: 1}, s.Sum())
	require.EqualError(t, s.WriteMetrics(full{}), "full")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }
