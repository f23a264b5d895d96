//go:build goshmem_debug

package exchange

import (
	"errors"
	"sync/atomic"
	"testing"

	"goshmem/coll/internal/plan"
	"goshmem/heap"
	"goshmem/pe"
)

// TestInvariants: what the protocol rules out is noticed where it happens.
func TestInvariants(t *testing.T) {
	member(t, func(p *pe.PE) {
		top := plan.NewTopology([]int{0, 0, 0})
		need, _ := Measure(top, Config{Algo: plan.Direct})
		at := heap.MakeRef(p.World().ID(), heap.RegionHeap, 0)
		local, err := p.LocalBytes(at, 1<<16)
		if err != nil {
			t.Fatal(err)
		}
		clear(local)
		mem := Memory{Signals: heap.MakeSignals(at, need.Signals), Ref: at.Add(1 << 15), Local: local[1<<15:][:need.Bytes]}
		number := func(name string, want int, err error) {
			if e, ok := errors.AsType[*InvariantError](err); !ok || e.Number != want || e.Error() == "" {
				t.Errorf("%s: %v, want I%d broken", name, err, want)
			}
		}
		engine := func() *Engine {
			clear(local)
			e, err := New(p.Context(), top, Config{Algo: plan.Direct}, mem)
			if err != nil {
				t.Fatal(err)
			}
			r := NewRows(3)
			zero := []int{0, 0, 0}
			if err := r.Fill(p.Context(), &Args{RecvCounts: zero, SendCounts: zero, Elem: 1}); err != nil {
				t.Fatal(err)
			}
			e.Begin(1, r, false)
			return e
		}
		e := engine()
		q := &e.peers[2]
		var word atomic.Uint64
		q.credits = heap.OneCell(&word)
		word.Store(5)
		e.creditsOf(q)
		word.Store(4)
		e.creditsOf(q)
		number("a counter goes back", 5, e.settled())

		e = engine()
		word.Store(1)
		e.peers[0].datas = heap.OneCell(&word)
		number("data without a credit", 3, e.settled())

		e = engine()
		e.peers[0].creditBase = 1
		number("a credit is used that was not given", 2, e.settled())

		e = engine()
		var pos int64
		_, err = e.put(&e.peers[0], at, []byte{1}, &pos, heap.Signal{})
		number("a put to a member that has not entered", 4, err)
	})
}
