package rma_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"goshmem/amo"
	"goshmem/heap"
	"goshmem/internal/suite"
	"goshmem/pe"
	"goshmem/rma"
)

// refused is a call that must fail before it did anything.
type refused struct {
	name string
	want error
	text string // how the message begins; empty: not looked at
	do   func() error
}

// refusals is every way to call an operation wrongly, PE 1 being the target.
func refusals(e *suite.Env, ref heap.Ref, sigs heap.Signals, words heap.Array[uint64]) []refused {
	c, ctx := e.C, e.Ctx
	size, _ := e.P.Heap()
	buf := make([]byte, 4096)
	end := heap.MakeRef(ref.World(), heap.RegionHeap, uint64(size))
	none, foreign := heap.Ref{}, heap.MakeRef(ref.World()+1, heap.RegionHeap, 0)
	nowhere := heap.MakeRef(ref.World(), 9, 0)
	wrapped := ref.Add(^uint64(0))
	sig, word := sigs.At(0), words.At(0)
	own := e.Bytes(ref, 4096)
	sigAt := func(r heap.Ref) heap.Signal { return heap.MakeSignal(r) }
	tkt := func(_ rma.Ticket, err error) error { return err }
	u64 := func(_ uint64, err error) error { return err }
	return []refused{
		{"range", pe.ErrRange, "rma: put 4096 B to pe 1 at heap+", func() error { return rma.PutMem(c, end.Add(^uint64(0)-4095+128), buf, 1) }},
		{"range at the end", pe.ErrRange, "rma: put 1 B to pe 1 at heap+", func() error { return rma.PutMem(c, end, buf[:1], 1) }},
		{"range past the end, nothing", pe.ErrRange, "", func() error { return rma.PutMem(c, end.Add(1), nil, 1) }},
		{"range wraps", pe.ErrRange, "", func() error { return rma.PutMem(c, wrapped, buf, 1) }},
		{"range sum wraps", pe.ErrRange, "", func() error { return rma.PutMem(c, heap.MakeRef(ref.World(), 0, ^uint64(0)-7), buf[:8], 1) }},
		{"range 8 B", pe.ErrRange, "", func() error { return rma.PutMem(c, end.Add(^uint64(0)), buf[:8], 1) }},
		{"no reference", pe.ErrBadRef, "rma: put 8 B to pe 1 via ", func() error { return rma.PutMem(c, none, buf[:8], 1) }},
		{"foreign reference", pe.ErrBadRef, "", func() error { return rma.PutMem(c, foreign, buf[:8], 1) }},
		{"no such region", pe.ErrBadRef, "rma: put 8 B to pe 1 at region9+0x0", func() error { return rma.PutMem(c, nowhere, buf[:8], 1) }},
		{"pe -1", pe.ErrPeer, "rma: put 8 B at heap+", func() error { return rma.PutMem(c, ref, buf[:8], -1) }},
		{"pe n", pe.ErrPeer, "rma: put 8 B to pe 3 at heap+", func() error { return rma.PutMem(c, ref, buf[:8], e.Size()) }},
		{"pe of 2^32", pe.ErrPeer, "", func() error { return rma.PutMem(c, ref, buf[:8], 1<<32+1) }},
		{"alias", pe.ErrAlias, "rma: put 100 B to pe 0", func() error { return rma.PutMem(c, ref.Add(10), own[:100], 0) }},
		{"alias 8 B", pe.ErrAlias, "", func() error { return rma.PutMem(c, ref, own[4:12], 0) }},
		{"alias nbi", pe.ErrAlias, "rma: put nbi 100 B", func() error { return tkt(rma.PutMemNBI(c, ref.Add(99), own[:100], 0)) }},
		{"alias get", pe.ErrAlias, "rma: get 100 B", func() error { return rma.GetMem(c, own[:100], ref.Add(1), 0) }},
		{"alias signal", pe.ErrAlias, "rma: put signal 100 B", func() error { return rma.PutMemSignal(c, ref.Add(1), own[:100], sig, rma.SignalSet, 1, 0) }},
		{"alias batch", pe.ErrAlias, "rma: put batch", func() error {
			return tkt(rma.PutBatch(c, []rma.BatchItem{{Dst: ref, Src: buf[:8]}, {Dst: ref.Add(1), Src: own[:8]}}, 0))
		}},
		{"alias strided", pe.ErrAlias, "rma: iput", func() error {
			return rma.IPut(c, words, words.Local(), 2, 1, 3, 0)
		}},
		{"nbi range", pe.ErrRange, "rma: put nbi 8 B", func() error { return tkt(rma.PutMemNBI(c, end, buf[:8], 1)) }},
		{"nbi pe", pe.ErrPeer, "", func() error { return tkt(rma.PutMemNBI(c, ref, buf[:8], 99)) }},
		{"try range", pe.ErrRange, "", func() error { return tkt(rma.TryPutMemNBI(c, end, buf[:8], 1)) }},
		{"get range", pe.ErrRange, "rma: get 4096 B to pe 1 at heap+", func() error { return rma.GetMem(c, buf, end.Add(^uint64(0)-99), 1) }},
		{"get 8 B", pe.ErrRange, "", func() error { return rma.GetMem(c, buf[:8], end, 1) }},
		{"get foreign", pe.ErrBadRef, "", func() error { return rma.GetMem(c, buf[:8], foreign, 1) }},
		{"get pe", pe.ErrPeer, "", func() error { return rma.GetMem(c, buf[:8], ref, 4) }},
		{"get nbi range", pe.ErrRange, "", func() error { return tkt(rma.GetMemNBI(c, buf[:8], end, 1)) }},
		{"typed too long", pe.ErrRange, "rma: put 72 B to pe 1 at heap+", func() error { return rma.Put(c, words, make([]uint64, 9), 1) }},
		{"typed get too long", pe.ErrRange, "rma: get 72 B", func() error { return rma.Get(c, make([]uint64, 9), words, 1) }},
		{"typed part too long", pe.ErrRange, "", func() error { return rma.Put(c, words.Slice(7, 8), make([]uint64, 2), 1) }},
		{"slice out of range", pe.ErrRange, "", func() error { return rma.Put(c, words.Slice(7, 9), nil, 1) }},
		{"zero array", pe.ErrBadRef, "", func() error { return rma.Put(c, heap.Array[int64]{}, []int64{1}, 1) }},
		{"zero array, nothing", pe.ErrBadRef, "", func() error { return rma.Put(c, heap.Array[int64]{}, nil, 1) }},
		{"zero array nbi", pe.ErrBadRef, "", func() error { return tkt(rma.GetNBI(c, []int64{1}, heap.Array[int64]{}, 1)) }},

		{"signal op", pe.ErrConfig, "rma: signal", func() error { return rma.Signal(c, sig, 0, 1, 1) }},
		{"signal op 3", pe.ErrConfig, "", func() error { return rma.PutMemSignal(c, ref, buf[:8], sig, 3, 1, 1) }},
		{"signal nowhere", pe.ErrBadRef, "", func() error { return rma.Signal(c, heap.Signal{}, rma.SignalSet, 1, 1) }},
		{"signal foreign", pe.ErrBadRef, "", func() error { return rma.PutMemSignal(c, ref, buf[:8], sigAt(foreign), rma.SignalSet, 1, 1) }},
		{"signal index", pe.ErrRange, "", func() error { return rma.Signal(c, sigs.At(sigs.Len()), rma.SignalSet, 1, 1) }},
		{"signal misaligned", pe.ErrAlign, "", func() error { return rma.Signal(c, sigAt(sig.Ref().Add(4)), rma.SignalSet, 1, 1) }},
		{"signal at the end", pe.ErrRange, "", func() error { return rma.Signal(c, sigAt(end.Add(^uint64(0)-7)), rma.SignalSet, 1, 1) }},
		{"signal half out", pe.ErrRange, "", func() error { return rma.Signal(c, sigAt(end.Add(^uint64(0)-31)), rma.SignalSet, 1, 1) }},
		{"signal pe", pe.ErrPeer, "rma: signal 0 B to pe 3", func() error { return rma.Signal(c, sig, rma.SignalSet, 1, 3) }},
		{"put signal range", pe.ErrRange, "rma: put signal 8 B to pe 1", func() error { return rma.PutMemSignal(c, end, buf[:8], sig, rma.SignalSet, 1, 1) }},
		{"put signal, nothing, range", pe.ErrRange, "", func() error { return rma.PutMemSignal(c, end.Add(1), nil, sig, rma.SignalSet, 1, 1) }},
		{"put signal typed", pe.ErrRange, "", func() error { return rma.PutSignal(c, words, make([]uint64, 9), sig, rma.SignalAdd, 1, 1) }},
		{"notify index", pe.ErrRange, "rma: notify", func() error { return rma.Notify(c, 8, 1) }},
		{"notify index -1", pe.ErrRange, "", func() error { return rma.PutMemNotify(c, ref, nil, -1, 1) }},
		{"notify pe", pe.ErrPeer, "", func() error { return rma.Notify(c, 0, 3) }},

		{"value range", pe.ErrRange, "rma: put value 8 B to pe 1", func() error { return rma.PutValue(c, heap.MakePtr[uint64](end), 1, 1) }},
		{"value index", pe.ErrRange, "", func() error { return rma.PutValue(c, words.At(8), 1, 1) }},
		{"value index -1", pe.ErrRange, "", func() error { return u64(rma.GetValue(c, words.At(-1), 1)) }},
		{"value misaligned", pe.ErrAlign, "rma: put value 8 B", func() error { return rma.PutValue(c, heap.MakePtr[uint64](ref.Add(4)), 1, 1) }},
		{"value misaligned 2", pe.ErrAlign, "", func() error { return rma.PutValue(c, heap.MakePtr[int16](ref.Add(1)), 1, 1) }},
		{"value misaligned get", pe.ErrAlign, "rma: get value 8 B", func() error { return u64(rma.GetValue(c, heap.MakePtr[uint64](ref.Add(4)), 1)) }},
		{"value foreign", pe.ErrBadRef, "", func() error { return rma.PutValue(c, heap.MakePtr[uint64](foreign), 1, 1) }},
		{"value nowhere", pe.ErrBadRef, "", func() error { return u64(rma.GetValue(c, heap.Ptr[uint64]{}, 1)) }},
		{"value pe", pe.ErrPeer, "", func() error { return rma.PutValue(c, word, 1, -7) }},

		{"stride 0", pe.ErrRange, "rma: iput", func() error { return rma.IPut(c, words, buf64(8), 0, 1, 1, 1) }},
		{"stride -1", pe.ErrRange, "rma: iget", func() error { return rma.IGet(c, buf64(8), words, 1, -1, 1, 1) }},
		{"strided n", pe.ErrRange, "", func() error { return rma.IPut(c, words, buf64(8), 1, 1, -1, 1) }},
		{"strided too far", pe.ErrRange, "", func() error { return rma.IPut(c, words, buf64(8), 4, 1, 3, 1) }},
		{"strided source", pe.ErrRange, "", func() error { return rma.IPut(c, words, buf64(2), 1, 2, 2, 1) }},
		{"strided overflow", pe.ErrRange, "", func() error { return rma.IPut(c, words, buf64(2), 1<<62, 1, 3, 1) }},
		{"strided overflow n", pe.ErrRange, "", func() error { return rma.IPut(c, words, buf64(2), 1, 1, 1<<62, 1) }},
		{"strided zero array", pe.ErrBadRef, "", func() error { return rma.IGet(c, buf64(2), heap.Array[uint64]{}, 1, 1, 1, 1) }},
		{"strided pe", pe.ErrPeer, "", func() error { return rma.IPut(c, words, buf64(2), 1, 1, 1, 5) }},

		{"batch item", pe.ErrRange, "rma: put batch 8 B to pe 1", func() error {
			return tkt(rma.PutBatch(c, []rma.BatchItem{{Dst: ref, Src: buf[:8]}, {Dst: end, Src: buf[:8]}}, 1))
		}},
		{"batch pe", pe.ErrPeer, "", func() error { return tkt(rma.PutBatch(c, nil, 5)) }},

		{"wait cmp", pe.ErrConfig, "rma: wait signal", func() error { return rma.WaitSignal(ctx, c, sig, 6, 1) }},
		{"wait from", pe.ErrPeer, "rma: wait signal", func() error { return rma.WaitSignal(ctx, c, sig, rma.NE, 1, rma.From(0, 3)) }},
		{"wait from, though it holds", pe.ErrPeer, "", func() error { return rma.WaitSignal(ctx, c, sig, rma.EQ, 0, rma.From(-1)) }},
		{"wait nowhere", pe.ErrBadRef, "", func() error { return rma.WaitSignal(ctx, c, heap.Signal{}, rma.EQ, 1) }},
		{"wait foreign", pe.ErrBadRef, "", func() error { return rma.WaitSignal(ctx, c, sigAt(foreign), rma.EQ, 1) }},
		{"wait misaligned", pe.ErrAlign, "", func() error { return rma.WaitSignal(ctx, c, sigAt(sig.Ref().Add(4)), rma.EQ, 1) }},
		{"wait index", pe.ErrRange, "", func() error { return rma.WaitSignal(ctx, c, sigs.At(99), rma.EQ, 1) }},
		{"read foreign", pe.ErrBadRef, "rma: read signal", func() error { return u64(rma.ReadSignal(c, sigAt(foreign))) }},
		{"test cmp", pe.ErrConfig, "rma: test signal", func() error { _, err := rma.TestSignal(c, sig, 77, 1); return err }},
		{"all status", pe.ErrConfig, "rma: wait all", func() error { return rma.WaitAll(ctx, c, sigs, rma.Status{1}, rma.EQ, 1) }},
		{"any range", pe.ErrRange, "rma: wait any", func() error { _, err := rma.WaitAny(ctx, c, sigs.Slice(3, 9), nil, 0, rma.EQ, 1); return err }},
		{"some foreign", pe.ErrBadRef, "rma: wait some", func() error {
			_, err := rma.WaitSome(ctx, c, heap.MakeSignals(foreign, 2), nil, nil, rma.EQ, 1)
			return err
		}},
		{"test all past the end", pe.ErrRange, "rma: test all", func() error {
			_, err := rma.TestAll(c, heap.MakeSignals(end.Add(^uint64(0)-63), 2), nil, rma.EQ, 1)
			return err
		}},
		{"until cmp", pe.ErrConfig, "rma: wait until", func() error { return rma.WaitUntil(ctx, c, word, 9, 1) }},
		{"until misaligned", pe.ErrAlign, "", func() error {
			return rma.WaitUntil(ctx, c, heap.MakePtr[uint64](word.Ref().Add(4)), rma.EQ, 1)
		}},
		{"until foreign", pe.ErrBadRef, "", func() error { _, err := rma.TestUntil(c, heap.MakePtr[int32](foreign), rma.EQ, 1); return err }},
		{"until from", pe.ErrPeer, "", func() error { return rma.WaitUntil(ctx, c, word, rma.EQ, 1, rma.From(3)) }},
		{"signals index", pe.ErrRange, "rma: wait signals", func() error { return rma.WaitSignals(ctx, c, 1, rma.Index(8)) }},
		{"signals index -1", pe.ErrRange, "", func() error { return rma.WaitSignals(ctx, c, 1, rma.Index(-1)) }},
		{"signals from", pe.ErrPeer, "", func() error { return rma.WaitSignals(ctx, c, 1, rma.From(3)) }},
		{"notify wait pe", pe.ErrPeer, "rma: wait notify", func() error { return rma.WaitNotify(ctx, c, 0, 3, 1) }},
		{"notify wait index", pe.ErrRange, "", func() error { return rma.WaitNotify(ctx, c, 8, 1, 1) }},

		{"amo range", pe.ErrRange, "amo: fetch add 8 B to pe 1 at heap+", func() error { return u64(amo.FetchAdd(c, heap.MakePtr[uint64](end), 1, 1)) }},
		{"amo misaligned", pe.ErrAlign, "amo: set 8 B", func() error { return amo.Set(c, heap.MakePtr[uint64](ref.Add(4)), 1, 1) }},
		{"amo misaligned 4", pe.ErrAlign, "", func() error { return amo.Add(c, heap.MakePtr[float32](ref.Add(2)), 1, 1) }},
		{"amo foreign", pe.ErrBadRef, "amo: compare swap", func() error { return u64(amo.CompareSwap(c, heap.MakePtr[uint64](foreign), 0, 1, 1)) }},
		{"amo nowhere", pe.ErrBadRef, "", func() error { return amo.Inc(c, heap.Ptr[int64]{}, 1) }},
		{"amo index", pe.ErrRange, "", func() error { return amo.Xor(c, words.At(8), 1, 1) }},
		{"amo pe", pe.ErrPeer, "amo: swap", func() error { return u64(amo.Swap(c, word, 1, 3)) }},
		{"amo nbi pe", pe.ErrPeer, "amo: fetch nbi", func() error { var v uint64; return tkt(amo.FetchNBI(c, &v, word, -1)) }},
		{"amo try range", pe.ErrRange, "", func() error { return amo.TryAdd(c, words.At(100), 1, 1) }},
	}
}

func buf64(n int) []uint64 { return make([]uint64, n) }

// Every refusal is the right typed error, says what was asked, and nothing
// happens before it: no operation is counted, no byte changes.
func TestRefusals(t *testing.T) {
	for _, path := range []string{"direct", "proxy"} {
		for _, used := range []bool{false, true} {
			name := path + "/fresh lanes"
			if used {
				name = path + "/used lanes"
			}
			t.Run(name, func(t *testing.T) {
				refuse(t, pe.Config{Size: 3, Path: path, HeapSize: 1 << 20, RingCapacity: 8, Timeout: 20 * time.Second}, used)
			})
		}
	}
}

func refuse(t *testing.T, cfg pe.Config, used bool) {
	err := pe.Run(t.Context(), cfg, func(p *pe.PE) error {
		return suite.Body(t.Context(), p, cfg, func(e *suite.Env) {
			ref := e.Mem(4096)
			sigs := e.Signals(4)
			words := suite.Calloc[uint64](e, 8)
			e.Stillness(func() {
				if used {
					for i := range e.Size() {
						e.OK(rma.PutMem(e.C, ref, make([]byte, 1), i))
					}
				}
				before := e.P.World().Stats()
				for _, r := range refusals(e, ref, sigs, words) {
					err := r.do()
					switch {
					case !errors.Is(err, r.want):
						t.Errorf("%s: got %v, want %v", r.name, err, r.want)
						continue
					case !strings.HasPrefix(err.Error(), r.text):
						t.Errorf("%s: %q does not begin with %q", r.name, err, r.text)
					}
					var oe *pe.OpError
					if !errors.As(err, &oe) || oe.Op == "" || oe.Seq != 0 {
						t.Errorf("%s: no OpError without a number: %#v", r.name, oe)
					}
				}
				after := e.P.World().Stats()
				e.Equal(before.Sum().Issued, after.Sum().Issued)
				e.Equal(before.Sum().Acked, after.Sum().Acked)
				e.Equal(before.RingClaimed, after.RingClaimed)
			})
			e.Barrier()
			e.True(!slices.ContainsFunc(e.Bytes(ref, 4096), func(b byte) bool { return b != 0 }), "bytes were changed")
			e.Equal(buf64(8), slices.Clone(words.Local()))
			for i := range sigs.Len() {
				v, err := rma.ReadSignal(e.C, sigs.At(i))
				e.OK(err)
				e.Equal(uint64(0), v)
			}
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// A message says operation, size, peer, place, path and cause.
func TestErrorText(t *testing.T) {
	cfg := pe.Config{Size: 4, HeapSize: 1 << 20}
	err := pe.Run(t.Context(), cfg, func(p *pe.PE) error {
		return suite.Body(t.Context(), p, cfg, func(e *suite.Env) {
			if e.Rank() != 0 {
				return
			}
			ref := heap.MakeRef(p.World().ID(), heap.RegionHeap, 1<<20-4096+0x80)
			err := rma.PutMem(e.C, ref, make([]byte, 4096), 3)
			e.Equal("rma: put 4096 B to pe 3 at heap+0xff080 via direct: 4096 B at offset 0xff080 of 1048576 B: out of range", err.Error())
			var oe *pe.OpError
			e.True(errors.As(err, &oe), "no OpError")
			var re *heap.RangeError
			e.True(errors.As(err, &re), "no RangeError")
			e.Equal(pe.OpError{Op: "rma: put", PE: 3, Size: 4096, At: "heap+0xff080", Path: "direct", Err: re}, *oe)
			e.Equal(heap.RangeError{Off: 1<<20 - 4096 + 0x80, Len: 4096, Size: 1 << 20}, *re)
			a, err := pe.ArrayAt[uint64](p, heap.MakeRef(p.World().ID(), heap.RegionHeap, 64), 8)
			e.OK(err)
			err = rma.Put(e.C, a.Slice(6, 9), make([]uint64, 3), 3)
			e.Equal("rma: put 24 B to pe 3 at heap+0x40[out of range] via direct: out of range", err.Error())
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// What a wait that ended early says.
func TestWaitErrors(t *testing.T) {
	cfg := pe.Config{Size: 2, HeapSize: 1 << 20, Timeout: 40 * time.Millisecond}
	err := pe.Run(t.Context(), cfg, func(p *pe.PE) error {
		return suite.Body(t.Context(), p, cfg, func(e *suite.Env) {
			if e.Rank() == 1 {
				// Stays until PE 0 is done: it must not be gone.
				for {
					ok, err := rma.TestSignal(e.C, heap.MakeSignal(heap.MakeRef(p.World().ID(), heap.RegionHeap, 0)), rma.EQ, 99)
					e.OK(err)
					if ok {
						return
					}
					time.Sleep(time.Millisecond)
				}
			}
			first := heap.MakeRef(p.World().ID(), heap.RegionHeap, 0)
			sig, word := heap.MakeSignal(first), heap.MakePtr[int32](first.Add(64))
			sigs := heap.MakeSignals(first, 3)
			e.OK(rma.Signal(e.C, sig, rma.SignalSet, 7, 0))
			short := func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(e.Ctx, 5*time.Millisecond)
			}
			for name, c := range map[string]struct {
				wait       func(ctx context.Context) error
				pe         int
				want, have uint64
			}{
				"wait signal": {func(ctx context.Context) error { return rma.WaitSignal(ctx, e.C, sig, rma.GE, 9, rma.From(1)) }, 1, 9, 7},
				"wait all":    {func(ctx context.Context) error { return rma.WaitAll(ctx, e.C, sigs, nil, rma.EQ, 7) }, -1, 7, 0},
				"wait any":    {func(ctx context.Context) error { _, err := rma.WaitAny(ctx, e.C, sigs, nil, 0, rma.GT, 8); return err }, -1, 8, 7},
				"wait some": {func(ctx context.Context) error {
					_, err := rma.WaitSome(ctx, e.C, sigs, nil, nil, rma.GT, 8)
					return err
				}, -1, 8, 7},
				"wait until":   {func(ctx context.Context) error { return rma.WaitUntil(ctx, e.C, word, rma.EQ, 3) }, -1, 3, 0},
				"wait signals": {func(ctx context.Context) error { return rma.WaitSignals(ctx, e.C, 4) }, 1, 4, 0},
				"wait notify":  {func(ctx context.Context) error { return rma.WaitNotify(ctx, e.C, 0, 1, 2) }, 1, 2, 0},
				"wait counter": {func(ctx context.Context) error { return rma.WaitCounter(ctx, e.C, 1<<40) }, -1, 1 << 40, rma.ReadCounter(e.C)},
			} {
				check := func(err error) {
					e.Is(err, pe.ErrTimeout)
					var te *pe.TimeoutError
					if !errors.As(err, &te) || te.PE != c.pe || te.Want != c.want || te.Have != c.have {
						e.Fatalf("%s: %+v in %v", name, te, err)
					}
					var oe *pe.OpError
					e.True(errors.As(err, &oe) && oe.Op == "rma: "+name && oe.Timeout(), name+": no OpError")
					e.True(strings.Contains(err.Error(), "timed out waiting for "), err.Error())
				}
				ctx, cancel := short()
				err := c.wait(ctx)
				cancel()
				check(err)
				e.Is(err, context.DeadlineExceeded)
				// Without a deadline of its own: the option's.
				check(c.wait(e.Ctx))
				// Cancelled: not a timeout.
				for _, cause := range []error{nil, errors.New("no more")} {
					ctx, stop := context.WithCancelCause(e.Ctx)
					time.AfterFunc(3*time.Millisecond, func() { stop(cause) })
					err := c.wait(ctx)
					e.Is(err, context.Canceled)
					e.True(!errors.Is(err, pe.ErrTimeout), "a cancelled wait timed out")
					if cause != nil {
						e.Is(err, cause)
					}
				}
			}
			e.OK(rma.Signal(e.C, sig, rma.SignalSet, 99, 1))
		})
	})
	if err != nil {
		t.Error(err)
	}
}
