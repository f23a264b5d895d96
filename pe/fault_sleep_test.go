package pe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"goshmem/amo"
	"goshmem/coll"
	"goshmem/heap"
	"goshmem/internal/faultlab"
	"goshmem/pe"
	"goshmem/rma"
)

// These run as two processes and as two PEs of one.

// sleepArgs says how PE 0 wakes PE 1.
type sleepArgs struct {
	Path string
	Wake string
}

func (a sleepArgs) config() pe.Config {
	return pe.Config{HeapSize: 1 << 20, Contexts: 8, Path: a.Path, SleepAfter: 1, SpinTurns: 1}
}

const (
	sleepRounds  = 10
	manySleepers = 8
)

// wakes are the ways to change a word of PE 1 to v.
func wakes(s *sleepSite) map[string]func(v uint64) error {
	c, word := s.pe.Context(), s.words.At(0)
	return map[string]func(v uint64) error{
		"put signal": func(v uint64) error {
			return rma.PutMemSignal(c, s.box, make([]byte, 100), s.sigs.At(0), rma.SignalSet, v, 1)
		},
		"put signal nbi": func(v uint64) error {
			_, err := rma.PutMemSignalNBI(c, s.box, make([]byte, 1<<19), s.sigs.At(0), rma.SignalSet, v, 1)
			return err
		},
		"signal": func(uint64) error { return rma.Signal(c, s.sigs.At(0), rma.SignalAdd, 1, 1) },
		"amo":    func(uint64) error { return amo.Add(c, word, 1, 1) },
		"fetching amo": func(v uint64) error {
			old, err := amo.Swap(c, word, v, 1)
			if err == nil && old != v-1 {
				err = fmt.Errorf("swapped %d for %d", old, v)
			}
			return err
		},
		"put value": func(v uint64) error { return rma.PutValue(c, word, v, 1) },
		"plain put": func(v uint64) error { return rma.Put(c, s.words, []uint64{v}, 1) },
	}
}

// onWord tells which of them change the word, not the signal.
func onWord(wake string) bool {
	return wake == "amo" || wake == "fetching amo" || wake == "put value" || wake == "plain put"
}

type sleepSite struct {
	pe    *pe.PE
	box   heap.Ref
	sigs  heap.Signals
	words heap.Array[uint64]
}

func newSleepSite(ctx context.Context, p *pe.PE) (*sleepSite, error) {
	box, err := p.AllocMem(ctx, 1<<19, 0)
	if err != nil {
		return nil, err
	}
	sigs, err := p.AllocSignals(ctx, manySleepers+1)
	if err != nil {
		return nil, err
	}
	words, err := pe.Calloc[uint64](ctx, p, 8)
	if err != nil {
		return nil, err
	}
	return &sleepSite{p, box, sigs, words}, coll.Sync(ctx, p.Team())
}

// asleep waits until n goroutines of this PE sleep.
func (s *sleepSite) asleep(ctx context.Context, n int) error {
	for pe.Asleep(s.pe) < n {
		if ctx.Err() != nil {
			return fmt.Errorf("%d asleep: %w", pe.Asleep(s.pe), ctx.Err())
		}
		time.Sleep(50 * time.Microsecond)
	}
	return nil
}

// wakeUp lets PE 1 sleep and PE 0 wake it, round by round. It reports how often
// PE 1's bell rang.
func wakeUp(ctx context.Context, p *pe.PE, wake string) (rings uint32, err error) {
	s, err := newSleepSite(ctx, p)
	if err != nil {
		return 0, err
	}
	c := p.Context()
	if p.Rank() == 0 {
		do := wakes(s)[wake]
		for v := uint64(1); v <= sleepRounds; v++ {
			if err := rma.WaitSignals(ctx, c, 1, rma.From(1)); err != nil {
				return 0, err
			}
			if err := do(v); err != nil {
				return 0, err
			}
		}
		return 0, rma.WaitSignals(ctx, c, 1, rma.From(1))
	}
	// A wait for a word looks at it every millisecond: beside it, one that only
	// the bell wakes.
	var deep errgroup.Group
	deep.Go(func() error { return rma.WaitSignal(ctx, c, s.sigs.At(manySleepers), rma.GE, 1) })
	before := pe.Rings(p)
	for v := uint64(1); v <= sleepRounds; v++ {
		var g errgroup.Group
		g.Go(func() error {
			if onWord(wake) {
				return rma.WaitUntil(ctx, c, s.words.At(0), rma.GE, v)
			}
			return rma.WaitSignal(ctx, c, s.sigs.At(0), rma.GE, v)
		})
		g.Go(func() error {
			n := 2
			if onWord(wake) {
				n = 1
			}
			if err := s.asleep(ctx, n); err != nil {
				return err
			}
			return rma.Notify(c, 0, 0)
		})
		if err := g.Wait(); err != nil {
			return 0, err
		}
	}
	rings = pe.Rings(p) - before
	if err := rma.Signal(c, s.sigs.At(manySleepers), rma.SignalSet, 1, 1); err != nil {
		return 0, err
	}
	if err := deep.Wait(); err != nil {
		return 0, err
	}
	return rings, rma.Notify(c, 0, 0)
}

// wakeMany lets many goroutines of PE 1 sleep on signals of their own, and PE 0
// wake them one by one, the last first.
func wakeMany(ctx context.Context, p *pe.PE) error {
	s, err := newSleepSite(ctx, p)
	if err != nil {
		return err
	}
	c := p.Context()
	if p.Rank() == 0 {
		if err := rma.WaitSignals(ctx, c, 1, rma.From(1)); err != nil {
			return err
		}
		for i := manySleepers - 1; i >= 0; i-- {
			if err := rma.Signal(c, s.sigs.At(i), rma.SignalAdd, 1, 1); err != nil {
				return err
			}
			// It is awake, the others are not.
			if err := rma.WaitSignals(ctx, c, 1, rma.From(1), rma.Index(1)); err != nil {
				return err
			}
		}
		return nil
	}
	var g errgroup.Group
	for i := range manySleepers {
		g.Go(func() error {
			if err := rma.WaitSignal(ctx, c, s.sigs.At(i), rma.GE, 1); err != nil {
				return err
			}
			for j := range i {
				if ok, err := rma.TestSignal(c, s.sigs.At(j), rma.EQ, 0); err != nil || !ok {
					return fmt.Errorf("signal %d came before signal %d: %w", j, i, err)
				}
			}
			return rma.Notify(c, 1, 0)
		})
	}
	if err := s.asleep(ctx, manySleepers); err != nil {
		return err
	}
	if err := rma.Notify(c, 0, 0); err != nil {
		return err
	}
	return g.Wait()
}

// endings are the ways in which a sleeping wait ends without its signal.
func endings(ctx context.Context, p *pe.PE) error {
	s, err := newSleepSite(ctx, p)
	if err != nil {
		return err
	}
	c, never := p.Context(), s.sigs.At(manySleepers)
	// By cancellation, one of several.
	cause := errors.New("the caller has changed its mind")
	cancelled, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var g, rest errgroup.Group
	g.Go(func() error {
		if err := rma.WaitSignal(cancelled, c, never, rma.GE, 1); !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
			return fmt.Errorf("cancelled: %w", err)
		}
		return nil
	})
	rest.Go(func() error { return rma.WaitSignal(ctx, c, never, rma.GE, 1) })
	if err := s.asleep(ctx, 2); err != nil {
		return err
	}
	cancel(cause)
	if err := g.Wait(); err != nil {
		return err
	}
	// By the context's deadline.
	short, end := context.WithTimeout(ctx, 20*time.Millisecond)
	defer end()
	err = rma.WaitSignal(short, c, never, rma.GE, 5)
	e, ok := errors.AsType[*pe.TimeoutError](err)
	if !ok || !errors.Is(err, context.DeadlineExceeded) || e.Want != 5 || e.Have != 0 {
		return fmt.Errorf("deadline: %w", err)
	}
	// The other one still waits, and gets its signal from this very PE.
	if err := rma.Signal(c, never, rma.SignalAdd, 1, p.Rank()); err != nil {
		return err
	}
	if err := rest.Wait(); err != nil {
		return err
	}
	// A wait that depends on the other must not find that it has left.
	return coll.Sync(ctx, p.Team())
}

// sleepRole is these as processes.
func sleepRole(body func(ctx context.Context, c *faultlab.Child, p *pe.PE, wake string) error) faultlab.Role {
	return role(func(ctx context.Context, c *faultlab.Child, a sleepArgs) error {
		cfg := a.config()
		cfg.Rank, cfg.Size, cfg.Rendezvous = c.Rank, c.Size, c.Rendezvous
		p, err := pe.Join(ctx, cfg)
		if err != nil {
			return err
		}
		if err := body(ctx, c, p, a.Wake); err != nil {
			return err
		}
		return p.Close(ctx)
	})
}

func sleepRoles(roles map[string]faultlab.Role) {
	roles["wake up"] = sleepRole(func(ctx context.Context, c *faultlab.Child, p *pe.PE, wake string) error {
		rings, err := wakeUp(ctx, p, wake)
		c.Report("rings", rings)
		return err
	})
	roles["wake many"] = sleepRole(func(ctx context.Context, _ *faultlab.Child, p *pe.PE, _ string) error { return wakeMany(ctx, p) })
	roles["endings"] = sleepRole(func(ctx context.Context, _ *faultlab.Child, p *pe.PE, _ string) error { return endings(ctx, p) })
}

func bothPaths(t *testing.T, f func(t *testing.T, path string)) {
	for _, path := range []string{"direct", "proxy", "tcp"} {
		t.Run(path, func(t *testing.T) { f(t, path) })
	}
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestWakeSleeper(t *testing.T) {
	for wake := range wakes(&sleepSite{pe: new(pe.PE)}) {
		t.Run(wake, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, path string) {
				a := sleepArgs{Path: path, Wake: wake}
				t.Run("processes", func(t *testing.T) {
					j := faultlab.Start(t, faultlab.Spec{Role: "wake up", N: 2, Args: a})
					var rings uint32
					j.Procs[1].Expect("rings", &rings)
					checkRings(t, wake, rings)
					j.WaitAll()
				})
				t.Run("one process", func(t *testing.T) {
					ctx, cfg := testContext(t), a.config()
					cfg.Size = 2
					require.NoError(t, pe.Run(ctx, cfg, func(p *pe.PE) error {
						rings, err := wakeUp(ctx, p, wake)
						if p.Rank() == 1 && err == nil {
							checkRings(t, wake, rings)
						}
						return err
					}))
				})
			})
		})
	}
}

// checkRings checks that a sleeper was woken, and did not just look after its
// nap: it is between two naps seldom.
func checkRings(t *testing.T, wake string, rings uint32) {
	if wake != "plain put" && rings < sleepRounds/2 {
		t.Errorf("%d rings in %d rounds", rings, sleepRounds)
	}
}

func TestWakeMany(t *testing.T) { bothWays(t, "wake many", wakeMany) }

func TestSleepEnds(t *testing.T) { bothWays(t, "endings", endings) }

// bothWays runs a role, and the same body as the PEs of one process.
func bothWays(t *testing.T, role string, body func(context.Context, *pe.PE) error) {
	bothPaths(t, func(t *testing.T, path string) {
		a := sleepArgs{Path: path}
		t.Run("processes", func(t *testing.T) {
			faultlab.Start(t, faultlab.Spec{Role: role, N: 2, Args: a}).WaitAll()
		})
		t.Run("one process", func(t *testing.T) {
			ctx, cfg := testContext(t), a.config()
			cfg.Size = 2
			require.NoError(t, pe.Run(ctx, cfg, func(p *pe.PE) error { return body(ctx, p) }))
		})
	})
}
