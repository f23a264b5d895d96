package bench

import (
	"fmt"
	"slices"
	"time"

	"goshmem/internal/options"
	"goshmem/pe"
)

// Config is one run of one program.
type Config struct {
	Name   string
	PEs    int           // 0: the program's default
	Mem    string        // memory: host, or cuda; empty: host
	Path   string        // auto, direct, proxy, …
	Nodes  int           // simulated nodes; 0: as the environment says
	Algo   string        // of an alltoallv: auto, direct, relay
	Spread string        // of an alltoallv's bytes over the pairs: see spreads; empty: uniform
	Sizes  []int64       // bytes; nil: the program's default
	Iters  int           // operations for each figure; 0: as many as fit into Time
	Time   time.Duration // for each figure; 0: 300 ms
	MoE    MoE           // of program moe

	// corrupt spoils received data before it is checked: tests see by it that
	// the check looks.
	corrupt func([]byte)

	begun   int64         // when the tool started the processes, ns since 1970; 0: it did not
	entered time.Time     // when the PE began to join
	joined  time.Duration // how long that took
}

const (
	defaultTime = 300 * time.Millisecond
	maxSize     = 1 << 40
	maxPEs      = 1 << 16
	maxIters    = 1 << 40
)

// complete checks the configuration and fills in the program's defaults.
func (c *Config) complete() (program, error) {
	prog, err := find(c.Name)
	if err != nil {
		return prog, err
	}
	bad := func(format string, args ...any) (program, error) {
		return prog, fmt.Errorf("bench: %s: "+format+": %w", append(append([]any{c.Name}, args...), pe.ErrConfig)...)
	}
	if c.PEs < 0 || c.PEs > maxPEs {
		return bad("%d PEs: want 1 to %d", c.PEs, maxPEs)
	}
	if c.PEs != 0 && prog.solo && prog.pes == 0 {
		return bad("it has no -n")
	}
	if c.PEs == 0 {
		c.PEs = prog.pes
	}
	if c.PEs != 0 && c.PEs < prog.least {
		return bad("%d PEs: want %d or more", c.PEs, prog.least)
	}
	if c.Nodes < 0 || c.Nodes > max(c.PEs, 1) {
		return bad("%d simulated nodes of %d PEs", c.Nodes, c.PEs)
	}
	if c.Nodes != 0 && prog.solo {
		return bad("it has no -nodes")
	}
	if err := c.algoCheck(prog); err != nil {
		return prog, err
	}
	if c.Sizes != nil && prog.sizes == nil {
		return bad("it has no -sizes")
	}
	if c.Sizes == nil {
		c.Sizes = prog.sizes
	}
	for _, s := range c.Sizes {
		if s < prog.smallest || s > maxSize || s%max(prog.multiple, 1) != 0 || prog.only != nil && !slices.Contains(prog.only, s) {
			return bad("a size of %d B is not possible", s)
		}
	}
	if c.Iters < 0 || c.Iters > maxIters || c.Time < 0 {
		return bad("%d iterations, %v: want up to %d, and no negative time", c.Iters, c.Time, maxIters)
	}
	if c.Time == 0 {
		c.Time = defaultTime
		if prog.time != 0 {
			c.Time = prog.time
		}
	}
	if paths := options.Paths(); c.Path != "" && !slices.Contains(paths, c.Path) {
		return bad("path %q: want one of %v", c.Path, paths)
	}
	switch {
	case c.Mem != "" && c.Mem != memHost && c.Mem != memCUDA:
		return bad("memory %q: want host or cuda", c.Mem)
	case c.Mem == memCUDA && prog.cuda == nil:
		return bad("it has no -mem cuda")
	}
	if prog.check != nil {
		if err := prog.check(c); err != nil {
			return prog, err
		}
	}
	return prog, nil
}

// largest is the greatest size, at least a cache line.
func (c *Config) largest() int64 {
	most := int64(64)
	for _, s := range c.Sizes {
		most = max(most, s)
	}
	return most
}

// World is how the world of the program is made: its size and the messages'
// decide the heap's.
func (c Config) World() (pe.Config, error) {
	prog, err := c.complete()
	if err != nil {
		return pe.Config{}, err
	}
	room := c.largest() + 4<<20
	if prog.heap != nil {
		extra, err := prog.heap(&c)
		if err != nil {
			return pe.Config{}, err
		}
		room += extra
	}
	w := pe.Config{Path: c.Path, Nodes: c.Nodes, HeapSize: room}
	if c.Mem == memCUDA {
		w.HeapSize, w.DeviceHeap = 2*room, 2*room
	}
	return w, nil
}
