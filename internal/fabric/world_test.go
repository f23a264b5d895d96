package fabric_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/coll"
	"goshmem/internal/fabric"
	"goshmem/internal/raceflag"
	"goshmem/internal/suite"
	"goshmem/pe"
	"goshmem/rma"
)

// over is a setup over a fabric. With as many nodes as PEs, all lanes but those
// to oneself go through it.
func over(t *testing.T, size, nodes int, cfg fabric.Config) (suite.Setup, *fabric.Fabric) {
	t.Helper()
	f, err := fabric.New(cfg)
	require.NoError(t, err)
	return suite.Setup{
		Name:   fmt.Sprintf("seed%d/pes%d/nodes%d", cfg.Seed, size, nodes),
		Config: pe.Config{Size: size, Nodes: nodes, Remote: f.Factory(), RingCapacity: 64},
	}, f
}

// light leaves out the cases that move much.
func light(cases []suite.Case) []suite.Case {
	heavy := []string{"put sizes", "get sizes", "put signal", "signal behind queued puts", "value is one access"}
	return slices.DeleteFunc(slices.Clone(cases), func(c suite.Case) bool { return slices.Contains(heavy, c.Name) })
}

// The suites of rma and amo, with seeds that between them have every kind of
// trouble.
func TestWorldSuites(t *testing.T) {
	setups := []struct {
		seed        uint64
		size, nodes int
		launch      suite.Launcher
		cases       []suite.Case
	}{
		{4, 3, 2, pe.Run, slices.Concat(suite.RMA(), suite.AMO())},
		{5, 4, 4, pe.Run, light(suite.AMO())},
		{6, 3, 3, suite.Joined, light(suite.RMA())},
	}
	if raceflag.Enabled || testing.Short() {
		setups = setups[:1]
		setups[0].cases = light(setups[0].cases)
	}
	for _, c := range setups {
		s, f := over(t, c.size, c.nodes, fabric.Random(c.seed))
		s.Launch = c.launch
		suite.Run(t, s, c.cases)
		stats := f.Stats()
		assert.Zero(t, stats.Unordered)
		assert.Zero(t, stats.Failed)
		t.Logf("%s: %+v", s.Name, stats)
	}
}

// GOSHMEM_TEST_SEEDS=n runs all of them with n seeds that were never tried.
func TestWorldSeeds(t *testing.T) {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("GOSHMEM_TEST_SEEDS"), "0"))
	require.NoError(t, err)
	for range n {
		seed := rand.Uint64()
		size := 2 + rand.IntN(3)
		s, _ := over(t, size, 2+rand.IntN(size-1), fabric.Random(seed))
		s.Config.RingCapacity = []int{1, 2, 64}[rand.IntN(3)]
		s.Config.Path = []string{"auto", "proxy"}[rand.IntN(2)]
		if rand.IntN(3) == 0 {
			s.Launch = suite.Joined
		}
		s.Name += fmt.Sprintf("/ring%d/%s/joined=%v", s.Config.RingCapacity, s.Config.Path, s.Launch != nil)
		suite.Run(t, s, slices.Concat(suite.RMA(), suite.AMO()))
	}
}

// The simulated link is what simulated nodes get without a transport of their
// own, in one process or by joining.
func TestWorldLink(t *testing.T) {
	cfg := pe.Config{Size: 4, Nodes: 2, RingCapacity: 64, SimLatency: time.Microsecond, SimBandwidth: 10e9, SimPost: 100}
	for name, launch := range map[string]suite.Launcher{"run": nil, "joined": suite.Joined} {
		s := suite.Setup{Name: name, Config: cfg, Launch: launch}
		if launch != nil {
			// By the environment, as a launcher of processes says it.
			t.Setenv("GOSHMEM_NODES", "2")
			s.Config.Nodes = 0
		}
		suite.Run(t, s, []suite.Case{{Name: "described", Run: func(e *suite.Env) {
			e.Equal(2, e.P.World().Nodes())
			all := e.P.World().Transports()
			e.Equal("simulated link", all[len(all)-1].Name)
			e.Equal("1µs, 10 GB/s, 100ns a post, a port a PE", all[len(all)-1].Detail)
			for to := range e.Size() {
				e.Equal(to/2 == e.Rank()/2, e.Inline(to))
			}
			e.Equal(2, e.P.NodeTeam().Size())
		}}})
		if !raceflag.Enabled && !testing.Short() {
			suite.Run(t, s, light(slices.Concat(suite.RMA(), suite.AMO())))
		}
	}
}

// A dead PE ends what depends on it, and nothing else; the rest goes on.
func TestWorldKill(t *testing.T) {
	for _, launch := range []suite.Launcher{pe.Run, suite.Joined} {
		s, f := over(t, 3, 3, fabric.Config{Seed: 1, Delay: 20, Partial: true})
		const dead = 1 // not the holder of the rendezvous
		err := launch(t.Context(), s.Config, func(p *pe.PE) error {
			return suite.Body(t.Context(), p, s.Config, func(e *suite.Env) {
				sig := e.Signals(3)
				ref := e.Mem(1 << 20)
				e.Barrier()
				if e.Rank() == dead {
					// The others have left the barrier, in which they wait for this PE.
					e.OK(rma.WaitSignal(e.Ctx, e.C, sig.At(2), rma.GE, 2))
					f.Stall(-1, dead)
					e.OK(rma.Signal(e.C, sig.At(0), rma.SignalAdd, 1, 0))
					e.OK(rma.Signal(e.C, sig.At(0), rma.SignalAdd, 1, 2))
					// Until it hears of its own death, which may come before the
					// acknowledgements: no Quiet.
					e.Is(rma.WaitSignal(e.Ctx, e.C, sig.At(1), rma.GE, 1), pe.ErrPeerLost)
					return
				}
				other := 2 - e.Rank()
				e.OK(rma.Signal(e.C, sig.At(2), rma.SignalAdd, 1, dead))
				e.OK(rma.WaitSignal(e.Ctx, e.C, sig.At(0), rma.GE, 1))
				ticket, err := rma.PutMemNBI(e.C, ref, make([]byte, 1<<20), dead)
				e.OK(err)
				// Not before both are so far.
				e.OK(rma.Signal(e.C, sig.At(0), rma.SignalAdd, 1, other))
				e.OK(rma.WaitSignal(e.Ctx, e.C, sig.At(0), rma.GE, 2, rma.From(other)))
				f.Kill(dead)
				e.Is(rma.Wait(e.Ctx, e.C, ticket), pe.ErrPeerLost)
				e.Is(rma.WaitSignal(e.Ctx, e.C, sig.At(1), rma.GE, 1), pe.ErrPeerLost)
				e.Is(rma.PutMem(e.C, ref, make([]byte, 8), dead), pe.ErrPeerLost)
				e.Is(coll.Barrier(e.Ctx, e.P.Team()), pe.ErrPeerLost)
				e.Equal([]int{dead}, e.P.Lost())
				// The two others go on.
				e.OK(e.P.AckLost(dead))
				e.OK(rma.PutMemSignal(e.C, ref, []byte("on"), sig.At(2), rma.SignalAdd, 1, other))
				e.OK(rma.WaitSignal(e.Ctx, e.C, sig.At(2), rma.GE, 1, rma.From(other)))
				e.Equal("on", string(e.Bytes(ref, 2)))
			})
		})
		require.NoError(t, err)
	}
}

// A PE dies by itself after so many requests, in the middle of whatever it does.
func TestWorldDies(t *testing.T) {
	s, _ := over(t, 3, 3, fabric.Config{Seed: 2, Delay: 20, Dies: map[int]int{2: 100}})
	ended := make(chan error, 3)
	err := pe.Run(t.Context(), s.Config, func(p *pe.PE) error {
		sigs, err := p.AllocSignals(t.Context(), 1)
		if err != nil {
			return err
		}
		for i := uint64(1); ; i++ {
			err := rma.Signal(p.Context(), sigs.At(0), rma.SignalAdd, 1, (p.Rank()+1)%3)
			if err == nil {
				err = rma.WaitSignal(t.Context(), p.Context(), sigs.At(0), rma.GE, i)
			}
			if err != nil {
				ended <- err
				return nil
			}
			if i > 100_000 {
				return errors.New("nobody died")
			}
		}
	})
	require.NoError(t, err)
	for range 3 {
		var lost *pe.PeerLostError
		require.ErrorAs(t, <-ended, &lost)
		require.Equal(t, 2, lost.PE)
	}
}

// A stalled lane holds up nobody else's, and a late PE is waited for.
func TestWorldStallAndLate(t *testing.T) {
	s, f := over(t, 3, 3, fabric.Config{Seed: 3, Delay: 20, Late: map[int]int{2: 20_000}})
	err := pe.Run(t.Context(), s.Config, func(p *pe.PE) error {
		return suite.Body(t.Context(), p, s.Config, func(e *suite.Env) {
			sig := e.Signals(1).At(0)
			ref := e.Mem(64)
			e.Barrier()
			switch e.Rank() {
			case 0:
				f.Stall(0, 2)
				_, err := rma.PutMemSignalNBI(e.C, ref, nil, sig, rma.SignalAdd, 1, 2)
				e.OK(err)
				for range 50 {
					e.OK(rma.Signal(e.C, sig, rma.SignalAdd, 1, 1))
				}
				e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.GE, 50))
				f.Resume(0, 2)
			case 1:
				for i := range uint64(50) {
					e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.GE, i+1))
					e.OK(rma.Signal(e.C, sig, rma.SignalAdd, 1, 0))
				}
			case 2:
				e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.GE, 1))
				e.True(!f.Stalled(0, 2), "a signal came through a stalled lane")
			}
			e.OK(rma.Quiet(e.Ctx, e.C))
			e.Barrier()
		})
	})
	require.NoError(t, err)
}

// Two worlds over one fabric, one after the other and at once.
func TestWorldTwice(t *testing.T) {
	s, f := over(t, 2, 2, fabric.Random(7))
	done := make(chan error, 2)
	for range 2 {
		go func() {
			var err error
			for range 3 {
				err = errors.Join(err, pe.Run(context.Background(), s.Config, func(p *pe.PE) error {
					return coll.Barrier(context.Background(), p.Team())
				}))
			}
			done <- err
		}()
	}
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	assert.Equal(t, f.Stats().Posted, f.Stats().Completed)
}
