package pe

import (
	"sync/atomic"

	"goshmem/heap"
)

// Asleep is how many goroutines of the PE sleep, or are about to, on its bell.
func Asleep(p *PE) int { return int(p.sleeper.Bell().Armed().Load()) }

// Rings is how often the PE's bell was rung.
func Rings(p *PE) uint32 {
	_, bell := headerWords(p.world.table.Region(p.rank, heap.RegionRuntime).Base)
	return atomic.LoadUint32(bell)
}
