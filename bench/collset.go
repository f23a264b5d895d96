package bench

import (
	"goshmem/coll"
)

// shape is how the blocks of a collective's buffer are laid out, a block being
// what the program calls a size.
type shape uint8

const (
	none     shape = iota // no buffer: the other one is used in place
	own                   // a block, which goes to all
	ofRoot                // a block that comes from the root
	toEach                // a block for each PE
	fromEach              // a block from each, made for all
	fromPair              // a block from each, made for this PE
	toMe                  // the block that the root made for this PE
)

// blocks is how many blocks there are at a PE.
func (s shape) blocks(n int) int {
	switch s {
	case none:
		return 0
	case own, ofRoot, toMe:
		return 1
	}
	return n
}

// way is who makes block i of a PE's buffer, and for whom; -1: for all. The root
// is PE 0.
func (s shape) way(rank, i int) (from, to int) {
	switch s {
	case toEach:
		return rank, i
	case fromEach:
		return i, -1
	case fromPair:
		return i, rank
	case toMe:
		return 0, rank
	case ofRoot:
		return 0, -1
	}
	return rank, -1
}

// collective is one of package coll: what a program calls and how it is checked.
type collective struct {
	name, text string
	src, dst   shape
	reduces    bool // float32, summed
	atRoot     bool // the root alone has a result
	prefix     bool // of the PEs up to this one
	exclusive  bool // and without it
	strided    bool // 8-byte elements, every other one
	algo       bool // there are several ways
	call       func(r *collRun) error
	// sends is what plain copies would take: how many bytes a PE sends another one
	// in each of so many rounds.
	sends  func(r *collRun, from, to int) int64
	rounds func(r *collRun) int // nil: one
}

// elem is the size of an element.
func (k collective) elem() int64 {
	switch {
	case k.reduces:
		return 4
	case k.strided:
		return 8
	}
	return 1
}

// bandwidth is the bytes of one call: of a PE to the others, or, of a reduction,
// its input.
func (k collective) bandwidth(n int, size int64) int64 {
	if k.reduces {
		return size * int64(k.src.blocks(n))
	}
	if k.dst.blocks(n) > 1 {
		return size * int64(n-1)
	}
	return size
}

// spreads are how the bytes of an alltoallv lie between the pairs; the size is the
// longest pair's.
func spreads() []string { return []string{"uniform", "zipf", "one-hot", "zeros"} }

// spreadOf is the bytes from one PE to another of n.
func spreadOf(spread string, size int64, from, to, n int) int64 {
	switch spread {
	case "zipf": // PE 0 is the one that everybody sends most
		return size / int64(to+1)
	case "one-hot":
		return size * int64(bit(to == (from+1)%n))
	case "zeros":
		return 0
	}
	return size
}

func toAll(r *collRun, _, _ int) int64 { return r.size }

func fromRoot(r *collRun, from, _ int) int64 { return silentUnless(from == r.root, r.size) }

func toRoot(r *collRun, _, to int) int64 { return silentUnless(to == r.root, r.size) }

// toLater also tells earlier PEs, by a flag alone, that there is room for the next.
func toLater(r *collRun, from, to int) int64 {
	if from < to {
		return r.size
	}
	return 0
}

// silent is sends without even a flag.
const silent = -1

func silentUnless(speaks bool, size int64) int64 {
	if speaks {
		return size
	}
	return silent
}

// cutFrom is the length from which a plain allreduce is two rounds of blocks.
const cutFrom = 4 << 10

func allreduceRounds(r *collRun) int {
	if r.size < cutFrom {
		return 1
	}
	return 2
}

func allreduceSends(r *collRun, _, _ int) int64 {
	if r.size < cutFrom {
		return r.size
	}
	return r.size / int64(r.n)
}

func collectives() []collective {
	return []collective{
		{
			name: "alltoallv", text: "alltoallv, the same for each pair or not (-algo, -spread)",
			src: toEach, dst: fromPair, algo: true,
			sends: func(r *collRun, from, to int) int64 { return spreadOf(r.cfg.Spread, r.size, from, to, r.n) },
			call: func(r *collRun) error {
				return coll.AllToAllV(r.ctx, r.comm, r.array, r.recvs, nil, r.src, r.sends, nil)
			},
		},
		{
			name: "alltoall", text: "alltoall, a block for each pair",
			src: toEach, dst: fromPair, sends: toAll,
			call: func(r *collRun) error { return coll.AllToAll(r.ctx, r.comm, r.dst, r.src) },
		},
		{
			name: "alltoalls", text: "alltoall of 8-byte elements with gaps of as many bytes",
			src: toEach, dst: fromPair, strided: true, sends: toAll,
			call: func(r *collRun) error {
				return coll.AllToAllS(r.ctx, r.comm, r.wide[1], r.wide[0], 2, 2, r.block)
			},
		},
		{
			name: "sendrecv", text: "tagged messages, a block for each pair: all receives, all sends, all waits",
			src: toEach, dst: fromPair, sends: toAll,
			call: sendRecv,
		},
		{
			name: "allreduce", text: "sum of float32 vectors at every PE",
			src: own, dst: own, reduces: true, sends: allreduceSends, rounds: allreduceRounds,
			call: func(r *collRun) error {
				return coll.AllReduce(r.ctx, r.comm, coll.Sum, r.out[:r.block], r.in[:r.block])
			},
		},
		{
			name: "reduce", text: "sum of float32 vectors at a root; the PEs take turns",
			src: own, dst: own, reduces: true, atRoot: true, sends: toRoot,
			call: func(r *collRun) error {
				return coll.Reduce(r.ctx, r.comm, coll.Sum, r.root, r.out[:r.block], r.in[:r.block])
			},
		},
		{
			name: "reducescatter", text: "sum of float32 vectors, a block at each PE",
			src: toEach, dst: own, reduces: true, sends: toAll,
			call: func(r *collRun) error {
				return coll.ReduceScatter(r.ctx, r.comm, coll.Sum, r.out[:r.block], r.in[:r.n*r.block])
			},
		},
		{
			name: "scan", text: "sum of float32 vectors of the PEs up to each one",
			src: own, dst: own, reduces: true, prefix: true,
			sends: toLater,
			call: func(r *collRun) error {
				return coll.Scan(r.ctx, r.comm, coll.Sum, r.out[:r.block], r.in[:r.block])
			},
		},
		{
			name: "exscan", text: "sum of float32 vectors of the PEs before each one",
			src: own, dst: own, reduces: true, prefix: true, exclusive: true,
			sends: toLater,
			call: func(r *collRun) error {
				return coll.ExclusiveScan(r.ctx, r.comm, coll.Sum, r.out[:r.block], r.in[:r.block])
			},
		},
		{
			name: "broadcast", text: "a block from a root to all; the PEs take turns",
			src: none, dst: ofRoot, sends: fromRoot,
			call: func(r *collRun) error { return coll.Broadcast(r.ctx, r.comm, r.root, r.dst) },
		},
		{
			name: "fcollect", text: "a block of each PE to all (allgather)",
			src: own, dst: fromEach, sends: toAll,
			call: func(r *collRun) error { return coll.FCollect(r.ctx, r.comm, r.dst, r.src) },
		},
		{
			name: "collect", text: "as fcollect, of blocks whose lengths are told (allgatherv)",
			src: own, dst: fromEach, sends: toAll,
			call: func(r *collRun) error { return coll.Collect(r.ctx, r.comm, r.dst, r.src, nil) },
		},
		{
			name: "gather", text: "a block of each PE to a root; the PEs take turns",
			src: own, dst: fromEach, atRoot: true, sends: toRoot,
			call: func(r *collRun) error { return coll.Gather(r.ctx, r.comm, r.root, r.dst, r.src) },
		},
		{
			name: "scatter", text: "a block from a root to each PE; the PEs take turns",
			src: toEach, dst: toMe, sends: fromRoot,
			call: func(r *collRun) error { return coll.Scatter(r.ctx, r.comm, r.root, r.dst, r.src) },
		},
	}
}

func sendRecv(r *collRun) error {
	n := int(r.size)
	part := func(b []byte, i int) []byte { return b[i*n : (i+1)*n] }
	r.pending = r.pending[:0]
	for i := range r.n {
		p, err := coll.StartRecv(r.comm, i, 0, part(r.dst, i))
		if err != nil {
			return err
		}
		r.pending = append(r.pending, p)
	}
	for i := range r.n {
		to := (r.rank + i) % r.n
		p, err := coll.StartSend(r.comm, to, 0, part(r.src, to))
		if err != nil {
			return err
		}
		r.pending = append(r.pending, p)
	}
	for _, p := range r.pending {
		if err := p.Wait(r.ctx); err != nil {
			return err
		}
	}
	return nil
}
