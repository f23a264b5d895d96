package plan

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMeasure(t *testing.T) {
	even := NewTopology([]int{0, 0, 1, 1})   // A = 1, L = 2
	uneven := NewTopology([]int{0, 1, 0, 0}) // A = 3, L = 3
	alone := NewTopology([]int{0, 0, 0, 0})  // no rounds
	const h2, h3, h4 = 64 + 48, 64 + 72, 64 + 96
	for _, c := range []struct {
		name  string
		t     *Topology
		p     Params
		ok    bool
		arena int64
		load  int64
	}{
		{"even", even, Params{2, 2, 1 << 20}, true, 4 << 20, 1<<20 - h2},
		{"uneven", uneven, Params{2, 4, 1024}, true, 2 * 3 * 4 * 1024, 1024 - h3},
		{"one slot", even, Params{1, 1, h2 + 64}, true, h2 + 64, 64},
		{"one node", alone, Params{2, 2, 1 << 20}, true, 1 << 22, 1<<20 - h4},
		{"no room", even, Params{1, 1, h2 + 63}, false, 0, 0},
		{"no banks", even, Params{0, 1, 1024}, false, 0, 0},
		{"no slots", even, Params{1, 0, 1024}, false, 0, 0},
		{"overflow", uneven, Params{1 << 30, 1 << 30, 1 << 20}, false, 0, 0},
		{"as large as can be", even, Params{1, 1, math.MaxInt64}, true, math.MaxInt64, math.MaxInt64 - h2},
	} {
		z, ok := Measure(c.t, c.p)
		require.Equal(t, c.ok, ok, c.name)
		if c.t == alone {
			continue // has no use for it
		}
		assert.Equal(t, c.arena, z.Arena, c.name)
		assert.Equal(t, c.load, z.Payload, c.name)
	}
	assert.EqualValues(t, h3+64, MinSlot(uneven))
}

func TestSubs(t *testing.T) {
	z := Sizes{Payload: 100}
	for n, want := range map[int64]int{0: 1, 1: 1, 100: 1, 101: 2, 200: 2, 1 << 40: 10995116278} {
		assert.Equal(t, want, z.Subs(n), n)
	}
}

// TestSlotsAreDistinct: slots of one relay that may be in use at once do not
// overlap and lie within W x A x T slots.
func TestSlotsAreDistinct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := NewTopology(drawNodes(t, 12))
		p := Params{
			Banks: rapid.IntRange(1, 4).Draw(t, "W"), Slots: rapid.IntRange(1, 4).Draw(t, "T"),
			SlotBytes: MinSlot(top) + 64*rapid.Int64Range(0, 9).Draw(t, "C"),
		}
		z, ok := Measure(top, p)
		require.True(t, ok)
		require.LessOrEqual(t, z.Arena, int64(p.Banks*top.Streams()*p.Slots)*p.SlotBytes)
		for q := range top.Size() {
			owner := map[int64][3]int{} // which bank, stream and slot
			for k := 1; k <= top.Rounds(); k++ {
				for _, src := range top.Sources(nil, q, k) {
					for sub := range 2 * p.Slots {
						at := z.At(k, top.Stream(src, q), sub)
						who := [3]int{z.Bank(k), top.Stream(src, q), sub % p.Slots}
						had, taken := owner[at]
						if at%p.SlotBytes != 0 || at < 0 || at+p.SlotBytes > z.Arena || taken && had != who {
							t.Fatalf("slot of %v at %d, which is %v", who, at, had)
						}
						owner[at] = who
					}
				}
			}
		}
	})
}

// TestEveryByteOnce plays whole calls on paper: each byte of each pair is
// written by exactly one way, through exactly one slot, within its payload.
func TestEveryByteOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := NewTopology(drawNodes(t, 9))
		z, ok := Measure(top, Params{2, 2, MinSlot(top) + 64*rapid.Int64Range(0, 3).Draw(t, "C")})
		require.True(t, ok)
		algo := Algo(rapid.IntRange(0, int(NumAlgos)-1).Draw(t, "algo"))
		c := NewChooser(top, algo, rapid.Int64Range(1, 2000).Draw(t, "straight"), rapid.Int64Range(1, 1000).Draw(t, "merge"))
		count := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 500), rapid.Int64Range(0, 4000))
		total := make([]int64, top.Size())
		relayed := make([]int64, top.Most())
		for p := range top.Size() {
			for j := range total {
				total[j] = count.Draw(t, "bytes")
			}
			got := make([]int64, top.Size()) // bytes delivered, in order
			for j := range total {
				w, near := c.Way(p, j, total[j]), top.Node(p) == top.Node(j)
				if (w == Self) != (p == j) || (w == Near) != (near && p != j) {
					t.Fatalf("%v from %d to %d", w, p, j)
				}
				if w != Relayed {
					got[j] = total[j]
				}
			}
			for k := 1; k <= top.Rounds() && c.Rounds; k++ {
				node := top.Node(top.Target(p, k))
				on := top.On(node)
				sum := c.Relayed(relayed[:len(on)], p, node, func(d int) int64 { return total[on[d]] })
				for sub := range z.Subs(sum) {
					load, last := int64(0), -1
					for _, piece := range z.Cut(nil, relayed[:len(on)], sub) {
						j := on[piece.Dst]
						// In order, without gap or overlap; the rail peer's own only if they are few.
						if piece.Dst <= last || j == top.Target(p, k) && total[j] >= c.Merge || piece.Offset != got[j] || piece.Bytes < 1 {
							t.Fatalf("from %d in round %d: %+v, %d B were there", p, k, piece, got[j])
						}
						got[j] += piece.Bytes
						load += piece.Bytes
						last = piece.Dst
					}
					if load > z.Payload {
						t.Fatalf("%d B in a slot of %d", load, z.Payload)
					}
				}
			}
			require.Equal(t, total, got, "from %d by %v", p, algo)
		}
	})
}
