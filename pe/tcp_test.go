package pe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/pe"
	"goshmem/rma"
)

// Path tcp works inside one host, for every pair, a PE and itself included.
func TestPathTCP(t *testing.T) {
	err := pe.Run(t.Context(), pe.Config{Size: 2, Path: "tcp", HeapSize: 1 << 20}, func(p *pe.PE) error {
		a, err := pe.Calloc[int64](t.Context(), p, 8)
		if err != nil {
			return err
		}
		sig, err := p.AllocSignals(t.Context(), 1)
		if err != nil {
			return err
		}
		for to := range p.Size() {
			info, _ := p.Peer(to)
			require.Equal(t, "tcp", info.Path)
			if err := rma.PutSignal(p.Context(), a.Slice(p.Rank(), p.Rank()+1), []int64{7}, sig.At(0), rma.SignalAdd, 1, to); err != nil {
				return err
			}
		}
		return rma.WaitSignal(t.Context(), p.Context(), sig.At(0), rma.EQ, 2)
	})
	require.NoError(t, err)
}
