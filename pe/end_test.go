package pe_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/amo"
	"goshmem/coll"
	"goshmem/heap"
	"goshmem/internal/suite"
	"goshmem/pe"
	"goshmem/rma"
)

// Worlds that end while goroutines of their PEs still operate and wait, again
// and again: every call returns, with ErrClosed or what ended the world, and
// nobody touches memory that is gone.
func TestWorldsEndUnderway(t *testing.T) {
	stop := errors.New("stop")
	for i := range suite.Times(150) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cfg := small(1+i%3, paths[i/3%2])
		cfg.RingCapacity = 1 + i%4
		how := i % 4
		var rest sync.WaitGroup
		err := pe.Run(ctx, cfg, func(p *pe.PE) error {
			ref, err := p.AllocMem(ctx, 800<<10, 0)
			if err != nil {
				return err
			}
			sigs, err := p.AllocSignals(ctx, 2)
			if err != nil {
				return err
			}
			for _, op := range restless(ctx, p, ref, sigs) {
				rest.Go(func() {
					for err := error(nil); err == nil; {
						err = op()
					}
				})
			}
			time.Sleep(time.Duration(i%7*50) * time.Microsecond)
			switch how {
			case 1:
				if p.Rank() == 0 {
					return stop
				}
			case 2:
				cancel(stop)
			case 3:
				return p.Close(ctx)
			}
			return nil
		})
		rest.Wait()
		cancel(nil)
		switch how {
		case 1:
			require.True(t, err == nil || errors.Is(err, stop) || errors.Is(err, pe.ErrPeerLost), "%v", err)
		case 2:
			require.True(t, err == nil || errors.Is(err, stop), "%v", err)
		default:
			require.NoError(t, err, "%d", i)
		}
	}
}

// restless is what goroutines do until it fails.
func restless(ctx context.Context, p *pe.PE, ref heap.Ref, sigs heap.Signals) []func() error {
	c, n := p.Context(), p.Size()
	to := (p.Rank() + 1) % n
	word := heap.MakePtr[uint64](ref.Add(400 << 10))
	large := make([]byte, 300<<10)
	quiet := func(err error) error { return errors.Join(err, rma.Quiet(ctx, c)) }
	return []func() error{
		func() error { return rma.PutMem(c, ref.Add(310<<10), make([]byte, 100), to) },
		func() error { _, err := rma.PutMemNBI(c, ref, large, to); return quiet(err) },
		func() error { return rma.PutValue(c, word, 1, to) },
		func() error { _, err := rma.GetValue(c, word, to); return err },
		func() error { _, err := amo.FetchAdd(c, word.Add(1), 1, to); return err },
		func() error { return rma.Signal(c, sigs.At(0), rma.SignalAdd, 1, to) },
		func() error { return rma.WaitSignal(ctx, c, sigs.At(1), rma.EQ, 1) },
		func() error { return rma.WaitUntil(ctx, c, word, rma.EQ, 1<<50) },
		func() error {
			return errors.Join(rma.Notify(c, 0, to), rma.WaitNotify(ctx, c, 0, (p.Rank()+n-1)%n, 1))
		},
		func() error {
			if n == 1 {
				return fmt.Errorf("alone: %w", pe.ErrPeer)
			}
			return coll.Barrier(ctx, p.Team())
		},
		func() error {
			t, err := rma.GetMemNBI(c, make([]byte, 260<<10), ref.Add(500<<10), to)
			return errors.Join(err, rma.Wait(ctx, c, t))
		},
		func() error { _, err := p.LocalBytes(ref, 8); c.Progress(); return err },
	}
}
