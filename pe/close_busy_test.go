package pe_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"goshmem/heap"
	"goshmem/internal/faultlab"
	"goshmem/pe"
)

// Close whose time is over while another goroutine is inside an operation says
// so, and the memory under that operation goes only when it has returned.
func TestCloseLeavesBusyMemory(t *testing.T) {
	ctx := testContext(t)
	require.NoError(t, oneWorld(ctx, 2))
	before, err := faultlab.Measure()
	require.NoError(t, err)
	p, err := pe.Join(ctx, pe.Config{HeapSize: 64 << 10, CloseTimeout: time.Millisecond})
	require.NoError(t, err)
	a, err := pe.Calloc[int64](ctx, p, 8)
	require.NoError(t, err)
	require.True(t, p.Context().Use()) // what an operation begins with
	over, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, p.Close(over), pe.ErrTimeout)
	a.Local()[0]++ // would be a fault
	p.Context().Unuse()
	goleak.VerifyNone(t)
	after, err := faultlab.Measure()
	require.NoError(t, err)
	require.Empty(t, after.Leaks(before))
}

func TestRefusedArguments(t *testing.T) {
	var none context.Context
	_, err := pe.Join(none, pe.Config{})
	require.ErrorIs(t, err, pe.ErrConfig)
	require.ErrorIs(t, pe.Run(none, pe.Config{Size: 1}, func(*pe.PE) error { return nil }), pe.ErrConfig)
	require.ErrorIs(t, pe.Run(t.Context(), pe.Config{Size: 1}, nil), pe.ErrConfig)
	require.NoError(t, pe.Run(t.Context(), pe.Config{Size: 1}, func(p *pe.PE) error {
		_, err := pe.Alloc[int64](none, p, 1)
		require.ErrorIs(t, err, pe.ErrConfig)
		_, err = pe.Alloc[int64](t.Context(), nil, 1)
		require.ErrorIs(t, err, pe.ErrConfig)
		require.ErrorIs(t, p.Close(none), pe.ErrConfig)
		sigs, err := p.AllocSignals(t.Context(), 1)
		require.NoError(t, err)
		require.ErrorIs(t, p.Team().ResetSignals(t.Context(), heap.MakeSignals(sigs.Ref().Add(4), 1)), pe.ErrAlign)
		runtime := heap.MakeRef(sigs.Ref().World(), heap.RegionRuntime, sigs.Ref().Offset())
		require.ErrorIs(t, p.Team().ResetSignals(t.Context(), heap.MakeSignals(runtime, 1)), pe.ErrBadRef)
		return nil
	}))
}
