package fabric_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/internal/fabric"
	"goshmem/internal/suite"
	"goshmem/pe"
)

// over is a setup whose PEs are each a node of its own, so that all lanes but
// those to oneself go through a fabric.
func over(t *testing.T, size, nodes int, cfg fabric.Config) (suite.Setup, *fabric.Fabric) {
	t.Helper()
	f, err := fabric.New(cfg)
	require.NoError(t, err)
	return suite.Setup{
		Name:   fmt.Sprintf("seed%d/pes%d/nodes%d", cfg.Seed, size, nodes),
		Config: pe.Config{Size: size, Nodes: nodes, Remote: f.Factory(), RingCapacity: 64},
	}, f
}

func TestSuites(t *testing.T) {
	for seed := range uint64(6) {
		size := 2 + int(seed)%3
		s, f := over(t, size, 2+int(seed)%(size-1), fabric.Random(seed))
		suite.Run(t, s, suite.RMA())
		t.Logf("%+v", f.Stats())
	}
}
