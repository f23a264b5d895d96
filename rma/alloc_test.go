//go:build !race

package rma_test

import (
	"testing"

	"goshmem/amo"
	"goshmem/coll"
	"goshmem/heap"
	"goshmem/internal/suite"
	"goshmem/pe"
	"goshmem/rma"
)

// runs is how often each hot path is taken to count its allocations.
const runs = 200

// hotPaths are the operations that must not allocate, towards PE 1, whose
// owner's own signals and words the waits look at. Those that queue on path
// proxy must not either.
func hotPaths(e *suite.Env) map[string]func() error {
	c, ctx := e.C, e.Ctx
	ref := heap.MakeRef(e.P.World().ID(), heap.RegionHeap, 0)
	sig := heap.MakeSignal(ref.Add(8192))
	word := heap.MakePtr[uint64](ref.Add(4096))
	own := heap.MakeSignal(ref.Add(8256))
	e.OK(rma.Signal(c, own, rma.SignalSet, 1, e.Rank()))
	e.OK(rma.Quiet(ctx, c))
	src, dst := make([]byte, 256), make([]byte, 256)
	a, err := pe.ArrayAt[uint64](e.P, ref, 64)
	e.OK(err)
	words := make([]uint64, 8)
	tkt := func(_ rma.Ticket, err error) error { return err }
	inline := map[string]func() error{
		"put":           func() error { return rma.PutMem(c, ref, src, 1) },
		"put 8":         func() error { return rma.PutMem(c, ref, src[:8], 1) },
		"put typed":     func() error { return rma.Put(c, a, words, 1) },
		"get":           func() error { return rma.GetMem(c, dst, ref, 1) },
		"get typed":     func() error { return rma.Get(c, words, a, 1) },
		"put signal":    func() error { return rma.PutMemSignal(c, ref, src, sig, rma.SignalAdd, 1, 1) },
		"put value":     func() error { return rma.PutValue(c, word, 1, 1) },
		"get value":     func() error { _, err := rma.GetValue(c, word, 1); return err },
		"put notify":    func() error { return rma.PutMemNotify(c, ref, src, 0, 1) },
		"fetch add":     func() error { _, err := amo.FetchAdd(c, word, 1, 1); return err },
		"compare swap":  func() error { _, err := amo.CompareSwap(c, word, 0, 1, 1); return err },
		"swap":          func() error { _, err := amo.Swap(c, word, 1, 1); return err },
		"batch":         func() error { return tkt(rma.PutBatch(c, nil, 1)) },
		"iput":          func() error { return rma.IPut(c, a, words, 2, 1, 4, 1) },
		"float add":     func() error { return amo.Add(c, heap.MakePtr[float64](word.Ref().Add(8)), 1, 1) },
		"get nbi quiet": func() error { return first(tkt(rma.GetMemNBI(c, dst, ref, 1)), rma.Quiet(ctx, c)) },
	}
	both := map[string]func() error{
		"put nbi, quiet": func() error { return first(tkt(rma.PutMemNBI(c, ref, src, 1)), rma.Quiet(ctx, c)) },
		"signal":         func() error { return rma.Signal(c, sig, rma.SignalAdd, 1, 1) },
		"add":            func() error { return amo.Add(c, word, 1, 1) },
		"notify":         func() error { return rma.Notify(c, 1, 1) },
		"quiet":          func() error { return rma.Quiet(ctx, c) },
		"fence":          func() error { return rma.Fence(c) },
		"wait signal":    func() error { return rma.WaitSignal(ctx, c, own, rma.EQ, 1) },
		"test signal":    func() error { _, err := rma.TestSignal(c, own, rma.NE, 1); return err },
		"read signal":    func() error { _, err := rma.ReadSignal(c, own); return err },
		"wait own notify": func() error {
			return first(rma.Notify(c, 2, e.Rank()), rma.WaitNotify(ctx, c, 2, e.Rank(), 1))
		},
		"test until": func() error { _, err := rma.TestUntil(c, word, rma.EQ, 1); return err },
	}
	if e.Inline(1) {
		for name, f := range inline {
			both[name] = f
		}
	}
	return both
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestHotPathsAllocateNothing(t *testing.T) {
	for _, path := range []string{"direct", "proxy"} {
		t.Run(path, func(t *testing.T) {
			cfg := pe.Config{Size: 2, Path: path, HeapSize: 1 << 20}
			err := pe.Run(t.Context(), cfg, func(p *pe.PE) error {
				return suite.Body(t.Context(), p, cfg, func(e *suite.Env) {
					if e.Rank() != 0 {
						return
					}
					for name, f := range hotPaths(e) {
						// Queues keep the memory that they grew to.
						for range 50 {
							e.OK(f())
						}
						e.OK(rma.Quiet(e.Ctx, e.C))
						var err error
						if n := testing.AllocsPerRun(runs, func() { err = first(err, f()) }); n != 0 {
							t.Errorf("%s allocates %v times", name, n)
						}
						e.OK(err)
					}
				})
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// Waits that spin, yield and drive the proxy do not allocate either, nor do
// barriers: two PEs that need each other.
func TestHandOverAllocatesNothing(t *testing.T) {
	for _, path := range []string{"direct", "proxy"} {
		for name, turn := range map[string]func(e *suite.Env, sig heap.Signal, n uint64) error{
			"signal": func(e *suite.Env, sig heap.Signal, n uint64) error {
				return first(rma.Signal(e.C, sig, rma.SignalSet, n, e.Next(1)), rma.WaitSignal(e.Ctx, e.C, sig, rma.GE, n))
			},
			"notify": func(e *suite.Env, _ heap.Signal, _ uint64) error {
				return first(rma.Notify(e.C, 0, e.Next(1)), rma.WaitNotify(e.Ctx, e.C, 0, e.Next(1), 1))
			},
			"barrier": func(e *suite.Env, _ heap.Signal, _ uint64) error { return coll.Barrier(e.Ctx, e.P.Team()) },
			"sync":    func(e *suite.Env, _ heap.Signal, _ uint64) error { return coll.Sync(e.Ctx, e.P.Team()) },
		} {
			t.Run(path+"/"+name, func(t *testing.T) {
				// Nobody sleeps: a timer of a sleeper is memory.
				cfg := pe.Config{Size: 2, Path: path, HeapSize: 1 << 20, SleepAfter: 1 << 40}
				err := pe.Run(t.Context(), cfg, func(p *pe.PE) error {
					return suite.Body(t.Context(), p, cfg, func(e *suite.Env) {
						sig := e.Signals(1).At(0)
						n := uint64(0)
						step := func() {
							n++
							e.OK(turn(e, sig, n))
						}
						for range 50 {
							step()
						}
						if e.Rank() == 0 {
							if n := testing.AllocsPerRun(runs, step); n != 0 {
								t.Errorf("allocates %v times", n)
							}
							return
						}
						for range runs + 1 { // AllocsPerRun warms up by one
							step()
						}
					})
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}
