package moe_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"goshmem/moe"
	"goshmem/moe/internal/kernels"
	"goshmem/pe"
)

// poor is a device that refuses the n-th thing it is asked for, and counts what it has
// given and not got back.
type poor struct {
	kernels.Runner
	left, held atomic.Int64
}

var errPoor = errors.New("no more")

func (p *poor) give(err error) error {
	if err == nil {
		p.held.Add(1)
	}
	return err
}

func (p *poor) Alloc(n int64) (uint64, error) {
	if p.left.Add(-1) == 0 {
		return 0, errPoor
	}
	a, err := p.Runner.Alloc(n)
	return a, p.give(err)
}

func (p *poor) Pinned(n int64) (unsafe.Pointer, uint64, error) {
	if p.left.Add(-1) == 0 {
		return nil, 0, errPoor
	}
	at, a, err := p.Runner.Pinned(n)
	return at, a, p.give(err)
}

func (p *poor) NewEvent(timing bool) (uintptr, error) {
	if p.left.Add(-1) == 0 {
		return 0, errPoor
	}
	ev, err := p.Runner.NewEvent(timing)
	return ev, p.give(err)
}

func (p *poor) NewStream() (uintptr, error) {
	if p.left.Add(-1) == 0 {
		return 0, errPoor
	}
	s, err := p.Runner.NewStream()
	return s, p.give(err)
}

func (p *poor) Register(at unsafe.Pointer, n int64, known bool) (uint64, error) {
	if p.left.Add(-1) == 0 {
		return 0, errPoor
	}
	a, err := p.Runner.Register(at, n, known)
	return a, p.give(err)
}

func (p *poor) Unregister(at unsafe.Pointer) error { p.held.Add(-1); return p.Runner.Unregister(at) }
func (p *poor) Free(a uint64) error                { p.held.Add(-1); return p.Runner.Free(a) }
func (p *poor) FreePinned(at unsafe.Pointer) error { p.held.Add(-1); return p.Runner.FreePinned(at) }
func (p *poor) CloseEvent(ev uintptr) error        { p.held.Add(-1); return p.Runner.CloseEvent(ev) }
func (p *poor) CloseStream(s uintptr) error        { p.held.Add(-1); return p.Runner.CloseStream(s) }

// Whatever a device refuses one rank while an engine is made, every rank gets an error
// and all that was taken goes back.
func TestDevicePoor(t *testing.T) {
	b := device(t)
	cfg := moe.Config{Experts: 4, TopK: 1, Hidden: 8, MaxTokens: 4, InFlight: 2}
	for i, w := range ways() {
		made := false
		for n := int64(1); !made; n += int64(1 + i) {
			var p poor
			err := pe.Run(t.Context(), pe.Config{Size: 2, Nodes: w.nodes, HeapSize: 1 << 20}, func(q *pe.PE) error {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				opt := moe.DeviceOptions{Mover: w.mover, SMs: 2, Deadline: 10 * time.Second}.On(b.run)
				if q.Rank() == 1 {
					p.Runner = b.run
					p.left.Store(n)
					opt = opt.On(&p)
				}
				e, err := moe.NewDevice(ctx, q.Team(), cfg, opt)
				if err == nil {
					made = true
					return e.Close(ctx)
				}
				if own := errors.Is(err, errPoor); own != (q.Rank() == 1) || !own && !errors.Is(err, pe.ErrMismatch) {
					return fmt.Errorf("rank %d: %w", q.Rank(), err)
				}
				return nil
			})
			if err != nil || p.held.Load() != 0 {
				t.Fatalf("%v, request %d: %d held; %v", w, n, p.held.Load(), err)
			}
			if n > 100 {
				t.Fatal("requests have no end")
			}
		}
	}
}
