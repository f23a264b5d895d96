package amo_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"goshmem/amo"
	"goshmem/heap"
	"goshmem/internal/suite"
	"goshmem/pe"
	"goshmem/rma"
)

// input is one operation on a word; its output is the old value, 0 of those
// that return none.
type input struct {
	op      string
	v, cond uint64
	word    int
}

// apply is the model: a word and what an operation makes of it.
func (in input) apply(old uint64) (next uint64) {
	switch in.op {
	case "add", "fetch add", "add nbi":
		return old + in.v
	case "inc", "fetch inc":
		return old + 1
	case "set", "swap", "swap nbi":
		return in.v
	case "and", "fetch and":
		return old & in.v
	case "or", "fetch or":
		return old | in.v
	case "xor", "fetch xor":
		return old ^ in.v
	case "compare swap", "compare swap nbi":
		if old == in.cond {
			return in.v
		}
	}
	return old
}

// silent operations return no old value.
func (in input) silent() bool {
	switch in.op {
	case "add", "inc", "set", "and", "or", "xor":
		return true
	}
	return false
}

var opNames = []string{
	"fetch", "add", "fetch add", "add nbi", "inc", "fetch inc", "set", "swap", "swap nbi",
	"and", "fetch and", "or", "fetch or", "xor", "fetch xor", "compare swap", "compare swap nbi",
}

func model() porcupine.Model {
	return porcupine.Model{
		Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
			byWord := map[int][]porcupine.Operation{}
			for _, op := range all {
				w := op.Input.(input).word
				byWord[w] = append(byWord[w], op)
			}
			var parts [][]porcupine.Operation
			for _, p := range byWord {
				parts = append(parts, p)
			}
			return parts
		},
		Init: func() any { return uint64(0) },
		Step: func(state, in, out any) (bool, any) {
			i, old := in.(input), state.(uint64)
			return i.silent() || out.(uint64) == old, i.apply(old)
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %v", in, out) },
	}
}

// perform carries an operation out and returns when it is complete at the target.
func perform[T interface {
	amo.Integer
	heap.Elem
}](e *suite.Env, c *pe.Context, w heap.Ptr[T], in input, target int) uint64 {
	v, cond := T(in.v), T(in.cond)
	var old T
	var err error
	var tkt rma.Ticket
	switch in.op {
	case "fetch":
		old, err = amo.Fetch(c, w, target)
	case "add":
		err = amo.Add(c, w, v, target)
	case "fetch add":
		old, err = amo.FetchAdd(c, w, v, target)
	case "add nbi":
		tkt, err = amo.FetchAddNBI(c, &old, w, v, target)
	case "inc":
		err = amo.Inc(c, w, target)
	case "fetch inc":
		old, err = amo.FetchInc(c, w, target)
	case "set":
		err = amo.Set(c, w, v, target)
	case "swap":
		old, err = amo.Swap(c, w, v, target)
	case "swap nbi":
		tkt, err = amo.SwapNBI(c, &old, w, v, target)
	case "and":
		err = amo.And(c, w, v, target)
	case "fetch and":
		old, err = amo.FetchAnd(c, w, v, target)
	case "or":
		err = amo.Or(c, w, v, target)
	case "fetch or":
		old, err = amo.FetchOr(c, w, v, target)
	case "xor":
		err = amo.Xor(c, w, v, target)
	case "fetch xor":
		old, err = amo.FetchXor(c, w, v, target)
	case "compare swap":
		old, err = amo.CompareSwap(c, w, cond, v, target)
	case "compare swap nbi":
		tkt, err = amo.CompareSwapNBI(c, &old, w, cond, v, target)
	}
	e.OK(err)
	e.OK(rma.Wait(e.Ctx, c, tkt))
	if in.silent() {
		e.OK(rma.Quiet(e.Ctx, c))
		return 0
	}
	return uint64(old)
}

// record runs clients on every PE and returns what they did and saw.
func record(t *testing.T, cfg pe.Config, seed uint64, clients, ops int) []porcupine.Operation {
	t.Helper()
	var (
		clock   atomic.Int64
		mu      sync.Mutex
		history []porcupine.Operation
	)
	err := pe.Run(t.Context(), cfg, func(p *pe.PE) error {
		return suite.Body(t.Context(), p, cfg, func(e *suite.Env) {
			wide, narrow := suite.Calloc[uint64](e, 1), suite.Calloc[uint32](e, 1)
			own, err := e.P.Team().NewContext(e.Ctx)
			e.OK(err)
			e.Barrier()
			e.Go(clients, func(i int) {
				id := e.Rank()*clients + i
				rng := rand.New(rand.NewPCG(seed, uint64(id)))
				c := e.C // some share a context, some have one of their own
				if i%2 == 1 {
					c = own
				}
				var mine []porcupine.Operation
				for range ops {
					// Few values, so that much of it could have been otherwise.
					in := input{
						op: opNames[rng.IntN(len(opNames))],
						v:  rng.Uint64N(4), cond: rng.Uint64N(4), word: rng.IntN(2),
					}
					call := clock.Add(1)
					var out uint64
					if in.word == 0 {
						out = perform(e, c, wide.At(0), in, 0)
					} else {
						out = perform(e, c, narrow.At(0), in, 0)
					}
					mine = append(mine, porcupine.Operation{ClientId: id, Input: in, Call: call, Output: out, Return: clock.Add(1)})
				}
				mu.Lock()
				history = append(history, mine...)
				mu.Unlock()
			})
			e.Barrier()
		})
	})
	require.NoError(t, err)
	return history
}

// between is the path between nodes: as asked for, by default TCP.
func between() string { return cmp.Or(os.Getenv("GOSHMEM_TEST_NET"), "tcp") }

// The operations on a word, of all PEs and the owner's own, are one after the
// other, each within its call. In the mixed world PE 1 is on the owner's host,
// PE 2 on another one.
func TestLinearizable(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   pe.Config
		seeds int
	}{
		{"direct/ring1024", pe.Config{Path: "direct", RingCapacity: 1024}, 150},
		{"proxy/ring1", pe.Config{Path: "proxy", RingCapacity: 1}, 150},
		{"proxy/ring1024", pe.Config{Path: "proxy", RingCapacity: 1024}, 150},
		{"tcp/ring1024", pe.Config{Path: "tcp", RingCapacity: 1024}, 30},
		{"mixed", pe.Config{Nodes: 2, Net: between(), RingCapacity: 1024}, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(suite.Times(c.seeds)) {
				cfg := c.cfg
				cfg.Size, cfg.HeapSize = 3, 1<<16
				history := record(t, cfg, seed, 2, 60)
				result := porcupine.CheckOperationsTimeout(model(), history, 20*time.Second)
				if result == porcupine.Unknown {
					t.Logf("seed %d: undecided", seed)
				}
				require.NotEqual(t, porcupine.Illegal, result, "seed %d: %v", seed, history)
			}
		})
	}
}

// Adds of the owner, of a PE of its host and of one of another host to one word,
// and as many to one signal: none is lost. GOSHMEM_TEST_ADDS sets how many.
func TestMixedAdds(t *testing.T) {
	const pes = 3
	n := suite.Times(20000)
	if s := os.Getenv("GOSHMEM_TEST_ADDS"); s != "" {
		var err error
		n, err = strconv.Atoi(s)
		require.NoError(t, err)
		n /= pes
	}
	cfg := pe.Config{Size: pes, Nodes: 2, Net: between(), HeapSize: 1 << 16}
	err := pe.Run(t.Context(), cfg, func(p *pe.PE) error {
		return suite.Body(t.Context(), p, cfg, func(e *suite.Env) {
			near, _ := e.P.Peer(1)
			far, _ := e.P.Peer(2)
			if e.Rank() == 0 && (near.Path != "direct" || far.Path != between()) {
				e.Fatalf("paths %s, %s", near.Path, far.Path)
			}
			w, sig := suite.Calloc[uint64](e, 1), e.Signals(1)
			e.Barrier()
			for range n {
				e.OK(amo.Add(e.C, w.At(0), 1, 0))
				e.OK(rma.Signal(e.C, sig.At(0), rma.SignalAdd, 1, 0))
			}
			e.OK(rma.Quiet(e.Ctx, e.C))
			e.Barrier()
			if e.Rank() == 0 {
				have, err := rma.ReadSignal(e.C, sig.At(0))
				e.OK(err)
				e.Equal(uint64(pes*n), have)
				e.Equal(uint64(pes*n), w.Local()[0])
			}
		})
	})
	require.NoError(t, err)
}

// The checker does see a word that was not atomic.
func TestLinearizableSees(t *testing.T) {
	cfg := pe.Config{Size: 2, HeapSize: 1 << 16}
	history := record(t, cfg, 1, 1, 60)
	for i := range history {
		if in := history[i].Input.(input); in.op == "fetch add" {
			history[i].Output = history[i].Output.(uint64) + 1000
			break
		}
	}
	require.Equal(t, porcupine.Illegal, porcupine.CheckOperationsTimeout(model(), history, time.Minute))
}
