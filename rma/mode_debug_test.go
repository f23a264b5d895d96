//go:build goshmem_debug

package rma_test

import (
	"testing"

	"goshmem/internal/suite"
	"goshmem/pe"
	"goshmem/rma"
)

// Between resets a signal is set-only or add-only: this build says so.
func TestSignalModesDoNotMix(t *testing.T) {
	for _, path := range []string{"direct", "proxy"} {
		t.Run(path, func(t *testing.T) {
			cfg := pe.Config{Size: 2, Path: path, HeapSize: 1 << 20}
			err := pe.Run(t.Context(), cfg, func(p *pe.PE) error {
				return suite.Body(t.Context(), p, cfg, func(e *suite.Env) { mix(e) })
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func mix(e *suite.Env) {
	sigs := e.Signals(2)
	ref := e.Mem(64)
	for _, modes := range [][2]rma.SignalOp{{rma.SignalSet, rma.SignalAdd}, {rma.SignalAdd, rma.SignalSet}} {
		if e.Rank() == 0 {
			for i := range sigs.Len() {
				e.OK(rma.Signal(e.C, sigs.At(i), modes[i], 3, 1))
				e.OK(rma.PutMemSignal(e.C, ref, make([]byte, 8), sigs.At(i), modes[i], 3, 1))
			}
			e.OK(rma.Quiet(e.Ctx, e.C))
			before, err := rma.Issued(e.C, 1)
			e.OK(err)
			for i := range sigs.Len() {
				other := modes[1-i]
				e.Is(rma.Signal(e.C, sigs.At(i), other, 9, 1), pe.ErrConfig)
				e.Is(rma.TrySignal(e.C, sigs.At(i), other, 9, 1), pe.ErrConfig)
				e.Is(rma.PutMemSignal(e.C, ref, make([]byte, 8), sigs.At(i), other, 9, 1), pe.ErrConfig)
				_, err := rma.PutMemSignalNBI(e.C, ref, make([]byte, 8), sigs.At(i), other, 9, 1)
				e.Is(err, pe.ErrConfig)
			}
			after, err := rma.Issued(e.C, 1)
			e.OK(err)
			e.Equal(before, after) // nothing happened
			// Another PE's copy of the signal is another word.
			e.OK(rma.Signal(e.C, sigs.At(0), modes[1], 1, 0))
		} else {
			for i := range sigs.Len() {
				want := uint64(3)
				if modes[i] == rma.SignalAdd {
					want = 6
				}
				e.OK(rma.WaitSignal(e.Ctx, e.C, sigs.At(i), rma.EQ, want))
			}
		}
		e.Barrier()
		// A reset makes them new.
		e.OK(e.P.Team().ResetSignals(e.Ctx, sigs))
	}
}
