package coll_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"goshmem/coll"
	"goshmem/coll/internal/exchange"
	"goshmem/internal/fabric"
	"goshmem/internal/raceflag"
	"goshmem/pe"
	"goshmem/rma"
)

// relayed is a configuration in which everything between nodes is relayed, in
// many sub-rounds, through as little room as there can be.
func relayed(most int) coll.Config {
	return coll.Config{
		Slots: 1, SlotBytes: 64, MessageSlots: 1, MessageBytes: 64,
		Algo: coll.AlgoRelay, Merge: 100, RelayBanks: 1, RelaySlots: 1, RelayBytes: (64+24*most+63)/64*64 + 64,
	}
}

// fewer is how many of n repetitions a short run makes.
func fewer(n int) int {
	if testing.Short() {
		return (n + 3) / 4
	}
	return n
}

// TestAllToAllVSlowRelay: with four nodes and more, a relay that is late with
// what it forwards must hold back those that send to it.
func TestAllToAllVSlowRelay(t *testing.T) {
	for seed := range uint64(fewer(8)) {
		s := setup{
			seed: seed, nodes: [][]int{{2, 2, 2, 2}, {2, 1, 3, 2, 1}}[seed%2], calls: 6,
			cfg: relayed(3), fabric: fabric.Config{Seed: seed, Delay: 20, Skew: 50},
		}
		s.cfg.RelayBanks, s.cfg.RelaySlots = 1+int(seed)%3, 1+int(seed/2)%3
		s.fabric.Slow = map[int]int{int(seed) % s.size(): 100}
		if _, err := s.matrices(t); err != nil {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// TestAllToAllVBackToBack: two nodes, the same buffers call after call.
func TestAllToAllVBackToBack(t *testing.T) {
	for seed := range uint64(fewer(8)) {
		s := setup{
			seed: seed, nodes: []int{2, 2}, cfg: relayed(2),
			fabric: fabric.Config{Seed: seed, Delay: 30, Skew: 100, Window: 1 + int(seed)%3},
		}
		s.cfg.RelayBanks, s.cfg.RelaySlots = 1+int(seed)%2, 1+int(seed/2)%2
		_, err := s.run(t, func(ctx context.Context, c *coll.Comm) error {
			x, err := newExchanger(ctx, c, seed)
			if err != nil {
				return err
			}
			const n = 300
			counts := []int{n, n, n, n}
			src := make([]byte, 4*n)
			for call := range 30 {
				for j := range 4 {
					for k := range n {
						src[j*n+k] = byteOf(call, c.Rank(), j, k)
					}
				}
				if err := coll.AllToAllV(ctx, c, x.dst, counts, nil, src, counts, nil); err != nil {
					return err
				}
				got := x.dst.Local()
				for i := range 4 {
					for k := range n {
						if got[i*n+k] != byteOf(call, i, c.Rank(), k) {
							return fmt.Errorf("call %d: byte %d from %d is %#x", call, k, i, got[i*n+k])
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// TestAllToAllVLate: a PE that comes late to a call, and one whose lanes do.
func TestAllToAllVLate(t *testing.T) {
	s := setup{nodes: []int{2, 2, 2}, cfg: relayed(2), fabric: fabric.Config{Late: map[int]int{2: 2000}}}
	_, err := s.run(t, func(ctx context.Context, c *coll.Comm) error {
		x, err := newExchanger(ctx, c, 5)
		if err != nil {
			return err
		}
		for call := range 4 {
			if call%2 == 1 && c.Rank() == call {
				time.Sleep(20 * time.Millisecond)
			}
			rng := rand.New(rand.NewPCG(uint64(call), 1))
			if err := x.call(ctx, call, shapes()[0].make(rng, 6), call); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// outcomes runs a call on every member and gives its error by member. A call that
// hangs is an error of the test.
func (s setup) outcomes(t *testing.T, fn func(ctx context.Context, c *coll.Comm, x *exchanger) error) []error {
	t.Helper()
	errs := make([]error, s.size())
	var all sync.WaitGroup
	all.Add(s.size())
	_, err := s.run(t, func(ctx context.Context, c *coll.Comm) error {
		x, err := newExchanger(ctx, c, s.seed)
		if err != nil {
			return err
		}
		began := time.Now()
		errs[c.Rank()] = fn(ctx, c, x)
		if d := time.Since(began); d > 10*time.Second {
			errs[c.Rank()] = fmt.Errorf("took %v: %v", d, errs[c.Rank()])
		}
		// Nobody leaves before all have an outcome: leaving is an event too.
		all.Done()
		all.Wait()
		return errDone
	})
	if !errors.Is(err, errDone) {
		t.Fatalf("%v: %v", s, err)
	}
	return errs
}

var errDone = errors.New("done")

// TestAllToAllVMismatch: two members disagree about what one sends the other, on
// every kind of way. Both get ErrMismatch, and nobody hangs.
func TestAllToAllVMismatch(t *testing.T) {
	nodes := []int{2, 3, 1}
	const n = 6
	cases := []struct{ send, recv int }{{0, 5}, {5, 0}, {5, 6}, {5, 500}, {500, 5}, {0, 500}, {500, 0}}
	pairs := [][2]int{{0, 1}, {0, 2}, {0, 3}, {0, 4}, {2, 5}, {5, 4}, {3, 0}, {4, 4}}
	if testing.Short() {
		pairs = pairs[1:4]
	}
	for _, algo := range []coll.Algo{coll.AlgoRelay, coll.AlgoAuto, coll.AlgoDirect} {
		for _, pair := range pairs {
			for k, tc := range cases {
				s := setup{seed: uint64(k), nodes: nodes, cfg: relayed(3), fabric: fabric.Config{Seed: uint64(k), Delay: 5}}
				s.cfg.Algo, s.cfg.Straight = algo, 100
				errs := s.outcomes(t, func(ctx context.Context, c *coll.Comm, x *exchanger) error {
					send, recv := make([]int, n), make([]int, n)
					for i := range n {
						send[i], recv[i] = 20, 20
					}
					if c.Rank() == pair[0] {
						send[pair[1]] = tc.send
					}
					if c.Rank() == pair[1] {
						recv[pair[0]] = tc.recv
					}
					return coll.AllToAllV(ctx, c, x.dst, recv, nil, make([]byte, 5000), send, nil)
				})
				for r, err := range errs {
					if (r == pair[0] || r == pair[1]) && !errors.Is(err, pe.ErrMismatch) ||
						err != nil && !errors.Is(err, pe.ErrMismatch) {
						t.Errorf("%v, %d sends %d and %d expects %d: member %d got %v", algo, pair[0], tc.send, pair[1], tc.recv, r, err)
					}
				}
			}
		}
	}
}

// TestAllToAllVOtherCall: members that are in different collectives find it.
func TestAllToAllVOtherCall(t *testing.T) {
	for name, other := range map[string]func(ctx context.Context, c *coll.Comm, x *exchanger) error{
		"a leaf of a broadcast": func(ctx context.Context, c *coll.Comm, x *exchanger) error {
			return coll.Broadcast(ctx, c, 0, make([]byte, 8))
		},
		"the root of a broadcast": func(ctx context.Context, c *coll.Comm, x *exchanger) error {
			return coll.Broadcast(ctx, c, 3, make([]byte, 8))
		},
		"a fcollect": func(ctx context.Context, c *coll.Comm, x *exchanger) error {
			return coll.FCollect(ctx, c, make([]byte, 4), make([]byte, 1))
		},
	} {
		for _, algo := range []coll.Algo{coll.AlgoRelay, coll.AlgoDirect} {
			s := setup{nodes: []int{2, 2}, cfg: relayed(2)}
			s.cfg.Algo = algo
			errs := s.outcomes(t, func(ctx context.Context, c *coll.Comm, x *exchanger) error {
				counts := []int{9, 9, 9, 9}
				if c.Rank() == 3 {
					return other(ctx, c, x)
				}
				return coll.AllToAllV(ctx, c, x.dst, counts, nil, make([]byte, 36), counts, nil)
			})
			for r, err := range errs {
				// The root of a broadcast is through before it can know.
				if !errors.Is(err, pe.ErrMismatch) && (r != 3 || err != nil) {
					t.Errorf("%s, %v: member %d got %v", name, algo, r, err)
				}
			}
		}
	}
}

// TestAllToAllVBadArgument: one member's bad argument ends the call everywhere,
// and nothing lands afterwards.
func TestAllToAllVBadArgument(t *testing.T) {
	for name, bad := range map[string]struct {
		want error
		call func(ctx context.Context, c *coll.Comm, x *exchanger, counts []int) error
	}{
		"negative count": {pe.ErrRange, func(ctx context.Context, c *coll.Comm, x *exchanger, counts []int) error {
			return coll.AllToAllV(ctx, c, x.dst, counts, nil, make([]byte, 6000), []int{0, 0, -1, 0, 0, 0}, nil)
		}},
		"beyond the source": {pe.ErrRange, func(ctx context.Context, c *coll.Comm, x *exchanger, counts []int) error {
			return coll.AllToAllV(ctx, c, x.dst, counts, nil, make([]byte, 10), counts, nil)
		}},
		"beyond the destination": {pe.ErrRange, func(ctx context.Context, c *coll.Comm, x *exchanger, counts []int) error {
			return coll.AllToAllV(ctx, c, x.dst.Slice(0, 10), counts, nil, make([]byte, 6000), counts, nil)
		}},
		"wrong number": {pe.ErrConfig, func(ctx context.Context, c *coll.Comm, x *exchanger, counts []int) error {
			return coll.AllToAllV(ctx, c, x.dst, counts[1:], nil, make([]byte, 6000), counts, nil)
		}},
		"overlap": {pe.ErrAlias, func(ctx context.Context, c *coll.Comm, x *exchanger, counts []int) error {
			return coll.AllToAllV(ctx, c, x.dst, counts, make([]int, 6), make([]byte, 6000), counts, nil)
		}},
		"started": {pe.ErrRange, func(ctx context.Context, c *coll.Comm, x *exchanger, counts []int) error {
			_, err := coll.StartAllToAllV(c, x.dst, counts, nil, []byte{}, counts, nil)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := setup{nodes: []int{2, 2, 2}, cfg: relayed(2), fabric: fabric.Config{Delay: 50, Skew: 100}}
			var landed sync.Map
			errs := s.outcomes(t, func(ctx context.Context, c *coll.Comm, x *exchanger) error {
				counts := []int{1000, 1000, 1000, 1000, 1000, 1000}
				if c.Rank() == 3 {
					time.Sleep(2 * time.Millisecond)
					return bad.call(ctx, c, x, counts)
				}
				err := coll.AllToAllV(ctx, c, x.dst, counts, nil, make([]byte, 6000), counts, nil)
				local := x.dst.Local()
				for i := range local {
					local[i] = 0xCC
				}
				time.Sleep(20 * time.Millisecond) // whoever puts now puts late
				if bytes.Count(local, []byte{0xCC}) != len(local) {
					landed.Store(c.Rank(), true)
				}
				if again := coll.AllToAllV(ctx, c, x.dst, counts, nil, make([]byte, 6000), counts, nil); again == nil {
					return fmt.Errorf("a call after the failed one went well: %w", again)
				}
				return err
			})
			for r, err := range errs {
				if !errors.Is(err, bad.want) {
					t.Errorf("member %d got %v, want %v", r, err, bad.want)
				}
			}
			landed.Range(func(r, _ any) bool { t.Errorf("a late put landed at member %v", r); return true })
		})
	}
}

// TestAllToAllVDeath: a PE dies in the middle of a call. Everybody learns it.
func TestAllToAllVDeath(t *testing.T) {
	for seed := range uint64(fewer(12)) {
		s := setup{seed: seed, nodes: []int{2, 2, 2}, cfg: relayed(2), fabric: fabric.Config{Seed: seed, Delay: 20, Skew: 20}}
		s.cfg.Algo = []coll.Algo{coll.AlgoRelay, coll.AlgoDirect}[seed%2]
		s.fabric.Dies = map[int]int{int(seed) % 6: 10 + 7*int(seed)}
		errs := s.outcomes(t, func(ctx context.Context, c *coll.Comm, x *exchanger) error {
			counts := []int{600, 600, 600, 600, 600, 600}
			for {
				if err := coll.AllToAllV(ctx, c, x.dst, counts, nil, make([]byte, 3600), counts, nil); err != nil {
					return err
				}
			}
		})
		for r, err := range errs {
			if !errors.Is(err, pe.ErrPeerLost) {
				t.Errorf("seed %d: member %d got %v", seed, r, err)
			}
		}
	}
}

// TestAllToAllVTwoTeams: rows and columns of a grid call at once, two members'
// goroutines each, while the user's own signals go round on a context of theirs.
func TestAllToAllVTwoTeams(t *testing.T) {
	for seed := range uint64(fewer(6)) {
		f, err := fabric.New(fabric.Random(seed))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		err = pe.Run(ctx, pe.Config{Size: 9, Nodes: 3, HeapSize: 16 << 20, Sparse: true, Remote: f.Factory()}, func(p *pe.PE) error {
			row, col, err := p.Team().Split2D(ctx, 3)
			if err != nil {
				return err
			}
			var xs [2]*exchanger
			var comms [2]*coll.Comm
			for i, team := range []*pe.Team{row, col} {
				c, err := coll.New(ctx, team, relayed(3))
				if err != nil {
					return err
				}
				if xs[i], err = newExchanger(ctx, c, seed); err != nil {
					return err
				}
				comms[i] = c
			}
			sigs, err := p.AllocSignals(ctx, 1)
			if err != nil {
				return err
			}
			const calls = 6
			done := make(chan error, 3)
			for i, x := range xs {
				go func() {
					rng := rand.New(rand.NewPCG(seed, 80))
					for call := range calls {
						if err := x.call(ctx, call, shapes()[rng.IntN(len(shapes()))].make(rng, 3), call); err != nil {
							done <- fmt.Errorf("team %d: %w", i, err)
							return
						}
					}
					done <- nil
				}()
			}
			go func() {
				c, next := p.Context(), (p.Rank()+1)%9
				for k := range uint64(20) {
					if err := rma.Signal(c, sigs.At(0), rma.SignalAdd, 1, next); err != nil {
						done <- err
						return
					}
					if err := rma.WaitSignal(ctx, c, sigs.At(0), rma.GE, k+1); err != nil {
						done <- err
						return
					}
				}
				if v, err := rma.ReadSignal(c, sigs.At(0)); err != nil || v != 20 {
					done <- fmt.Errorf("the user's signal is %d, want 20 (%v)", v, err)
					return
				}
				done <- nil
			}()
			for range 3 {
				if err := <-done; err != nil {
					return err
				}
			}
			for _, c := range comms {
				if err := c.Free(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		cancel()
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// TestAllToAllVMutations: without grants, or with more grants than slots,
// the same setups that go well otherwise fail. (Most of them: whether
// a slot is overwritten in time is chance.)
func TestAllToAllVMutations(t *testing.T) {
	const seeds = 12
	mutations := map[string]exchange.Mutation{"no grants": exchange.NoGrants, "too many grants": exchange.TooManyGrants, "sound": exchange.Sound}
	if raceflag.Enabled { // they are data races, which the detector would report
		clear(mutations)
	}
	for name, m := range mutations {
		failed := 0
		for seed := range uint64(seeds) {
			s := setup{
				seed: seed, nodes: [][]int{{2, 2, 2, 2}, {2, 2}}[seed%2], cfg: relayed(2),
				fabric: fabric.Config{Seed: seed, Delay: 10, Skew: 100},
			}
			_, err := s.run(t, func(ctx context.Context, c *coll.Comm) error {
				c.Exchange().Mutate(m)
				x, err := newExchanger(ctx, c, seed)
				if err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				rng := rand.New(rand.NewPCG(seed, 81))
				for call := range 4 {
					if c.Rank() == int(seed)%c.Size() {
						time.Sleep(time.Millisecond) // a member that relays late
					}
					if err := x.call(ctx, call, fill(c.Size(), func(i, j int) int { return 200 + rng.IntN(200) }), 0); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				failed++
				if m == exchange.Sound {
					t.Errorf("%v: %v", s, err)
				}
			}
		}
		t.Logf("%s: %d of %d failed", name, failed, seeds)
		if m != exchange.Sound && failed < seeds/2 {
			t.Errorf("%s: only %d of %d runs failed", name, failed, seeds)
		}
	}
}

// TestAllToAllVBrokenTransport: transports that break the contract are noticed.
// (One that completes requests before they took effect is not: a call relies on
// completions for its sources alone, on signals for everything else.)
func TestAllToAllVBrokenTransport(t *testing.T) {
	if raceflag.Enabled {
		return // such transports are data races
	}
	const seeds = 12
	for _, broken := range []fabric.Broken{fabric.UnorderedLane, fabric.EarlySignal} {
		failed := 0
		for seed := range uint64(seeds) {
			s := setup{
				seed: seed, nodes: [][]int{{2, 2, 2}, {1, 1}}[seed%2], cfg: relayed(2), calls: 6,
				fabric: fabric.Config{Seed: seed, Delay: 10, Skew: 100, MaxMessage: 64, Broken: broken},
			}
			s.cfg.Algo = []coll.Algo{coll.AlgoRelay, coll.AlgoDirect}[seed/2%2]
			_, err := s.run(t, func(ctx context.Context, c *coll.Comm) error {
				x, err := newExchanger(ctx, c, seed)
				if err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				rng := rand.New(rand.NewPCG(seed, 83))
				for call := range s.calls {
					m := fill(c.Size(), func(i, j int) int { return 200 + rng.IntN(200) })
					if err := x.call(ctx, call, m, 0); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				failed++
			}
		}
		t.Logf("%v: %d of %d failed", broken, failed, seeds)
		if failed < seeds/2 {
			t.Errorf("%v: only %d of %d runs failed", broken, failed, seeds)
		}
	}
}
