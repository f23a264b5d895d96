package sim_test

import (
	"fmt"
	"slices"
	"time"

	"goshmem/internal/fabric/sim"
)

// alltoall is the schedule by which every PE sends n bytes to every PE: straight
// (direct), or once a node to the PE there with the same local index, which
// passes them on (relay). Node k of these is PEs k*per to k*per+per-1.
func alltoall(nodes, per int, n int64, relay bool) (schedule []sim.Message, node []int) {
	pes := nodes * per
	for p := range pes {
		node = append(node, p/per)
	}
	for round := range nodes { // round 0 stays within the node
		for p := range pes {
			first := (p/per + round) % nodes * per
			rail := first + p%per
			hop := len(schedule)
			if round > 0 && relay {
				schedule = append(schedule, sim.Message{Src: p, Dst: rail, Bytes: n * int64(per)})
			}
			for i := range per {
				dst := first + (p+i)%per // every source begins elsewhere
				switch {
				case round == 0 || !relay:
					schedule = append(schedule, sim.Message{Src: p, Dst: dst, Bytes: n})
				case dst != rail: // the rail peer's own bytes are there already
					schedule = append(schedule, sim.Message{Src: rail, Dst: dst, Bytes: n, After: []int{hop}})
				}
			}
		}
	}
	return schedule, node
}

// Sixteen nodes of four PEs: relaying pays where posts are what costs.
func ExampleSimulate() {
	net := sim.Link{Latency: 2 * time.Microsecond, Bandwidth: 25e9, Post: 300}
	copies := sim.Link{Bandwidth: 20e9, Post: 50}
	for _, n := range []int64{1 << 10, 16 << 10, 256 << 10} {
		var took []time.Duration
		for _, relay := range []bool{false, true} {
			schedule, node := alltoall(16, 4, n, relay)
			r, err := sim.Simulate(schedule, sim.Model{Node: node, Net: net, Local: copies})
			if err != nil {
				fmt.Println(err)
				return
			}
			took = append(took, r.Total)
		}
		fmt.Printf("%3d KiB: direct %v, relay %v, relay is faster: %v\n", n>>10, took[0], took[1], !slices.IsSorted(took))
	}
	// Output:
	//   1 KiB: direct 20.449µs, relay 9.498µs, relay is faster: true
	//  16 KiB: direct 45.14µs, relay 47.72µs, relay is faster: false
	// 256 KiB: direct 684.092µs, relay 723.566µs, relay is faster: false
}
