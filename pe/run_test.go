package pe_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/coll"
	"goshmem/heap"
	"goshmem/internal/suite"
	"goshmem/pe"
	"goshmem/rma"
)

var paths = []string{"direct", "proxy", "tcp"}

func small(n int, path string) pe.Config {
	return pe.Config{Size: n, Path: path, HeapSize: 1 << 20, RingCapacity: 2, Timeout: 30 * time.Second}
}

// The error of Run is that of the PE that failed first, not of those that fail
// because it did.
func TestRunReturnsTheFirstError(t *testing.T) {
	boom := errors.New("boom")
	for i := range suite.Times(200) {
		err := pe.Run(t.Context(), small(3, paths[i%2]), func(p *pe.PE) error {
			if p.Rank() == i%3 {
				return boom
			}
			err := rma.WaitSignals(t.Context(), p.Context(), 1)
			if !errors.Is(err, pe.ErrPeerLost) {
				return fmt.Errorf("want a loss: %w", err)
			}
			var lost *pe.PeerLostError
			if !errors.As(err, &lost) || lost.PE != i%3 {
				return fmt.Errorf("want pe %d: %w", i%3, err)
			}
			return err
		})
		require.ErrorIs(t, err, boom)
		require.NotErrorIs(t, err, pe.ErrPeerLost)
	}
}

// When the context ends, every wait ends, and Run returns.
func TestRunCancelled(t *testing.T) {
	cause := errors.New("enough")
	for i := range suite.Times(300) {
		ctx, cancel := context.WithCancelCause(t.Context())
		n := i%4 + 1
		var up sync.WaitGroup
		up.Add(n)
		go func() {
			if i%3 > 0 {
				up.Wait() // else as early as may be
			}
			cancel(cause)
		}()
		err := pe.Run(ctx, small(n, paths[i%2]), func(p *pe.PE) error {
			up.Done()
			// A context of one's own hears of it too.
			wait := ctx
			if p.Rank()%2 == 1 {
				wait = context.Background()
			}
			ref, err := p.AllocMem(wait, 64, 0)
			if err != nil {
				return err
			}
			return rma.WaitUntil(wait, p.Context(), heap.MakePtr[uint64](ref), rma.EQ, 1<<60, rma.From(p.Rank()))
		})
		require.ErrorIs(t, err, context.Canceled)
		cancel(nil)
	}
}

func TestRunAlreadyCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := pe.Run(ctx, small(2, "direct"), func(p *pe.PE) error {
		_, err := p.AllocMem(ctx, 64, 0)
		return err
	})
	require.ErrorIs(t, err, context.Canceled)
}

// A body may close its PE itself.
func TestCloseInsideRun(t *testing.T) {
	for _, path := range paths {
		for n := 1; n <= 3; n++ {
			err := pe.Run(t.Context(), small(n, path), func(p *pe.PE) error {
				ref, err := p.AllocMem(t.Context(), 1000, 0)
				if err != nil {
					return err
				}
				for i := range n {
					if err := rma.PutMem(p.Context(), ref.Add(uint64(300*p.Rank())), make([]byte, 300), i); err != nil {
						return err
					}
				}
				if err := p.Close(t.Context()); err != nil {
					return err
				}
				return p.Close(t.Context())
			})
			require.NoError(t, err)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	never := func(*pe.PE) error { t.Error("the body ran"); return nil }
	for name, c := range map[string]struct {
		cfg  pe.Config
		want error
	}{
		"size":         {pe.Config{Size: -1}, pe.ErrConfig},
		"ring":         {pe.Config{Size: 1, RingCapacity: -1}, pe.ErrConfig},
		"ring too big": {pe.Config{Size: 1, RingCapacity: 1 << 30}, pe.ErrConfig},
		"heap":         {pe.Config{Size: 1, HeapSize: -1}, pe.ErrConfig},
		"path":         {pe.Config{Size: 1, Path: "carrier pigeon"}, pe.ErrConfig},
		"no way":       {pe.Config{Size: 2, Nodes: 2, Path: "direct"}, pe.ErrUnsupported},
		"memory":       {pe.Config{Size: 4, HeapSize: 1 << 45}, pe.ErrNoMemory},
		"nodes":        {pe.Config{Size: 2, Nodes: 3}, pe.ErrConfig},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, pe.Run(t.Context(), c.cfg, never), c.want)
		})
	}
}

// Two worlds at once, of different sizes, know nothing of each other; each
// refuses the other's references and tickets.
func TestWorldsAtOnce(t *testing.T) {
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			type guest struct {
				ref heap.Ref
				sig heap.Signal
				tkt rma.Ticket
			}
			leave, left := make(chan guest), make(chan struct{})
			var g sync.WaitGroup
			g.Go(func() { // the other world
				err := pe.Run(t.Context(), small(3, path), func(p *pe.PE) error {
					ref, err := p.AllocMem(t.Context(), 512<<10, 0)
					if err != nil {
						return err
					}
					sigs, err := p.AllocSignals(t.Context(), 1)
					if err != nil {
						return err
					}
					if p.Rank() == 0 {
						tkt, err := rma.PutMemNBI(p.Context(), ref, make([]byte, 300<<10), 1)
						if err != nil {
							return err
						}
						leave <- guest{ref, sigs.At(0), tkt}
						<-left
					}
					return coll.Barrier(t.Context(), p.Team())
				})
				assert.NoError(t, err)
			})
			err := pe.Run(t.Context(), small(2, path), func(p *pe.PE) error {
				if p.Rank() == 0 {
					other := <-leave
					c, buf := p.Context(), make([]byte, 8)
					for i, err := range []error{
						rma.PutMem(c, other.ref, buf, 1),
						rma.GetMem(c, buf, other.ref, 1),
						rma.Signal(c, other.sig, rma.SignalAdd, 1, 1),
						rma.WaitSignal(t.Context(), c, other.sig, rma.EQ, 0),
						rma.PutValue(c, heap.MakePtr[int32](other.ref), 1, 1),
						rma.WaitUntil(t.Context(), c, heap.MakePtr[int32](other.ref), rma.EQ, 0),
						rma.Wait(t.Context(), c, other.tkt),
						errOf(rma.Test(c, other.tkt)),
						errOf(p.LocalBytes(other.ref, 8)),
						errOf(pe.ArrayAt[int8](p, other.ref, 8)),
					} {
						assert.ErrorIs(t, err, pe.ErrBadRef, i)
					}
					close(left)
				}
				// Collectives of the two do not meet, whatever their tags.
				_, err := p.AllocMem(t.Context(), 4096, 0)
				return err
			})
			assert.NoError(t, err)
			g.Wait()
		})
	}
}

func errOf[T any](_ T, err error) error { return err }

// A closed world is followed by others of other sizes.
func TestWorldAfterWorld(t *testing.T) {
	for i, n := range []int{2, 5, 1, 3, 8, 2} {
		var sum atomic.Int64
		err := pe.Run(t.Context(), small(n, paths[i%2]), func(p *pe.PE) error {
			if p.Size() != n {
				return fmt.Errorf("size %d, want %d", p.Size(), n)
			}
			sum.Add(int64(p.Rank()))
			return coll.Barrier(t.Context(), p.Team())
		})
		require.NoError(t, err)
		require.Equal(t, int64(n*(n-1)/2), sum.Load())
	}
}

// Offsets over 4 GiB, on every kind of operation.
func TestOffsetsOver4GiB(t *testing.T) {
	const gib = 1 << 30
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			cfg := small(2, path)
			cfg.HeapSize, cfg.Sparse = 9*gib, true
			err := pe.Run(t.Context(), cfg, func(p *pe.PE) error {
				return suite.Body(t.Context(), p, cfg, func(e *suite.Env) { suite.FarOffsets(e, 9*gib) })
			})
			require.NoError(t, err)
		})
	}
}
