package relaysim

import (
	"fmt"
	"time"

	"goshmem/coll"
	"goshmem/coll/internal/plan"
	"goshmem/pe"
)

// Config is the machine and the call.
type Config struct {
	Nodes, PerNode int     // uniform nodes, each PE with a port of its own
	Bytes          []int64 // of a pair, by row of the table

	Bandwidth int64         // of a port, bytes a second, each way
	Latency   time.Duration // of a message
	Post      time.Duration // of the processor, a message

	Copy     int64         // bytes a second that one processor copies within a node
	CopyPost time.Duration // of the processor, a copy or a signal within a node
	CopyLate time.Duration // until the other side sees it

	Coll coll.Config // Algo apart
}

// Default is the machine of docs/perf/relay-sim.md.
func Default() Config {
	return Config{
		Nodes: 16, PerNode: 4, Bytes: []int64{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10},
		Bandwidth: 25e9, Latency: 2 * time.Microsecond, Post: 300 * time.Nanosecond,
		Copy: 20e9, CopyPost: 50 * time.Nanosecond, CopyLate: 100 * time.Nanosecond,
	}
}

// topology and sizes are the plan's.
func (c *Config) topology() (*plan.Topology, error) {
	const most = 1 << 10
	if c.Nodes < 1 || c.PerNode < 1 || c.Nodes > most || c.PerNode > most || c.Nodes*c.PerNode > most {
		return nil, fmt.Errorf("relaysim: %d nodes of %d PEs, at most %d in all: %w", c.Nodes, c.PerNode, most, pe.ErrConfig)
	}
	nodes := make([]int, c.Nodes*c.PerNode)
	for r := range nodes {
		nodes[r] = r / c.PerNode
	}
	return plan.NewTopology(nodes), nil
}
