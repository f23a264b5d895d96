package plan

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawNodes draws the node of each rank: up to 64 nodes of 1 to 4 ranks (8 now
// and then), in any order, with names that are no indices.
func drawNodes(t *rapid.T, most int) []int {
	n := rapid.IntRange(1, most).Draw(t, "nodes")
	var nodes []int
	for m := range n {
		l := rapid.IntRange(1, 4).Draw(t, "ranks")
		if rapid.IntRange(0, 9).Draw(t, "large") == 0 {
			l = 8
		}
		for range l {
			nodes = append(nodes, m*7-20)
		}
	}
	return rapid.Permutation(nodes).Draw(t, "order")
}

func TestTopologyTables(t *testing.T) {
	// Nodes 9, 4, 7 of 3, 1, 2 ranks.
	top := NewTopology([]int{9, 4, 9, 7, 7, 9})
	assert.Equal(t, 6, top.Size())
	assert.Equal(t, 3, top.Nodes())
	assert.Equal(t, 2, top.Rounds())
	assert.Equal(t, 3, top.Most())
	assert.Equal(t, 3, top.Streams(), "three ranks of node 0 send to the one of node 1")
	assert.Equal(t, []int{0, 2, 5}, top.On(0))
	assert.Equal(t, []int{1}, top.On(1))
	assert.Equal(t, []int{3, 4}, top.On(2))
	for _, c := range []struct{ p, m, rail int }{{0, 1, 1}, {2, 1, 1}, {5, 1, 1}, {0, 2, 3}, {2, 2, 4}, {5, 2, 3}, {1, 0, 0}, {1, 2, 3}, {4, 0, 2}} {
		assert.Equal(t, c.rail, top.Rail(c.p, c.m), "rail(%d, %d)", c.p, c.m)
	}
	assert.Equal(t, []int{0, 2, 5}, top.Sources(nil, 1, 1), "node 0 sends to node 1 in round 1")
	assert.Equal(t, []int{3, 4}, top.Sources(nil, 1, 2))
	assert.Equal(t, []int{0, 5}, top.Sources(nil, 3, 2))
	assert.Equal(t, []int{1}, top.Sources(nil, 3, 1))
	assert.Empty(t, top.Sources(nil, 4, 1), "node 1 has no second rank")
	assert.Equal(t, 1, top.Stream(5, 3))
	assert.Equal(t, 0, top.Round(0, 2))
	assert.Equal(t, 2, top.Round(1, 0))
	assert.Equal(t, 0, top.Relay(3, 0))
	assert.Equal(t, 0, top.Relay(3, 5))
}

func TestTopologyOneNode(t *testing.T) {
	for _, nodes := range [][]int{nil, {0}, {3, 3, 3}} {
		top := NewTopology(nodes)
		assert.Zero(t, top.Rounds())
		assert.Zero(t, top.Streams())
	}
}

// TestRounds: a round is a permutation of the nodes, and two ranks of different
// nodes meet, through one relay, in exactly one round.
func TestRounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := NewTopology(drawNodes(t, 64))
		n := top.Size()
		met := make([]int, n*n)
		for k := 1; k <= top.Rounds(); k++ {
			hit := make([]bool, top.Nodes())
			for m := range top.Nodes() {
				to := top.Node(top.Target(top.On(m)[0], k))
				if hit[to] || to == m {
					t.Fatalf("round %d: node %d sends to node %d, which another does too", k, m, to)
				}
				hit[to] = true
			}
			for p := range n {
				q := top.Target(p, k)
				if top.Round(p, q) != k || top.Rail(p, top.Node(q)) != q {
					t.Fatalf("round %d: %d sends to %d", k, p, q)
				}
				for _, j := range top.On(top.Node(q)) {
					met[p*n+j]++
					if top.Round(p, j) != k || top.Relay(p, j) != q {
						t.Fatalf("round %d: %d reaches %d in round %d through %d", k, p, j, top.Round(p, j), top.Relay(p, j))
					}
				}
			}
		}
		for p := range n {
			for j := range n {
				want := 1
				if top.Node(p) == top.Node(j) {
					want = 0
				}
				if met[p*n+j] != want || want == 0 && top.Round(p, j) != 0 {
					t.Fatalf("%d and %d meet %d times", p, j, met[p*n+j])
				}
			}
		}
	})
}

// TestSources: the sources of a relay are those whose target it is, each in a
// stream of its own, and every rank has a place.
func TestSources(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := NewTopology(drawNodes(t, 64))
		most := 0
		var sources []int
		for k := 1; k <= top.Rounds(); k++ {
			served := 0
			for q := range top.Size() {
				sources = top.Sources(sources[:0], q, k)
				served += len(sources)
				most = max(most, len(sources))
				for i, p := range sources {
					if top.Target(p, k) != q || top.Stream(p, q) != i || i >= top.Streams() || i > 0 && sources[i-1] >= p {
						t.Fatalf("round %d: sources of %d are %v", k, q, sources)
					}
				}
			}
			if served != top.Size() {
				t.Fatalf("round %d serves %d of %d", k, served, top.Size())
			}
		}
		require.Equal(t, most, top.Streams(), "streams are what some relay needs, and no more")
	})
}

// TestOrderDoesNotMatter: renaming nodes changes nothing.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t, 8)
		renamed := slices.Clone(nodes)
		for i := range renamed {
			renamed[i] = 1000 - renamed[i]
		}
		assert.Equal(t, NewTopology(nodes), NewTopology(renamed))
	})
}
