package coll_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"goshmem/coll"
	"goshmem/internal/fabric"
	"goshmem/pe"
)

// setup is a world of some nodes on a fabric and a Comm over a team of it.
type setup struct {
	seed    uint64
	nodes   []int // ranks on each
	shuffle bool  // a team whose ranks are dealt to nodes in any order
	fabric  fabric.Config
	cfg     coll.Config
	calls   int
	world   pe.Config // how operations of one node travel
}

func (s setup) size() (n int) {
	for _, l := range s.nodes {
		n += l
	}
	return n
}

func (s setup) String() string {
	return fmt.Sprintf("seed %d: nodes %v, shuffled %v, %v, W %d, T %d, slots of %d B, straight from %d B, own from %d B, %d calls, path %q, ring %d, inline %d, fabric %+v",
		s.seed, s.nodes, s.shuffle, s.cfg.Algo, s.cfg.RelayBanks, s.cfg.RelaySlots, s.cfg.RelayBytes, s.cfg.Straight, s.cfg.Merge, s.calls, s.world.Path, s.world.RingCapacity, s.world.InlineMax, s.fabric)
}

// randomSetup draws a setup from a seed.
func randomSetup(seed uint64) setup {
	rng := rand.New(rand.NewPCG(seed, 77))
	s := setup{seed: seed, shuffle: rng.IntN(2) == 0, calls: 2 + rng.IntN(3)}
	most := 0
	for range 1 + rng.IntN(6) {
		s.nodes = append(s.nodes, 1+rng.IntN(4))
	}
	if rng.IntN(20) == 0 {
		s.nodes = []int{8, 4, 1}
		rng.Shuffle(3, func(i, j int) { s.nodes[i], s.nodes[j] = s.nodes[j], s.nodes[i] })
	}
	for _, l := range s.nodes {
		most = max(most, l)
	}
	s.cfg = coll.Config{
		Slots: 1, SlotBytes: 64, MessageSlots: 1, MessageBytes: 64,
		Algo:       []coll.Algo{coll.AlgoRelay, coll.AlgoRelay, coll.AlgoRelay, coll.AlgoAuto, coll.AlgoAuto, coll.AlgoDirect}[rng.IntN(6)],
		Straight:   []int64{1, 100, 1000, 1 << 40}[rng.IntN(4)],
		Merge:      []int64{1, 1, 100, 1 << 40}[rng.IntN(4)],
		RelayBanks: 1 + rng.IntN(4), RelaySlots: 1 + rng.IntN(4),
		RelayBytes: (64+24*most+63)/64*64 + []int{64, 64, 128, 512, 4 << 10}[rng.IntN(5)],
	}
	s.fabric = fabric.Random(seed)
	if rng.IntN(2) == 0 {
		s.fabric.Slow = map[int]int{rng.IntN(s.size()): 30}
	}
	if rng.IntN(3) == 0 {
		s.world.Path, s.world.RingCapacity = "proxy", []int{0, 1, 2}[rng.IntN(3)]
	}
	s.world.InlineMax = []int64{0, 0, 1, 100}[rng.IntN(4)]
	return s
}

// run makes the world and calls fn on every PE with its Comm.
func (s setup) run(t testing.TB, fn func(ctx context.Context, c *coll.Comm) error) (*fabric.Fabric, error) {
	t.Helper()
	f, err := fabric.New(s.fabric)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	// Nodes of a world are alike: of the smaller ones some PEs are no members.
	most := slices.Max(s.nodes)
	cfg := s.world
	cfg.Size, cfg.Nodes, cfg.Remote = most*len(s.nodes), len(s.nodes), f.Factory()
	cfg.HeapSize, cfg.Sparse, cfg.Contexts = max(cfg.HeapSize, 2<<20), true, 4
	return f, pe.Run(ctx, cfg, func(p *pe.PE) error {
		colour, key := 0, p.Rank()
		if p.Rank()%most >= s.nodes[p.Rank()/most] {
			colour = -1
		}
		if s.shuffle {
			// The same order at every member.
			key = rand.New(rand.NewPCG(s.seed, 78)).Perm(p.Size())[p.Rank()]
		}
		team, err := p.Team().Split(ctx, colour, key)
		if err != nil || team == nil {
			return err
		}
		c, err := coll.New(ctx, team, s.cfg)
		if err != nil {
			return err
		}
		if err := fn(ctx, c); err != nil {
			return fmt.Errorf("member %d: %w", c.Rank(), err)
		}
		return c.Free(ctx)
	})
}

// matrices makes calls with random matrices, and compares.
func (s setup) matrices(t testing.TB) (*fabric.Fabric, error) {
	return s.run(t, func(ctx context.Context, c *coll.Comm) error {
		x, err := newExchanger(ctx, c, s.seed)
		if err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(s.seed, 79)) // the same at every member
		for call := range s.calls {
			sh := shapes()[rng.IntN(len(shapes()))]
			m, how := sh.make(rng, c.Size()), rng.IntN(4)
			if err := x.call(ctx, call, m, how); err != nil {
				return fmt.Errorf("%s: %w", sh.name, err)
			}
		}
		return nil
	})
}

// TestAllToAllVFabric compares random calls with a naive copy, on worlds of random
// nodes whose network does what it may: 500 of them, or as many as
// GOSHMEM_STRESS_MATRICES says.
func TestAllToAllVFabric(t *testing.T) {
	count := 500
	if v := os.Getenv("GOSHMEM_STRESS_MATRICES"); v != "" {
		var err error
		if count, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	if testing.Short() {
		count = 16
	}
	for seed := range uint64(count) {
		s := randomSetup(seed)
		if _, err := s.matrices(t); err != nil {
			t.Fatalf("%v: %v", s, err)
		}
	}
}

// TestAllToAllVLong: sub-rounds too long to be collected behind their headers,
// destinations that lie side by side or apart, and pairs that go straight beside
// relayed ones.
func TestAllToAllVLong(t *testing.T) {
	for i, path := range []string{"", "proxy"} {
		for _, algo := range []coll.Algo{coll.AlgoRelay, coll.AlgoAuto, coll.AlgoDirect} {
			s := setup{
				seed: uint64(i), nodes: []int{2, 3}, shuffle: i == 1, world: pe.Config{Path: path, HeapSize: 8 << 20},
				cfg:    coll.Config{Algo: algo, Straight: 11 << 10, RelayBytes: 32 << 10},
				fabric: fabric.Config{Seed: uint64(i), MaxMessage: 5000, Delay: 3},
			}
			_, err := s.run(t, func(ctx context.Context, c *coll.Comm) error {
				x, err := newExchanger(ctx, c, 3)
				if err != nil {
					return err
				}
				rng := rand.New(rand.NewPCG(uint64(i), 82))
				for call := range 4 {
					m := fill(5, func(int, int) int { return 9000 + rng.IntN(3500) })
					if err := x.call(ctx, call, m, call); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Errorf("%v: %v", s, err)
			}
		}
	}
}
