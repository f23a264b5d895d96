package pe_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"goshmem/coll"
	"goshmem/internal/faultlab"
	"goshmem/pe"
	"goshmem/rma"
)

// oneWorld opens a world, uses it a little, and closes it.
func oneWorld(ctx context.Context, i int) error {
	cfg := pe.Config{HeapSize: 64 << 10, Contexts: 4, RingCapacity: 16, Path: "direct"}
	if i%2 == 1 {
		cfg.Path = "proxy"
	}
	if i%4 >= 2 {
		p, err := pe.Join(ctx, cfg)
		if err != nil {
			return err
		}
		if err := littleUse(ctx, p); err != nil {
			return err
		}
		return p.Close(ctx)
	}
	cfg.Size = 2 + i%3
	return pe.Run(ctx, cfg, func(p *pe.PE) error { return littleUse(ctx, p) })
}

func littleUse(ctx context.Context, p *pe.PE) error {
	sigs, err := p.AllocSignals(ctx, 1)
	if err != nil {
		return err
	}
	next := (p.Rank() + 1) % p.Size()
	if err := rma.Signal(p.Context(), sigs.At(0), rma.SignalSet, 1, next); err != nil {
		return err
	}
	if err := rma.WaitSignal(ctx, p.Context(), sigs.At(0), rma.EQ, 1); err != nil {
		return err
	}
	return coll.Barrier(ctx, p.Team())
}

// A thousand worlds, one after another, leave no descriptor, mapping, goroutine
// or thread behind.
func TestThousandWorlds(t *testing.T) {
	ctx := testContext(t)
	for i := range 12 { // what the Go runtime itself starts once
		require.NoError(t, oneWorld(ctx, i))
	}
	runtime.GC()
	goleak.VerifyNone(t)
	before, err := faultlab.Measure()
	require.NoError(t, err)
	for i := range 1000 {
		require.NoError(t, oneWorld(ctx, i), "world %d", i)
	}
	goleak.VerifyNone(t)
	after, err := faultlab.Measure()
	require.NoError(t, err)
	require.Empty(t, after.Leaks(before))
	// Threads stay with the Go runtime once it needed them at one time.
	require.Less(t, after.Threads, before.Threads+20)
}

// Worlds that live at the same time do not share anything.
func TestWorldsOfOneProcess(t *testing.T) {
	ctx := testContext(t)
	before, err := faultlab.Measure()
	require.NoError(t, err)
	pes := make([]*pe.PE, 20)
	for i := range pes {
		pes[i], err = pe.Join(ctx, pe.Config{HeapSize: 64 << 10, Contexts: 4})
		require.NoError(t, err)
	}
	for _, p := range pes {
		require.NoError(t, littleUse(ctx, p))
	}
	ref, err := pes[0].AllocMem(ctx, 8, 0)
	require.NoError(t, err)
	require.ErrorIs(t, rma.PutMem(pes[1].Context(), ref, make([]byte, 8), 0), pe.ErrBadRef)
	for _, p := range pes {
		require.NoError(t, p.Close(ctx))
	}
	after, err := faultlab.Measure()
	require.NoError(t, err)
	require.Empty(t, after.Leaks(before))
}

// A context that ends while its world does, at any moment.
func TestCancelAsItEnds(t *testing.T) {
	cfg := pe.Config{Size: 2, HeapSize: 64 << 10, Contexts: 4, SleepAfter: 1, SpinTurns: 1}
	for i := range 200 {
		ctx, cancel := context.WithCancel(testContext(t))
		delay := time.Duration(i%20) * 20 * time.Microsecond
		timer := time.AfterFunc(delay, cancel)
		// It may or may not come in time.
		if err := pe.Run(ctx, cfg, func(p *pe.PE) error { return littleUse(ctx, p) }); err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		timer.Stop()
		cancel()
	}
}

// A process that joins, is refused, joins again, many times.
func rejoinRole(ctx context.Context, c *faultlab.Child, _ struct{}) error {
	for i := range 50 {
		cfg := pe.Config{
			Rank: c.Rank, Size: c.Size, Rendezvous: fmt.Sprintf("%s-%d", c.Rendezvous, i%2),
			HeapSize: 64 << 10, Contexts: 4,
		}
		if i%5 == 4 && c.Rank == 1 {
			cfg.Contexts++ // refused by agreement
		}
		p, err := pe.Join(ctx, cfg)
		if i%5 == 4 {
			if f := faultlab.Describe(err); !f.Has("ErrMismatch") {
				return fmt.Errorf("world %d: %v", i, f)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("world %d: %w", i, err)
		}
		if err := littleUse(ctx, p); err != nil {
			return fmt.Errorf("world %d: %w", i, err)
		}
		if err := p.Close(ctx); err != nil {
			return fmt.Errorf("world %d: %w", i, err)
		}
	}
	return nil
}

func TestWorldAfterWorldInProcesses(t *testing.T) {
	faultlab.Start(t, faultlab.Spec{Role: "rejoin", N: 3}).WaitAll()
}
