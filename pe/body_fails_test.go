package pe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/internal/fabric"
	"goshmem/pe"
	"goshmem/rma"
)

// What a PE had queued when its function failed fails with it, on a lane that never
// connects too: the world ends.
func TestFailedBodyDropsItsRequests(t *testing.T) {
	f, err := fabric.New(fabric.Config{})
	require.NoError(t, err)
	f.Stall(1, 0)
	cfg := pe.Config{Size: 2, Nodes: 2, HeapSize: 1 << 20, Remote: f.Factory(), CloseTimeout: time.Hour}
	wrong := errors.New("wrong")
	done := make(chan error, 1)
	go func() {
		done <- pe.Run(context.Background(), cfg, func(p *pe.PE) error {
			ref, err := p.AllocMem(t.Context(), 8, 8)
			if err != nil || p.Rank() == 0 {
				return err
			}
			if _, err := rma.PutMemNBI(p.Context(), ref, make([]byte, 8), 0); err != nil {
				return err
			}
			return wrong
		})
	}()
	select {
	case err := <-done:
		require.ErrorIs(t, err, wrong)
	case <-time.After(30 * time.Second):
		t.Fatal("the world does not end")
	}
}

// Whoever waits for it, in an exchange too, is told why.
func TestFailedBodyIsTheCause(t *testing.T) {
	wrong := errors.New("wrong")
	var lost *pe.PeerLostError
	err := pe.Run(t.Context(), pe.Config{Size: 2, HeapSize: 1 << 20}, func(p *pe.PE) error {
		if p.Rank() == 0 {
			return wrong
		}
		_, err := p.AllocMem(t.Context(), 8, 8)
		assert.ErrorAs(t, err, &lost)
		return nil
	})
	require.ErrorIs(t, err, wrong)
	require.Equal(t, pe.PeerLostError{PE: 0, Cause: "its function returned: wrong"}, *lost)
}
