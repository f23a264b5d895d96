package pe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"goshmem/coll"
	"goshmem/internal/faultlab"
	"goshmem/pe"
	"goshmem/rma"
)

// What the three PEs of TestCloseWithFullSockets are.
const (
	fullStays, fullCloses, fullStops = 0, 1, 2
	fullPart                         = 1 << 20
)

// fullRole: one PE closes while what it queued for another, which is stopped, fills
// all buffers between them.
func fullRole(ctx context.Context, c *faultlab.Child, a closeArgs) error {
	p, err := pe.Join(ctx, a.config(c))
	if err != nil {
		return err
	}
	s, err := newSleepSite(ctx, p)
	if err != nil {
		return err
	}
	box, err := p.AllocMem(ctx, fullPart, 0)
	if err != nil {
		return err
	}
	// Whoever is to be stopped has a connection of its own to the other.
	if err := rma.PutMem(p.Context(), box, make([]byte, 8), (p.Rank()+1)%p.Size()); err != nil {
		return err
	}
	if err := coll.Barrier(ctx, p.Team()); err != nil {
		return err
	}
	c.Report("ready", nil)
	if _, err := c.Await("go"); err != nil {
		return err
	}
	if c.Rank == fullCloses {
		now, cancel := context.WithCancel(ctx)
		cancel()
		for range 24 {
			if _, err := rma.PutMemNBI(p.Context(), box, make([]byte, fullPart), fullStops); err != nil {
				return err
			}
		}
		err := p.Close(now)
		if !errors.Is(err, pe.ErrTimeout) && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("a close that had no time: %w", err)
		}
		c.Report("left", nil)
		return nil
	}
	closed := func(what string, err error) error {
		if e, ok := errors.AsType[*pe.ClosedError](err); !ok || e.PE != fullCloses || errors.Is(err, pe.ErrPeerLost) {
			return fmt.Errorf("%s who has left: %w", what, err)
		}
		return nil
	}
	err = closed("a wait for", rma.WaitSignal(ctx, p.Context(), s.sigs.At(0), rma.GE, 1, rma.From(fullCloses)))
	if err == nil && c.Rank == fullStops {
		err = closed("a get from", rma.GetMem(p.Context(), make([]byte, 64), box, fullCloses))
	}
	if lost := p.Lost(); len(lost) != 0 {
		err = errors.Join(err, fmt.Errorf("lost: %v", lost))
	}
	return errors.Join(err, p.Close(ctx))
}

// A PE that closes when its time is up has left, and is not lost, to a PE that still
// has to read what it sent, of which the end is missing.
func TestCloseWithFullSockets(t *testing.T) {
	j := faultlab.Start(t, faultlab.Spec{
		Role: "full", N: 3, Args: closeArgs{Path: "tcp", CloseTimeout: 200 * time.Millisecond},
	})
	j.Expect("ready")
	stopped, leaver := j.Procs[fullStops], j.Procs[fullCloses]
	stopped.Stop()
	leaver.Say("go")
	leaver.Expect("left", nil)
	stopped.Cont()
	stopped.Say("go")
	j.Procs[fullStays].Say("go")
	j.WaitAll()
}
