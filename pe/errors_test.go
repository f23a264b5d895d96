package pe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/heap"
	"goshmem/internal/suite"
	"goshmem/moe"
	"goshmem/nvlink"
	"goshmem/pe"
	"goshmem/rma"
)

// Each error of the contract, provoked once; the tables of the operations are in
// the packages that have them.
func TestEveryErrorOfTheContract(t *testing.T) {
	type provoke func(e *suite.Env) error
	ref := func(e *suite.Env, off uint64) heap.Ref { return heap.MakeRef(e.P.World().ID(), heap.RegionHeap, off) }
	buf := make([]byte, 64)
	for _, c := range []struct {
		name string
		want error
		as   func(error) bool // has its data; nil: there is none
		do   provoke
	}{
		{"ErrRange", pe.ErrRange, is[*heap.RangeError], func(e *suite.Env) error {
			return rma.PutMem(e.C, ref(e, 1<<20-1), buf, 1)
		}},
		{"ErrPeer", pe.ErrPeer, nil, func(e *suite.Env) error { return rma.PutMem(e.C, ref(e, 0), buf, 2) }},
		{"ErrAlign", pe.ErrAlign, nil, func(e *suite.Env) error {
			return rma.PutValue(e.C, heap.MakePtr[int64](ref(e, 1)), 1, 0)
		}},
		{"ErrKind", pe.ErrKind, nil, func(*suite.Env) error {
			_, err := nvlink.NewHost(heap.NewTable(1, 1, 1), 1).Register(t.Context(), 0, 0, heap.Memory{Kind: heap.KindCUDA})
			return &pe.OpError{Op: "nvlink: register", PE: -1, Size: -1, Err: err}
		}},
		{"ErrAlias", pe.ErrAlias, nil, func(e *suite.Env) error {
			return rma.PutMem(e.C, ref(e, 1), e.Bytes(ref(e, 0), 64), e.Rank())
		}},
		{"ErrBadRef", pe.ErrBadRef, nil, func(e *suite.Env) error { return e.P.Free(t.Context(), heap.Ref{}) }},
		{"ErrNoMemory", pe.ErrNoMemory, is[*heap.NoMemoryError], func(e *suite.Env) error {
			_, err := e.P.AllocMem(t.Context(), 1<<21, 0)
			return err
		}},
		{"ErrCapacity", pe.ErrCapacity, nil, func(e *suite.Env) error {
			for range 3 {
				if _, err := e.P.Team().NewContext(t.Context()); err != nil {
					return err
				}
			}
			return nil
		}},
		{"ErrDuplicateExpert", pe.ErrDuplicateExpert, is[*moe.IndexError], func(e *suite.Env) error {
			m, err := moe.New(t.Context(), e.P.Team(), moe.Config{Experts: 4, TopK: 2, Hidden: 8, MaxTokens: 4})
			e.OK(err)
			_, err = m.Dispatch(t.Context(), make([]byte, 16), nil, []int32{3, 3}, []float32{1, 1})
			e.OK(m.Close(t.Context()))
			return &pe.OpError{Op: "moe: dispatch", PE: -1, Size: -1, Err: err}
		}},
		{"ErrConfig", pe.ErrConfig, nil, func(e *suite.Env) error {
			return rma.Signal(e.C, heap.MakeSignal(ref(e, 0)), 0, 1, 0)
		}},
		{"ErrWouldBlock", pe.ErrWouldBlock, nil, func(e *suite.Env) (err error) {
			release := e.Hold()
			defer release()
			for range 3 {
				if _, err = rma.TryPutMemNBI(e.C, ref(e, 0), make([]byte, 512<<10), e.Rank()); err != nil {
					return err
				}
			}
			return nil
		}},
		{"ErrTimeout", pe.ErrTimeout, is[*pe.TimeoutError], func(e *suite.Env) error {
			ctx, cancel := e.Brief()
			defer cancel()
			return rma.WaitNotify(ctx, e.C, 0, 1, 1)
		}},
		{"ErrPeerLost", pe.ErrPeerLost, is[*pe.PeerLostError], func(e *suite.Env) error {
			if e.Rank() == 1 {
				return errQuit
			}
			return rma.WaitSignals(t.Context(), e.C, 1)
		}},
		{"ErrMismatch", pe.ErrMismatch, is[*pe.MismatchError], func(e *suite.Env) error {
			_, err := e.P.AllocMem(t.Context(), int64(64*e.Rank()), 0)
			return err
		}},
		{"ErrClosed", pe.ErrClosed, is[*pe.ClosedError], func(e *suite.Env) error {
			c, err := e.P.Team().NewContext(t.Context())
			e.OK(err)
			e.OK(c.Free(t.Context()))
			return rma.PutMem(c, ref(e, 0), buf, 0)
		}},
		{"ErrUnsupported", pe.ErrUnsupported, nil, func(e *suite.Env) error { return e.C.Free(t.Context()) }},
		{"cancelled", context.Canceled, nil, func(e *suite.Env) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return rma.WaitNotify(ctx, e.C, 0, 1, 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := pe.Config{Size: 2, HeapSize: 1 << 20, Contexts: 2, RingCapacity: 1, Timeout: 20 * time.Second}
			err := pe.Run(t.Context(), cfg, func(p *pe.PE) error {
				var wrong error
				err := suite.Body(t.Context(), p, cfg, func(e *suite.Env) {
					err := c.do(e)
					var oe *pe.OpError
					switch {
					case err == errQuit:
						wrong = err
					case !errors.Is(err, c.want):
						e.Fatalf("got %v, want %v", err, c.want)
					case c.want == pe.ErrWouldBlock:
						// Bare: no failure, and nothing is allocated for it.
					case !errors.As(err, &oe) || oe.Op == "":
						e.Fatalf("%v: no OpError", err)
					case c.as != nil && !c.as(err):
						e.Fatalf("%v: its data is missing", err)
					}
					if c.want != pe.ErrPeerLost {
						e.Barrier()
					}
				})
				if wrong != nil {
					return wrong
				}
				return err
			})
			if c.want == pe.ErrPeerLost {
				require.ErrorIs(t, err, errQuit)
				return
			}
			require.NoError(t, err)
		})
	}
}

var errQuit = errors.New("quit")

// is reports whether an error carries data of a type.
func is[T error](err error) bool {
	var target T
	return errors.As(err, &target)
}
