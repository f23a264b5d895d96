package relaysim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/coll"
	"goshmem/coll/relaysim"
)

// The formulas agree with the simulation of the plan, message by message, where
// that is possible.
func TestPredictAgreesWithSimulation(t *testing.T) {
	for _, m := range [][2]int{{2, 4}, {4, 8}, {8, 2}, {16, 4}, {16, 8}, {32, 4}, {64, 1}} {
		for _, n := range []int64{0, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10} {
			for _, algo := range []coll.Algo{coll.AlgoDirect, coll.AlgoRelay, coll.AlgoAuto} {
				c := relaysim.Default()
				c.Nodes, c.PerNode = m[0], m[1]
				want, err := relaysim.Simulate(c, algo, n)
				require.NoError(t, err)
				got, err := relaysim.Predict(c, algo, n)
				require.NoError(t, err)
				ratio := float64(got.Time) / float64(want.Time)
				t.Logf("%v %d B %v: %v, simulated %v (%.2f); messages %d, %d", m, n, algo, got.Time, want.Time, ratio, got.Messages, want.Messages)
				// The shortest calls consist of latencies that the formulas pass over.
				if ratio < 0.75 || ratio > 1.25 && got.Time-want.Time > 2*time.Microsecond {
					t.Errorf("%v, %d B, %v: %v by formula, %v simulated", m, n, algo, got.Time, want.Time)
				}
			}
		}
	}
}
