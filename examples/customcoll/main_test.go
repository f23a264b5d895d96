package main

import (
	"fmt"
	"testing"

	"goshmem/pe"
)

// Both collectives, on every path and between simulated nodes.
func TestCustomCollectives(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 8} {
		for _, cfg := range []pe.Config{
			{Path: "direct"}, {Path: "proxy"}, {Path: "proxy", RingCapacity: 1},
			{Nodes: (n + 1) / 2},
		} {
			t.Run(fmt.Sprintf("%d %s ring %d nodes %d", n, cfg.Path, cfg.RingCapacity, cfg.Nodes), func(t *testing.T) {
				cfg.Size, cfg.HeapSize = n, 1<<20
				if err := pe.Run(t.Context(), cfg, func(p *pe.PE) error { return run(t.Context(), p, 1000, 8) }); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
