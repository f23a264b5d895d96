package fabric_test

import (
	"context"
	"errors"
	"fmt"
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

// The suites of rma and amo, with seeds that between them have every kind of
// trouble.
func TestWorldSuites(t *testing.T) {
	setups := []struct {
		seed        uint64
		size, nodes int
		joined      bool
	}{{3, 2, 2, false}, {4, 3, 2, false}, {5, 4, 4, false}, {6, 3, 3, true}}
	if raceflag.Enabled || testing.Short() {
		setups = setups[1:2]
	}
	for _, c := range setups {
		s, f := over(t, c.size, c.nodes, fabric.Random(c.seed))
		if c.joined {
			s.Launch = suite.Joined
		}
		suite.Run(t, s, suite.RMA())
		suite.Run(t, s, suite.AMO())
		stats := f.Stats()
		assert.Zero(t, stats.Unordered)
		assert.Zero(t, stats.Failed)
		t.Logf("%s: %+v", s.Name, stats)
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
			suite.Run(t, s, suite.RMA())
			suite.Run(t, s, suite.AMO())
		}
	}
}

// find is a case of a suite.
func find(t *testing.T, cases []suite.Case, name string) suite.Case {
	t.Helper()
	for _, c := range cases {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no case %q", name)
	return suite.Case{}
}

// run runs one case of a suite and gives its error.
func run(t *testing.T, s suite.Setup, c suite.Case) error {
	cfg := s.Config
	cfg.HeapSize = max(c.Heap, 1<<20)
	cfg.Timeout = 10 * time.Second
	return pe.Run(t.Context(), cfg, func(p *pe.PE) error { return suite.Body(t.Context(), p, cfg, c.Run) })
}

// A transport that breaks the contract must fail the suites: a fence that does
// nothing on lanes that are not ordered, a signal before its payload, a
// completion before its effect. Each is noticed by the case that is for it.
func TestWorldBroken(t *testing.T) {
	for name, broken := range map[string]fabric.Broken{
		"fence":                           fabric.UnorderedLane,
		"amo and value behind queued put": fabric.UnorderedLane,
		"signal behind queued puts":       fabric.UnorderedLane,
		"put signal":                      fabric.EarlySignal,
		"quiet covers everything":         fabric.EarlyAck,
	} {
		t.Run(name, func(t *testing.T) {
			c := find(t, suite.RMA(), name)
			sound, _ := over(t, 2, 2, fabric.Config{Delay: 20, MaxMessage: 65536})
			require.NoError(t, run(t, sound, c))
			for seed := uint64(0); ; seed++ {
				s, f := over(t, 2, 2, fabric.Config{Seed: seed, Broken: broken, MaxMessage: 65536})
				err := run(t, s, c)
				if err != nil {
					t.Logf("seed %d, %v: %v", seed, broken, err)
					break
				}
				require.Less(t, seed, uint64(10), "not noticed: %+v", f.Stats())
			}
		})
	}
}

// A dead PE ends what depends on it, and nothing else; the rest goes on.
func TestWorldKill(t *testing.T) {
	for _, launch := range []suite.Launcher{pe.Run, suite.Joined} {
		s, f := over(t, 3, 3, fabric.Config{Seed: 1, Delay: 20, Partial: true})
		const dead = 1 // not the holder of the rendezvous
		err := launch(t.Context(), s.Config, func(p *pe.PE) error {
			return suite.Body(t.Context(), p, s.Config, func(e *suite.Env) {
				sig := e.Signals(2)
				ref := e.Mem(1 << 20)
				e.Barrier()
				if e.Rank() == dead {
					f.Stall(-1, dead)
					e.OK(rma.Signal(e.C, sig.At(0), rma.SignalAdd, 1, 0))
					e.OK(rma.Signal(e.C, sig.At(0), rma.SignalAdd, 1, 2))
					e.OK(rma.Quiet(e.Ctx, e.C))
					// Until it hears of its own death.
					e.Is(rma.WaitSignal(e.Ctx, e.C, sig.At(1), rma.GE, 1), pe.ErrPeerLost)
					return
				}
				e.OK(rma.WaitSignal(e.Ctx, e.C, sig.At(0), rma.GE, 1))
				ticket, err := rma.PutMemNBI(e.C, ref, make([]byte, 1<<20), dead)
				e.OK(err)
				f.Kill(dead)
				e.Is(rma.Wait(e.Ctx, e.C, ticket), pe.ErrPeerLost)
				e.Is(rma.WaitSignal(e.Ctx, e.C, sig.At(1), rma.GE, 1), pe.ErrPeerLost)
				e.Is(rma.PutMem(e.C, ref, make([]byte, 8), dead), pe.ErrPeerLost)
				e.Is(coll.Barrier(e.Ctx, e.P.Team()), pe.ErrPeerLost)
				e.Is(e.P.Quiet(e.Ctx), pe.ErrPeerLost)
				e.Equal([]int{dead}, e.P.Lost())
				// The two others go on.
				other := 2 - e.Rank()
				e.OK(e.P.AckLost(dead))
				e.OK(rma.PutMemSignal(e.C, ref, []byte("on"), sig.At(1), rma.SignalAdd, 1, other))
				e.OK(rma.WaitSignal(e.Ctx, e.C, sig.At(1), rma.GE, 1, rma.From(other)))
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
			to, from := (p.Rank()+1)%3, (p.Rank()+2)%3
			err := rma.Signal(p.Context(), sigs.At(0), rma.SignalAdd, 1, to)
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
			_ = from
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
			e.Barrier()
			switch e.Rank() {
			case 0:
				f.Stall(0, 2)
				_, err := rma.PutMemSignalNBI(e.C, e.Mem(64), nil, sig, rma.SignalAdd, 1, 2)
				e.OK(err)
				for range 50 {
					e.OK(rma.Signal(e.C, sig, rma.SignalAdd, 1, 1))
				}
				e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.GE, 50))
				f.Resume(0, 2)
			case 1:
				e.Mem(64)
				for i := range uint64(50) {
					e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.GE, i+1))
					e.OK(rma.Signal(e.C, sig, rma.SignalAdd, 1, 0))
				}
			case 2:
				e.Mem(64)
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
