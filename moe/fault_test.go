package moe_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"goshmem/moe"
	"goshmem/moe/routing"
	"goshmem/pe"
)

// A rank that does not come: the others' deadline ends the call, everybody is
// told, later calls are refused at once, and a new engine works.
func TestDeadline(t *testing.T) {
	in := inputs(t, small, routing.Spec{}, 3, 2, 4)
	each(t, func(t *testing.T, l lane) {
		late := make(chan struct{}, 1)
		world(t, l, 3, room(t, small, 3), func(ctx context.Context, p *pe.PE) error {
			e, err := moe.New(ctx, p.Team(), small)
			if err != nil {
				return err
			}
			if err := roundTrip(ctx, small, e, in, nil); err != nil {
				return err
			}
			short, cancel := ctx, context.CancelFunc(func() {})
			switch p.Rank() {
			case 1:
				short, cancel = context.WithTimeout(ctx, 30*time.Millisecond)
			case 2:
				<-late
			}
			a := argsOf(in, p.Rank())
			_, err = e.Dispatch(short, a.x, nil, a.idx, a.w)
			cancel()
			var broken *moe.BrokenError
			if !errors.As(err, &broken) || broken.PE != 1 || !errors.Is(err, pe.ErrTimeout) {
				return fmt.Errorf("rank %d: %v", p.Rank(), err)
			}
			if p.Rank() == 1 {
				late <- struct{}{}
			}
			if _, err := e.Dispatch(ctx, a.x, nil, a.idx, a.w); !errors.As(err, &broken) {
				return fmt.Errorf("after that: %v", err)
			}
			if err := e.Close(ctx); err != nil {
				return err
			}
			e, err = moe.New(ctx, p.Team(), small)
			if err != nil {
				return err
			}
			if err := roundTrip(ctx, small, e, in, nil); err != nil {
				return err
			}
			return e.Close(ctx)
		})
	})
}

// The same in the middle of a combine, by a cancelled context.
func TestCancelledCombine(t *testing.T) {
	in := inputs(t, small, routing.Spec{}, 3, 2, 4)
	each(t, func(t *testing.T, l lane) {
		var dispatched, cancelled sync.WaitGroup // all ranks; ranks 0 and 1
		dispatched.Add(3)
		cancelled.Add(2)
		engine(t, l, 3, small, func(ctx context.Context, e *moe.Engine) error {
			rank := e.Team().Rank()
			a := argsOf(in, rank)
			d, err := e.Dispatch(ctx, a.x, nil, a.idx, a.w)
			dispatched.Done()
			if err != nil {
				return err
			}
			dispatched.Wait()
			y := outputs(small, e, d, 0)
			out := make([]byte, 16*in.Tokens(rank))
			var broken *moe.BrokenError
			if rank == 2 {
				cancelled.Wait()
				// The news has come, or the others' results were sent before they
				// gave up and came first.
				if _, err := e.Combine(ctx, d, y, nil, out); err != nil && !errors.As(err, &broken) {
					return err
				}
				return nil
			}
			short, cancel := context.WithCancel(ctx)
			p, err := e.StartCombine(short, d, y, nil, out)
			cancel()
			if err == nil {
				_, err = p.Wait(ctx)
			}
			cancelled.Done()
			if !errors.Is(err, context.Canceled) {
				return fmt.Errorf("rank %d: %v", rank, err)
			}
			if _, err := e.Combine(ctx, d, y, nil, out); !errors.As(err, &broken) {
				return fmt.Errorf("rank %d, later: %v", rank, err)
			}
			return nil
		})
	})
}

// A PE that is lost ends the calls of the others with its name.
func TestLostPE(t *testing.T) {
	in := inputs(t, small, routing.Spec{}, 3, 2, 4)
	gone := errors.New("gone")
	each(t, func(t *testing.T, l lane) {
		for victim := range 3 {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			found := make([]error, 3)
			cfg := pe.Config{Size: 3, HeapSize: room(t, small, 3) + 1<<20, Sparse: true, Path: l.path, RingCapacity: l.ring}
			if l.set != nil {
				l.set(&cfg)
			}
			err := pe.Run(ctx, cfg, func(p *pe.PE) error {
				e, err := moe.New(ctx, p.Team(), small)
				if err != nil {
					return err
				}
				for found[p.Rank()] == nil {
					found[p.Rank()] = roundTrip(ctx, small, e, in, nil)
					if p.Rank() == victim {
						return errors.Join(gone, found[victim])
					}
				}
				return nil
			})
			cancel()
			if !errors.Is(err, gone) {
				t.Fatalf("victim %d: world ended with %v", victim, err)
			}
			for rank, err := range found {
				if rank != victim && !errors.Is(err, pe.ErrPeerLost) {
					t.Errorf("victim %d, rank %d: %v", victim, rank, err)
				}
			}
		}
	})
}

// Close refuses later calls, ends waiting ones at its deadline, and may be
// called again.
func TestClose(t *testing.T) {
	in := inputs(t, small, routing.Spec{}, 3, 2)
	each(t, func(t *testing.T, l lane) {
		world(t, l, 2, room(t, small, 2), func(ctx context.Context, p *pe.PE) error {
			e, err := moe.New(ctx, p.Team(), small)
			if err != nil {
				return err
			}
			a := argsOf(in, p.Rank())
			var pending *moe.Pending[*moe.Dispatched]
			if p.Rank() == 0 { // rank 1 never joins in
				if pending, err = e.StartDispatch(ctx, a.x, nil, a.idx, a.w); err != nil {
					return err
				}
			}
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_ = e.Close(short) // its deadline may hit the exchanges too
			if _, err := e.Dispatch(ctx, a.x, nil, a.idx, a.w); !errors.Is(err, pe.ErrClosed) && !errors.As(err, new(*moe.BrokenError)) {
				return fmt.Errorf("after close: %v", err)
			}
			if err := e.Close(ctx); err != nil {
				return fmt.Errorf("second close: %w", err)
			}
			if pending != nil {
				if _, err := pending.Wait(ctx); err == nil {
					return errors.New("a dispatch without rank 1 went well")
				}
			}
			return nil
		})
	})
}

// Of two dispatches in flight one misses its deadline: the other ends too, though
// nobody else ever calls.
func TestDeadlineEndsTheOther(t *testing.T) {
	cfg := small
	cfg.InFlight = 2
	in := inputs(t, cfg, routing.Spec{}, 3, 2)
	each(t, func(t *testing.T, l lane) {
		engine(t, l, 2, cfg, func(ctx context.Context, e *moe.Engine) error {
			if e.Team().Rank() == 1 {
				return nil
			}
			a := argsOf(in, 0)
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			var pending []*moe.Pending[*moe.Dispatched]
			for _, ctx := range []context.Context{short, ctx} {
				p, err := e.StartDispatch(ctx, a.x, nil, a.idx, a.w)
				if err != nil {
					return err
				}
				pending = append(pending, p)
			}
			for _, p := range pending {
				if _, err := p.Wait(ctx); !errors.Is(err, pe.ErrTimeout) || !errors.As(err, new(*moe.BrokenError)) {
					return fmt.Errorf("%v", err)
				}
			}
			return ctx.Err()
		})
	})
}
