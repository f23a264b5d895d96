package pe_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/pe"
	"goshmem/rma"
)

// A world over TCP in which all sleep uses no processor worth noticing, and a
// sleeper is woken by what comes in.
func TestTCPIdle(t *testing.T) {
	cfg := pe.Config{Size: 2, Path: "tcp", HeapSize: 1 << 20}
	err := pe.Run(t.Context(), cfg, func(p *pe.PE) error {
		sig, err := p.AllocSignals(t.Context(), 2)
		if err != nil {
			return err
		}
		c, other := p.Context(), 1-p.Rank()
		if err := rma.Signal(c, sig.At(0), rma.SignalAdd, 1, other); err != nil {
			return err
		}
		if err := rma.WaitSignal(t.Context(), c, sig.At(0), rma.EQ, 1); err != nil {
			return err
		}
		start, used := time.Now(), processorTime()
		if p.Rank() == 0 {
			time.Sleep(500 * time.Millisecond)
			assert.Less(t, processorTime()-used, time.Since(start)/5)
			return rma.Signal(c, sig.At(1), rma.SignalAdd, 1, other)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return rma.WaitSignal(ctx, c, sig.At(1), rma.EQ, 1)
	})
	require.NoError(t, err)
}
