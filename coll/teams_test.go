package coll_test

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"goshmem/coll"
	"goshmem/pe"
	"goshmem/rma"
)

// teamsAtOnce uses several teams of a PE from goroutines of their own, with a ring
// of user's signals going round meanwhile.
func teamsAtOnce(ctx context.Context, p *pe.PE) error {
	odd, err := p.Team().SplitStrided(ctx, 1, 2, 2)
	if err != nil {
		return err
	}
	half, err := p.Team().Split(ctx, p.Rank()%2, -p.Rank())
	if err != nil {
		return err
	}
	sigs, err := p.AllocSignals(ctx, 1)
	if err != nil {
		return err
	}
	var comms []*coll.Comm
	for _, team := range []*pe.Team{p.Team(), p.Team(), half, odd} {
		if team == nil {
			continue
		}
		c, err := coll.New(ctx, team, small())
		if err != nil {
			return err
		}
		comms = append(comms, c)
	}
	eg, ectx := errgroup.WithContext(ctx)
	for k, c := range comms {
		g, _, err := newGround(ctx, c.Team(), 64<<10)
		if err != nil {
			return err
		}
		eg.Go(func() error {
			for i := range 60 {
				call := append(movers[:7:7], reducers...)[(i+k)%12]
				s := spec{call: call, op: ops()[i%7], root: i % c.Size(), n: i * 3 % 100, sym: i, start: i%3 == 0, inPlace: i%2 == 0, seed: uint64(i + 1000*k)}
				if err := typed(ectx, c, g, s, i); err != nil {
					return fmt.Errorf("team %d: %w", k, err)
				}
			}
			return nil
		})
	}
	eg.Go(func() error {
		x := p.Context()
		for i := range uint64(200) {
			if err := rma.Signal(x, sigs.At(0), rma.SignalAdd, 1, (p.Rank()+1)%p.Size()); err != nil {
				return err
			}
			if err := rma.WaitSignal(ectx, x, sigs.At(0), rma.GE, i+1); err != nil {
				return err
			}
		}
		return nil
	})
	if err := eg.Wait(); err != nil {
		return err
	}
	for _, c := range comms {
		if err := c.Free(ctx); err != nil {
			return err
		}
	}
	return nil
}
