package coll_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"goshmem/coll"
	"goshmem/internal/fabric"
	"goshmem/pe"
)

var (
	duration = flag.Duration("duration", 0, "how long TestRandomLog goes on; 0: a few logs")
	seed     = flag.Uint64("seed", 0, "the first log of TestRandomLog; 0: 1, or with a duration by the clock")
)

// Random logs of collectives over random teams of random worlds give what they
// should: worlds of 1 to 8 PEs, on one node or on several with an adversarial
// fabric between, with teams split at random, Comms of random shape, and started
// and blocking calls mixed. A log is replayed with -seed.
func TestRandomLog(t *testing.T) {
	first, until := *seed, time.Now().Add(*duration)
	logs := uint64(24)
	if short() {
		logs = 8
	}
	if *duration > 0 {
		logs = 1 << 62
		if first == 0 {
			first = uint64(time.Now().UnixNano())
		}
	}
	first = max(first, 1)
	for s := first; s < first+logs; s++ {
		if *duration > 0 && time.Now().After(until) {
			t.Logf("logs %d to %d", first, s-1)
			return
		}
		if err := randomLog(t, s); err != nil {
			t.Fatalf("log %d (go test ./coll -run TestRandomLog -seed %d): %v", s, s, err)
		}
	}
}

// randomLog makes the world of a seed and carries its log out.
func randomLog(t *testing.T, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	n := 1 + rng.IntN(8)
	l := lanes()[rng.IntN(3)]
	if nodes := 1 + rng.IntN(n); nodes > 1 && rng.IntN(2) == 0 {
		f, err := fabric.New(fabric.Random(seed))
		if err != nil {
			return err
		}
		l.cfg.Path, l.cfg.Nodes, l.cfg.Remote = "auto", nodes, f.Factory()
	}
	l.cfg.HeapSize = 32 << 20
	return tryWorld(t, l, n, func(ctx context.Context, p *pe.PE) error {
		// The same draws at every member: what differs by rank comes from elsewhere.
		rng := rand.New(rand.NewPCG(seed, 2))
		for range 1 + rng.IntN(3) {
			if err := randomTeam(ctx, p, rng); err != nil {
				return fmt.Errorf("rank %d: %w", p.Rank(), err)
			}
		}
		return nil
	})
}

// randomTeam splits the world and makes calls in the parts.
func randomTeam(ctx context.Context, p *pe.PE, rng *rand.Rand) error {
	parts := 1 + rng.IntN(2)
	keys := rng.Perm(p.Size())
	colours := make([]int, p.Size())
	for i := range colours {
		colours[i] = rng.IntN(parts)
	}
	cfg := randomConfig(rng)
	calls, draws := 5+rng.IntN(20), rng.Uint64()
	team, err := p.Team().Split(ctx, colours[p.Rank()], keys[p.Rank()])
	if err != nil {
		return err
	}
	c, err := coll.New(ctx, team, cfg)
	if err != nil {
		return err
	}
	g, ref, err := newGround(ctx, team, 4<<20)
	if err != nil {
		return err
	}
	x, err := newExchanger(ctx, c, draws)
	if err != nil {
		return err
	}
	mine := rand.New(rand.NewPCG(draws, uint64(colours[p.Rank()])))
	names := append(append([]string(nil), movers...), reducers...)
	for k := range calls {
		if mine.IntN(5) == 0 {
			sh := shapes()[mine.IntN(len(shapes()))]
			if err := x.call(ctx, k, sh.make(mine, c.Size()), mine.IntN(4)); err != nil {
				return fmt.Errorf("call %d, alltoallv (%s) of a team of %d (%+v): %w", k, sh.name, c.Size(), cfg, err)
			}
			continue
		}
		s := spec{
			call: names[mine.IntN(len(names))], op: coll.Op(mine.IntN(7)), root: mine.IntN(c.Size()),
			n: randomLength(mine), sym: mine.IntN(256), inPlace: mine.IntN(2) == 0, start: mine.IntN(3) == 0, seed: mine.Uint64(),
		}
		if err := typed(ctx, c, g, s, mine.IntN(len(runners()))); err != nil {
			return fmt.Errorf("call %d of a team of %d (%+v): %w", k, c.Size(), cfg, err)
		}
		if mine.IntN(8) == 0 {
			time.Sleep(time.Duration(p.Rank()*mine.IntN(300)) * time.Microsecond) // late PEs
		}
	}
	if err := c.Free(ctx); err != nil {
		return err
	}
	return errors.Join(team.FreeMem(ctx, ref), team.FreeMem(ctx, x.dst.Ref()), team.Free(ctx))
}

func randomLength(rng *rand.Rand) int {
	switch rng.IntN(4) {
	case 0:
		return rng.IntN(4)
	case 1:
		return rng.IntN(64)
	case 2:
		return rng.IntN(1000)
	}
	return rng.IntN(8000)
}

func randomConfig(rng *rand.Rand) coll.Config {
	if rng.IntN(3) == 0 {
		return coll.Config{}
	}
	c := coll.Config{Slots: 1 + rng.IntN(4), SlotBytes: 64 << rng.IntN(10), MessageSlots: 1 + rng.IntN(3), MessageBytes: 64 << rng.IntN(4)}
	c.Eager = 1 + rng.IntN(c.SlotBytes)
	c.Algo = []coll.Algo{coll.AlgoAuto, coll.AlgoDirect, coll.AlgoRelay}[rng.IntN(3)]
	c.Straight, c.Merge = []int64{1, 100, 1 << 40}[rng.IntN(3)], []int64{1, 100, 1 << 40}[rng.IntN(3)]
	c.RelayBanks, c.RelaySlots = 1+rng.IntN(4), 1+rng.IntN(4)
	c.RelayBytes = 320 + 64*[]int{0, 1, 4, 64}[rng.IntN(4)] // a header of 8 PEs and 64 B at least
	return c
}
