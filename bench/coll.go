package bench

import (
	"context"
	"fmt"

	"goshmem/coll"
	"goshmem/heap"
	"goshmem/pe"
)

// collPrograms are the collectives of package coll, one program each.
func collPrograms() []program {
	var all []program
	for _, k := range collectives() {
		var cuda func(ctx context.Context, e *env) error
		if k.name == "alltoallv" {
			cuda = allToAllDevice
		}
		all = append(all, program{
			name: k.name, text: k.text, cuda: cuda,
			pes: 2, least: 1, smallest: k.elem(), multiple: k.elem(),
			sizes: []int64{8, 1 << 10, 64 << 10, 1 << 20},
			algo:  k.algo,
			work:  func(ctx context.Context, e *env) error { return collWork(ctx, e, k) },
			heap:  func(c *Config) (int64, error) { return collHeap(c, k) },
		})
	}
	return all
}

// unknownNodes is room for what a Comm takes more if the environment asks for
// simulated nodes.
const unknownNodes = 16 << 20

// collHeap is the memory of a Comm, of source and destination, and of the floor.
func collHeap(c *Config, k collective) (int64, error) {
	n := max(c.PEs, 1)
	nodes := make([]int, n)
	for i := range nodes {
		nodes[i] = i * max(c.Nodes, 1) / n // as pe deals them
	}
	need, err := coll.Config{}.BytesOn(nodes)
	if c.Nodes == 0 {
		need += unknownNodes
	}
	return need + c.largest()*int64(k.src.blocks(n)+k.dst.blocks(n)+n) + int64(n)*lineWords*8, err
}

// collRun is a PE's part of a collective's program.
type collRun struct {
	*env
	ctx     context.Context
	k       collective
	comm    *coll.Comm
	n, rank int
	root    int // of the next call, where there is one; they take turns

	array     heap.Array[byte] // dst of the largest size
	memory    [2][]byte        // source and destination of the largest size
	src, dst  []byte           // of the present one
	in, out   []float32        // the same for reductions
	counts    []int
	plain     *exchange
	size      int64
	block     int // in elements
	verifying uint64
}

func collWork(ctx context.Context, e *env, k collective) error {
	r := &collRun{env: e, ctx: ctx, k: k, n: e.p.Size(), rank: e.p.Rank(), counts: make([]int, e.p.Size())}
	if err := r.prepare(); err != nil {
		return err
	}
	for _, size := range e.cfg.Sizes {
		if err := r.measureSize(size); err != nil {
			return err
		}
	}
	return r.comm.Free(ctx)
}

func (r *collRun) prepare() (err error) {
	cfg := coll.Config{}
	if r.cfg.Algo != "" {
		if cfg.Algo, err = coll.ParseAlgo(r.cfg.Algo); err != nil {
			return err
		}
	}
	if r.comm, err = coll.New(r.ctx, r.p.Team(), cfg); err != nil {
		return err
	}
	r.base.Path = r.farPath()
	largest := int(r.cfg.largest())
	if r.k.reduces {
		in, err := pe.Calloc[float32](r.ctx, r.p, r.k.src.blocks(r.n)*largest/4)
		if err != nil {
			return err
		}
		out, err := pe.Calloc[float32](r.ctx, r.p, r.k.dst.blocks(r.n)*largest/4)
		if err != nil {
			return err
		}
		r.in, r.out = in.Local(), out.Local()
	} else {
		in, err := pe.Calloc[byte](r.ctx, r.p, r.k.src.blocks(r.n)*largest)
		if err != nil {
			return err
		}
		if r.array, err = pe.Calloc[byte](r.ctx, r.p, r.k.dst.blocks(r.n)*largest); err != nil {
			return err
		}
		r.memory = [2][]byte{in.Local(), r.array.Local()}
	}
	r.plain, err = newExchange(r.ctx, r.env, int64(largest))
	return err
}

func (r *collRun) measureSize(size int64) error {
	r.size, r.block = size, int(size/r.k.elem())
	for i := range r.counts {
		r.counts[i] = r.block
	}
	if !r.k.reduces {
		r.src, r.dst = r.memory[0][:r.k.src.blocks(r.n)*int(size)], r.memory[1][:r.k.dst.blocks(r.n)*int(size)]
	}
	r.fill()
	t := trial{
		line: line{metric: "latency", unit: unitNS}, size: size, all: true, batch: batchFor(size),
		work: func(ops int) error {
			for range ops {
				if err := r.call(); err != nil {
					return err
				}
			}
			return nil
		},
		floor:  func(ops int) error { return r.plain.run(r, ops) },
		verify: r.verify,
	}
	if r.k.algo {
		t.algo = r.comm.Config().Algo.String()
	}
	if r.p.World().Oversubscribed() {
		t.batch = max(t.batch, oversubscribedBatch)
	}
	if bytes := r.k.bandwidth(r.n, size); size >= bandwidthFrom && bytes > 0 {
		t.more = []line{{metric: "bandwidth", unit: unitGBs, bytes: bytes}}
	}
	return r.measure(t)
}

func (r *collRun) call() error {
	err := r.k.call(r)
	if r.root++; r.root == r.n {
		r.root = 0
	}
	return err
}

// verify makes one more call, on other data, at root 0.
func (r *collRun) verify() (bool, error) {
	r.verifying++
	r.root = 0
	r.fill()
	if err := r.k.call(r); err != nil {
		return false, err
	}
	defer func() { r.root = 0 }()
	if r.cfg.corrupt != nil {
		r.cfg.corrupt(r.dst)
		if r.k.reduces {
			r.out[0]++
		}
	}
	if r.k.atRoot && r.rank != 0 {
		return true, nil
	}
	return r.right(), nil
}

// fill makes this PE's source, and a destination that is not the result.
func (r *collRun) fill() {
	if r.k.reduces {
		for i := range r.in[:r.k.src.blocks(r.n)*r.block] {
			r.in[i] = r.term(r.rank, i)
		}
		clear(r.out)
		return
	}
	clear(r.dst)
	for i := range r.k.src.blocks(r.n) {
		pattern(r.src[i*r.block:(i+1)*r.block], r.seed(r.k.src.way(r.rank, i)))
	}
	if r.k.src == none && r.rank == r.root { // in place
		pattern(r.dst, r.seed(r.k.dst.way(r.rank, 0)))
	}
}

// term is element i of a PE's source: small whole numbers, whose sums are exact.
func (r *collRun) term(rank, i int) float32 {
	return float32((rank + 1) * (i%61 + int(r.verifying)%7))
}

// seed tells apart blocks by where they come from, where they go (-1: to all)
// and the round of verification.
func (r *collRun) seed(from, to int) uint64 {
	return r.verifying<<40 + uint64(from)<<20 + uint64(to+1) + 1
}

// right compares the destination with what it should be.
func (r *collRun) right() bool {
	if !r.k.reduces {
		for i := range r.k.dst.blocks(r.n) {
			if !samePattern(r.dst[i*r.block:(i+1)*r.block], r.seed(r.k.dst.way(r.rank, i))) {
				return false
			}
		}
		return true
	}
	first := 0
	if r.k.src == toEach { // this PE's block of the sums
		first = r.rank * r.block
	}
	ranks := float32(r.n * (r.n + 1) / 2)
	for i, v := range r.out[:r.block] {
		if v != ranks*r.term(0, first+i) {
			return false
		}
	}
	return true
}

// algoCheck refuses -algo where there is one way only.
func (c *Config) algoCheck(prog program) error {
	if c.Algo == "" {
		return nil
	}
	if !prog.algo {
		return fmt.Errorf("bench: %s: it has no -algo: %w", c.Name, pe.ErrConfig)
	}
	_, err := coll.ParseAlgo(c.Algo)
	return err
}
