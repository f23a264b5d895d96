package coll

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/pe"
)

// A member that is lost ends the barrier at every other one, whichever of them
// waits for it: in both forms, acknowledged or not, and again in each later call.
func TestBarrierLoss(t *testing.T) {
	const n = 5
	for _, central := range []bool{false, true} {
		for victim := range n {
			t.Run(fmt.Sprintf("central %v/rank %d", central, victim), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				failure := errors.New("as told")
				err := pe.Run(ctx, pe.Config{Size: n, HeapSize: 64 << 10, Contexts: 4}, func(p *pe.PE) error {
					b, err := barrierOf(p.Team())
					if err != nil {
						return err
					}
					b.central = central
					for range 3 {
						if err := Sync(ctx, p.Team()); err != nil {
							return err
						}
					}
					// Nobody is lost while another is in a call that went well.
					if _, err := p.Team().Gather(ctx, "ready", nil); err != nil {
						return err
					}
					if p.Rank() == victim {
						return failure
					}
					for i := range 3 {
						err := Barrier(ctx, p.Team())
						if e, ok := errors.AsType[*pe.PeerLostError](err); !ok || e.PE != victim {
							t.Errorf("pe %d, call %d: %v", p.Rank(), i, err)
						}
						if err := p.AckLost(victim); err != nil {
							t.Errorf("pe %d: %v", p.Rank(), err)
						}
					}
					// Those that are left go on as a team of their own.
					rest, err := p.Team().Split(ctx, 0, 0)
					if err != nil {
						t.Errorf("pe %d: split: %v", p.Rank(), err)
						return nil
					}
					for range 3 {
						if err := Barrier(ctx, rest); err != nil {
							t.Errorf("pe %d: barrier of the rest: %v", p.Rank(), err)
						}
					}
					return nil
				})
				require.ErrorIs(t, err, failure)
			})
		}
	}
}

// A member that leaves before a barrier ends it for the others; one that leaves
// right behind it does not.
func TestBarrierWithoutMember(t *testing.T) {
	const n = 5
	for _, central := range []bool{false, true} {
		for early := range n {
			t.Run(fmt.Sprintf("central %v/rank %d", central, early), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				require.NoError(t, pe.Run(ctx, pe.Config{Size: n, HeapSize: 64 << 10, Contexts: 4}, func(p *pe.PE) error {
					b, err := barrierOf(p.Team())
					if err != nil {
						return err
					}
					b.central = central
					for range 3 {
						if err := Sync(ctx, p.Team()); err != nil {
							return err
						}
					}
					if p.Rank() == early {
						return nil
					}
					if err := Barrier(ctx, p.Team()); !errors.Is(err, pe.ErrClosed) {
						return fmt.Errorf("pe %d: %w", p.Rank(), err)
					}
					return nil
				}))
			})
		}
	}
}
