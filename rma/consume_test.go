package rma_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/pe"
	"goshmem/rma"
)

// A consuming wait that is cancelled takes nothing away from another of the same
// word that began after it.
func TestCancelledWaitGivesUpItsPlace(t *testing.T) {
	for name, wait := range map[string]func(ctx context.Context, c *pe.Context) error{
		"notify":  func(ctx context.Context, c *pe.Context) error { return rma.WaitNotify(ctx, c, 0, 0, 1) },
		"signals": func(ctx context.Context, c *pe.Context) error { return rma.WaitSignals(ctx, c, 1, rma.From(0)) },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, pe.Run(t.Context(), pe.Config{Size: 1, Timeout: 10 * time.Second}, func(p *pe.PE) error {
				c := p.Context()
				first, cancel := context.WithCancel(t.Context())
				gaveUp, got := make(chan error), make(chan error)
				go func() { gaveUp <- wait(first, c) }()
				time.Sleep(5 * time.Millisecond) // most likely it waits now
				go func() { got <- wait(t.Context(), c) }()
				time.Sleep(5 * time.Millisecond)
				cancel()
				require.ErrorIs(t, <-gaveUp, context.Canceled)
				require.NoError(t, rma.Notify(c, 0, 0))
				require.NoError(t, <-got)
				require.NoError(t, rma.Notify(c, 0, 0)) // and each is consumed once
				require.NoError(t, wait(t.Context(), c))
				return nil
			}))
		})
	}
}
