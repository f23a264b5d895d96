package plan

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/moe/routing"
)

// Whatever the routing and however ranks lie: each token's row goes to each other node
// once, and that with what is passed on fills the rows that Runs fills, with the same
// tokens.
func TestScatter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		p := Params{
			Ranks: 1 + r.IntN(7), TopK: 1 + r.IntN(5), MaxTokens: 60, RowBytes: 8, Hidden: 4, YBytes: 2, PartialBytes: 2,
			ExpertMajor: r.IntN(2) == 0, Alignment: 1 + int64(r.IntN(3)), Slots: 1,
		}
		p.Experts = p.TopK + r.IntN(20)
		of := make([]int, p.Ranks)
		for i := range of {
			of[i] = r.IntN(3)
		}
		n, o := NewNodes(of), NewOwners(p.Ranks, p.Experts)
		p.Fan = n.Fan(&p, o)
		require.LessOrEqual(t, p.Fan, FanMost(&p))
		sz, _ := Measure(&p)
		sent, m := make([]Sent, p.Ranks), Matrix{}
		m.Reset(&p)
		for s := range sent {
			b, err := routing.Spec{Experts: p.Experts, TopK: p.TopK, Ranks: p.Ranks, Seed: r.Uint64(), Holes: 0.3}.Batch(s, r.IntN(61))
			require.NoError(t, err)
			require.Zero(t, Route(&p, o, b.Idx, b.Weights, &sent[s]))
			copy(m.RowsOf(&p, s), sent[s].Rows)
			copy(m.PairsOf(&p, s), sent[s].Pairs)
		}
		for self := range p.Ranks {
			var pl Placement
			require.Zero(t, Place(&p, o, &sz, &m, self, &pl))
			scatterOnce(t, &p, o, n, &sz, self, &sent[self], &pl)
		}
	}
}

type where struct {
	rank int32
	row  int64
}

func scatterOnce(t *testing.T, p *Params, o *Owners, n *Nodes, sz *Sizes, self int, s *Sent, pl *Placement) {
	want := map[where]int32{}
	for to := range p.Ranks {
		if !n.Same(to, self) {
			for _, run := range Runs(p, o, s, pl, to, nil) {
				for i := range run.N {
					want[where{run.To, run.Row + i}] = run.Token + int32(i)
				}
			}
		}
	}
	var x Scattered
	Scatter(p, o, n, self, s, pl, &x)
	have, crossed := map[where]int32{}, map[[2]int]bool{}
	for to, runs := range x.Runs {
		for _, run := range runs {
			require.EqualValues(t, to, run.To)
			for i := range run.N {
				have[where{run.To, run.Row + i}] = run.Token + int32(i)
				key := [2]int{n.of[to], int(run.Token) + int(i)}
				require.False(t, crossed[key], "token %d goes to node %d twice", key[1], key[0])
				crossed[key] = true
			}
		}
	}
	for via, all := range x.Forwards {
		b := make([]byte, ListBytes(len(all)))
		require.LessOrEqual(t, int64(len(b)), max(sz.ListRoom, listHead))
		require.EqualValues(t, len(b), EncodeForwards(all, b))
		// The receiver's own placement has its rows; here all that a buffer can have.
		back, ok := DecodeForwards(n, sz, via, &Placement{Rows: sz.RowCap}, b, nil)
		require.True(t, ok)
		require.True(t, slices.Equal(all, back))
		for _, f := range all {
			require.True(t, n.Same(via, int(f.To)))
			for i := range f.N {
				token, ok := have[where{int32(via), f.From + i}]
				require.True(t, ok, "passed on before it has come")
				have[where{f.To, f.Row + i}] = token
			}
		}
	}
	require.Equal(t, want, have)
}

// No list that another process wrote leads outside of the buffers.
func FuzzForwards(f *testing.F) {
	n := NewNodes([]int{0, 0, 1, 1})
	b := make([]byte, 100)
	EncodeForwards([]Forward{{To: 1, N: 2, From: 3, Row: 4}, {To: 0, N: 1, From: 0, Row: 9}}, b)
	f.Add(b)
	f.Add(slices.Repeat([]byte{0xff}, 40))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		sz, pl := Sizes{RowCap: 20, ListRoom: ListBytes(12)}, Placement{Rows: 10}
		all, ok := DecodeForwards(n, &sz, 0, &pl, b, nil)
		if !ok {
			return
		}
		require.LessOrEqual(t, int64(len(all)), int64(len(b)))
		rows := int64(0)
		for _, f := range all {
			rows += f.N
			most := sz.RowCap
			if f.To == 0 {
				most = pl.Rows
			}
			require.True(t, f.To == 0 || f.To == 1)
			require.True(t, f.N > 0 && f.From >= 0 && f.From+f.N <= pl.Rows && f.Row >= 0 && f.Row+f.N <= most)
		}
		require.LessOrEqual(t, rows, int64(12))
	})
}
