package coll_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"goshmem/coll"
	"goshmem/pe"
)

// Random calls of which one member fails one, by its context or by an argument: the
// others end with a typed error before long, everything can be freed, and a team
// that is split anew works.
func TestRandomFailures(t *testing.T) {
	for seed := range uint64(fewer(6)) {
		for _, l := range append(lanes(), farLanes(t, seed)[:2]...) {
			l.cfg.HeapSize = 16 << 20
			err := tryWorld(t, l, 2+int(seed)%4, func(ctx context.Context, p *pe.PE) error {
				rng := rand.New(rand.NewPCG(seed, 3)) // alike everywhere
				for round := range 3 {
					if err := failOnce(ctx, p, rng); err != nil {
						return fmt.Errorf("rank %d, round %d: %w", p.Rank(), round, err)
					}
				}
				return nil
			})
			if err != nil {
				t.Errorf("seed %d, %s: %v", seed, l.name, err)
			}
		}
	}
}

func failOnce(ctx context.Context, p *pe.PE, rng *rand.Rand) error {
	team, err := p.Team().Split(ctx, 0, p.Rank())
	if err != nil {
		return err
	}
	c, err := coll.New(ctx, team, randomConfig(rng))
	if err != nil {
		return err
	}
	g, ref, err := newGround(ctx, team, 2<<20)
	if err != nil {
		return err
	}
	names := append(append([]string(nil), movers...), reducers...)
	victim, when, how := rng.IntN(c.Size()), rng.IntN(6), rng.IntN(4)
	var failed error
	began := time.Now()
	for k := range 30 {
		s := spec{
			call: names[rng.IntN(len(names))], op: coll.Op(rng.IntN(7)), root: rng.IntN(c.Size()), n: randomLength(rng),
			sym: rng.IntN(256), inPlace: rng.IntN(2) == 0, start: rng.IntN(3) == 0 && k != when, seed: rng.Uint64(),
		}
		typ, after := rng.IntN(len(runners())), time.Duration(rng.IntN(300))*time.Microsecond
		switch {
		case failed != nil:
		case k != when || p.Rank() != victim:
			failed = typed(ctx, c, g, s, typ)
		case how == 0:
			mine, cancel := context.WithCancel(ctx)
			time.AfterFunc(after, cancel)
			failed = typed(mine, c, g, s, typ)
			cancel()
		case how == 1:
			mine, cancel := context.WithTimeout(ctx, after)
			failed = typed(mine, c, g, s, typ)
			cancel()
		case how == 2:
			failed = coll.Broadcast(ctx, c, 77, []byte{1})
		default:
			failed = coll.FCollect(ctx, c, make([]int8, 1), make([]int8, 1000))
		}
	}
	if d := time.Since(began); d > 10*time.Second {
		return fmt.Errorf("took %v: %w", d, failed)
	}
	if failed != nil && !named(failed) {
		return fmt.Errorf("an error without a name: %w", failed)
	}
	if _, err := team.Gather(ctx, "over", nil); err != nil {
		return err
	}
	return errors.Join(c.Free(ctx), team.FreeMem(ctx, ref), team.Free(ctx))
}

// named reports whether an error is what such a failure may be.
func named(err error) bool {
	for _, e := range []error{pe.ErrPeer, pe.ErrRange, pe.ErrMismatch, pe.ErrTimeout, context.Canceled} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
