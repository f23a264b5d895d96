package moe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"goshmem/moe"
	"goshmem/moe/oracle"
	"goshmem/moe/routing"
	"goshmem/pe"
)

// A row crosses to another node once, whatever its receivers there, in every layout; in
// a cached dispatch too. Results of a combine cross one by one.
func TestRowsOncePerNode(t *testing.T) {
	for _, c := range []struct{ ranks, nodes int }{{4, 2}, {5, 3}, {6, 2}, {3, 3}, {4, 1}} {
		l := lane{name: "nodes", path: "auto", set: dealt(c.nodes)}
		nodeOf := func(rank int) int { return rank * c.nodes / c.ranks }
		for _, cfg := range variants(moe.Config{Experts: 16, TopK: 5, Hidden: 8, MaxTokens: 70, ScaleBytes: 4}) {
			tokens := []int{70, 33, 0, 17, 64, 1}[:c.ranks]
			in := inputs(t, cfg, routing.Spec{Seed: 3, Holes: 0.2}, tokens...)
			t.Run(fmt.Sprintf("%d-on-%d/%s", c.ranks, c.nodes, label(cfg)), func(t *testing.T) {
				engine(t, l, c.ranks, cfg, func(ctx context.Context, e *moe.Engine) error {
					rank := e.Team().Rank()
					d, err := e.Dispatch(ctx, in.X[rank], in.Scales[rank], in.Idx[rank], in.Weights[rank])
					if err != nil {
						return err
					}
					want := crossings(e, in, rank, nodeOf) * (e.RowBytes() + cfg.ScaleBytes)
					if have := d.Traffic().Between; have != want {
						return fmt.Errorf("rank %d: %d B left the node, want %d", rank, have, want)
					}
					r, err := d.Routing()
					if err != nil {
						return err
					}
					again, err := e.DispatchCached(ctx, r, in.X[rank], in.Scales[rank])
					if err != nil {
						return err
					}
					if again.Traffic().Between != want || again.Traffic().Wire != d.Traffic().Wire {
						return fmt.Errorf("cached: %+v, at first %+v", again.Traffic(), d.Traffic())
					}
					return sameDispatch(cfg, in, again, rank)
				})
			})
		}
	}
}

// crossings counts the nodes that each of a rank's tokens goes to, its own not.
func crossings(e *moe.Engine, in oracle.Input, rank int, nodeOf func(int) int) (n int64) {
	for tok := range in.Tokens(rank) {
		seen := map[int]bool{nodeOf(rank): true}
		for _, x := range in.Idx[rank][tok*in.TopK : (tok+1)*in.TopK] {
			if x >= 0 && !seen[nodeOf(e.Owner(int(x)))] {
				seen[nodeOf(e.Owner(int(x)))] = true
				n++
			}
		}
	}
	return n
}

// Two engines, in flight at once, on a team whose ranks go back and forth between nodes.
func TestTeamAcrossNodes(t *testing.T) {
	cfg := small
	cfg.InFlight = 2
	in := inputs(t, cfg, routing.Spec{Seed: 9}, 3, 4, 2, 1)
	heap := 2 * room(t, cfg, 4)
	world(t, lane{path: "auto", set: dealt(3)}, 6, heap, func(ctx context.Context, p *pe.PE) error {
		team, err := p.Team().Split(ctx, p.Rank()%3/2, -p.Rank()) // 4, 3, 1, 0 and 5, 2
		if err != nil || team == nil || team.Size() != 4 {
			return err
		}
		a, err := moe.New(ctx, team, cfg)
		if err != nil {
			return err
		}
		b, err := moe.New(ctx, team, cfg)
		if err != nil {
			return err
		}
		for range 3 {
			if err := errors.Join(roundTrip(ctx, cfg, a, in, nil), roundTrip(ctx, cfg, b, in, ramp(cfg.Hidden))); err != nil {
				return err
			}
		}
		return errors.Join(a.Close(ctx), b.Close(ctx))
	})
}
