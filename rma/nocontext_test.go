package rma_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/amo"
	"goshmem/pe"
	"goshmem/rma"
)

// Without a context every operation is an error, never a panic.
func TestNoContext(t *testing.T) {
	err := pe.Run(t.Context(), pe.Config{Size: 1}, func(p *pe.PE) error {
		ctx := t.Context()
		words, err := pe.Alloc[uint64](ctx, p, 8)
		if err != nil {
			return err
		}
		sigs, err := p.AllocSignals(ctx, 2)
		if err != nil {
			return err
		}
		ref, word, sig, buf, vals := words.Ref(), words.At(0), sigs.At(0), make([]byte, 16), make([]uint64, 2)
		second := func(_ any, err error) error { return err }
		for name, f := range map[string]func(c *pe.Context) error{
			"put":          func(c *pe.Context) error { return rma.PutMem(c, ref, buf, 0) },
			"put nbi":      func(c *pe.Context) error { return second(rma.PutMemNBI(c, ref, buf, 0)) },
			"put stream":   func(c *pe.Context) error { return second(rma.PutMemStream(c, ref, buf, 0)) },
			"put value":    func(c *pe.Context) error { return rma.PutValue(c, word, 1, 0) },
			"put signal":   func(c *pe.Context) error { return rma.PutMemSignal(c, ref, buf, sig, rma.SignalSet, 1, 0) },
			"put notify":   func(c *pe.Context) error { return rma.PutMemNotify(c, ref, buf, 0, 0) },
			"put batch":    func(c *pe.Context) error { return second(rma.PutBatch(c, []rma.BatchItem{{Dst: ref, Src: buf}}, 0)) },
			"iput":         func(c *pe.Context) error { return rma.IPut(c, words, vals, 1, 1, 2, 0) },
			"get":          func(c *pe.Context) error { return rma.GetMem(c, buf, ref, 0) },
			"get nbi":      func(c *pe.Context) error { return second(rma.GetMemNBI(c, buf, ref, 0)) },
			"get value":    func(c *pe.Context) error { return second(rma.GetValue(c, word, 0)) },
			"iget":         func(c *pe.Context) error { return rma.IGet(c, vals, words, 1, 1, 2, 0) },
			"signal":       func(c *pe.Context) error { return rma.Signal(c, sig, rma.SignalSet, 1, 0) },
			"notify":       func(c *pe.Context) error { return rma.Notify(c, 0, 0) },
			"issued":       func(c *pe.Context) error { return second(rma.Issued(c, 0)) },
			"acked":        func(c *pe.Context) error { return second(rma.Acked(c, 0)) },
			"wait counter": func(c *pe.Context) error { return rma.WaitCounter(ctx, c, 1) },
			"read signal":  func(c *pe.Context) error { return second(rma.ReadSignal(c, sig)) },
			"test signal":  func(c *pe.Context) error { return second(rma.TestSignal(c, sig, rma.EQ, 1)) },
			"wait signal":  func(c *pe.Context) error { return rma.WaitSignal(ctx, c, sig, rma.EQ, 1) },
			"wait all":     func(c *pe.Context) error { return rma.WaitAll(ctx, c, sigs, nil, rma.EQ, 1) },
			"wait until":   func(c *pe.Context) error { return rma.WaitUntil(ctx, c, word, rma.EQ, 1) },
			"test until":   func(c *pe.Context) error { return second(rma.TestUntil(c, word, rma.EQ, 1)) },
			"wait signals": func(c *pe.Context) error { return rma.WaitSignals(ctx, c, 1, rma.From(0)) },
			"wait notify":  func(c *pe.Context) error { return rma.WaitNotify(ctx, c, 0, 0, 1) },
			"amo add":      func(c *pe.Context) error { return amo.Add(c, word, 1, 0) },
			"amo fetch":    func(c *pe.Context) error { return second(amo.Fetch(c, word, 0)) },
			"amo nbi":      func(c *pe.Context) error { return second(amo.FetchIncNBI(c, nil, word, 0)) },
		} {
			require.Error(t, f(nil), name)
			require.Error(t, f(new(pe.Context)), name)
		}
		for _, err := range []error{
			rma.PutMem(nil, ref, buf, 0), rma.Quiet(ctx, nil), rma.Fence(nil), rma.Wait(ctx, nil, rma.Ticket{}),
			rma.WaitSignal(nilContext, p.Context(), sig, rma.EQ, 1),
		} {
			require.ErrorIs(t, err, pe.ErrConfig)
		}
		require.ErrorIs(t, rma.WaitSignals(ctx, p.Context(), 1, rma.Index(-1)), pe.ErrRange) // though there is no other PE
		return nil
	})
	require.NoError(t, err)
}

var nilContext context.Context
