package plan

import (
	"fmt"
	"testing"
)

// dealt is a topology of nodes of eight.
func dealt(pes int) *Topology {
	nodes := make([]int, pes)
	for r := range nodes {
		nodes[r] = r / 8
	}
	return NewTopology(nodes)
}

// sizesOfPlan are the benchmarks' numbers of PEs.
func sizesOfPlan() []int { return []int{64, 1024, 16384} }

// BenchmarkTopology is what making a Comm plans, once.
func BenchmarkTopology(b *testing.B) {
	for _, pes := range sizesOfPlan() {
		b.Run(fmt.Sprint(pes), func(b *testing.B) {
			nodes := make([]int, pes)
			for r := range nodes {
				nodes[r] = r / 8
			}
			b.ReportAllocs()
			for b.Loop() {
				NewTopology(nodes)
			}
		})
	}
}

// BenchmarkRounds is what a PE plans in one call of 1 KiB a pair: of each round the
// relay, the sources, the ways, and how the bytes are cut.
func BenchmarkRounds(b *testing.B) {
	for _, pes := range sizesOfPlan() {
		b.Run(fmt.Sprint(pes), func(b *testing.B) {
			t := dealt(pes)
			z, ok := Measure(t, Params{Banks: 2, Slots: 2, SlotBytes: 4096})
			if !ok {
				b.Fatal("no room")
			}
			c := NewChooser(t, Relay, 64<<10, 256)
			total := func(int) int64 { return 1 << 10 }
			sources, relayed, pieces := make([]int, 0, pes), make([]int64, 0, 8), make([]Piece, 0, 64)
			b.ReportAllocs()
			for b.Loop() {
				for k := 1; k <= t.Rounds(); k++ {
					sources = t.Sources(sources[:0], 0, k)
					node := t.Node(t.Target(0, k))
					relayed = relayed[:t.Most()]
					sum := c.Relayed(relayed, 0, node, total)
					for sub := range z.Subs(sum) {
						pieces = z.Cut(pieces[:0], relayed, sub)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*t.Rounds()), "ns/round")
		})
	}
}
