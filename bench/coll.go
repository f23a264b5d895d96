package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

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
	sends     []int            // bytes of each block of src
	recvs     []int            // and of dst
	wide      [2][]uint64      // source and destination of a strided call
	pending   []*coll.Pending
	plain     *exchange
	size      int64
	block     int // in elements
	verifying uint64
}

func collWork(ctx context.Context, e *env, k collective) error {
	r := &collRun{env: e, ctx: ctx, k: k, n: e.p.Size(), rank: e.p.Rank()}
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
	r.plain, err = newExchange(r.ctx, r.env, int64(largest), r.k)
	return err
}

func (r *collRun) measureSize(size int64) error {
	r.size, r.block = size, int(size/r.k.elem())
	if !r.k.reduces {
		var sent, received int
		r.sends, sent = r.lay(r.sends[:0], r.k.src)
		r.recvs, received = r.lay(r.recvs[:0], r.k.dst)
		r.src, r.dst = r.memory[0][:sent], r.memory[1][:received]
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
	if r.cfg.Spread != "" {
		t.algo += " " + r.cfg.Spread
	}
	if bytes := r.k.bandwidth(r.n, size); r.cfg.Spread == "" && size >= bandwidthFrom && bytes > 0 {
		t.more = []line{{metric: "bandwidth", unit: unitGBs, bytes: bytes}}
	}
	if err := r.measure(t); err != nil || !r.k.algo {
		return err
	}
	return r.measure(r.used(t))
}

// used is a trial in which every PE writes its source anew before each call, and
// reads what it got before the next: then blocks cross from core to core, as they
// do in a program, and not their flags alone.
func (r *collRun) used(t trial) trial {
	call, floor := t.work, t.floor
	t.line.metric, t.more = "used", nil
	t.work = func(ops int) error { return inUse(ops, call, r.src, r.dst) }
	t.floor = func(ops int) error { return inUse(ops, floor, r.plain.from[:len(r.src)], r.plain.room[:len(r.dst)]) }
	return t
}

// inUse does something so many times, and uses its source and destination.
func inUse(ops int, do func(ops int) error, src, dst []byte) error {
	for range ops {
		touch(src, 0)
		if err := do(1); err != nil {
			return err
		}
		readLines(dst)
	}
	return nil
}

// touch adds to a byte of each cache line, readLines reads one.
//
//go:noinline
func touch(b []byte, v byte) {
	for i := 0; i < len(b); i += 64 {
		b[i] += v
	}
}

//go:noinline
func readLines(b []byte) (sum byte) {
	for i := 0; i < len(b); i += 64 {
		sum += b[i]
	}
	return sum
}

// lay tells the bytes of each block of a buffer, one behind the other, and their sum.
func (r *collRun) lay(list []int, s shape) ([]int, int) {
	sum := 0
	for i := range s.blocks(r.n) {
		n := int(r.size)
		if r.k.algo {
			from, to := s.way(r.rank, i)
			n = int(r.k.sends(r, from, to))
		}
		list = append(list, n)
		sum += n
	}
	return list, sum
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
		if r.k.strided {
			r.wide[1][0]++
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
	at := 0
	for i, n := range r.sends {
		pattern(r.src[at:at+n], r.seed(r.k.src.way(r.rank, i)))
		at += n
	}
	if r.k.src == none && r.rank == r.root { // in place
		pattern(r.dst, r.seed(r.k.dst.way(r.rank, 0)))
	}
	if r.k.strided {
		r.wide[0] = make([]uint64, len(r.src)/4)
		r.wide[1] = make([]uint64, len(r.dst)/4)
		for i := range len(r.src) / 8 {
			r.wide[0][2*i] = binary.LittleEndian.Uint64(r.src[8*i:])
		}
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
	if r.k.strided {
		for i := range len(r.dst) / 8 {
			binary.LittleEndian.PutUint64(r.dst[8*i:], r.wide[1][2*i])
		}
	}
	if !r.k.reduces {
		at := 0
		for i, n := range r.recvs {
			if !samePattern(r.dst[at:at+n], r.seed(r.k.dst.way(r.rank, i))) {
				return false
			}
			at += n
		}
		return true
	}
	first := 0
	if r.k.src == toEach { // this PE's block of the sums
		first = r.rank * r.block
	}
	n := r.n
	if r.k.prefix {
		n = r.rank + int(1-bit(r.k.exclusive))
	}
	ranks := float32(n * (n + 1) / 2)
	for i, v := range r.out[:r.block] {
		if v != ranks*r.term(0, first+i) {
			return false
		}
	}
	return true
}

// algoCheck refuses -algo and -spread where there is one way only.
func (c *Config) algoCheck(prog program) error {
	if !prog.algo && c.Spread != "" {
		return fmt.Errorf("bench: %s: it has no -spread: %w", c.Name, pe.ErrConfig)
	}
	if c.Spread != "" && !slices.Contains(spreads(), c.Spread) {
		return fmt.Errorf("bench: %s: spread %q: want one of %v: %w", c.Name, c.Spread, spreads(), pe.ErrConfig)
	}
	if c.Algo == "" {
		return nil
	}
	if !prog.algo {
		return fmt.Errorf("bench: %s: it has no -algo: %w", c.Name, pe.ErrConfig)
	}
	_, err := coll.ParseAlgo(c.Algo)
	return err
}
