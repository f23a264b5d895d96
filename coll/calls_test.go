package coll_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"unsafe"

	"goshmem/coll"
	"goshmem/heap"
	"goshmem/pe"
)

// spec is one collective call, as all members know it.
type spec struct {
	call    string
	op      coll.Op
	root    int
	n       int // elements: of the shorter buffer
	sym     int // bit r: member r's buffers are symmetric memory
	inPlace bool
	start   bool
	seed    uint64
}

func (s spec) String() string {
	return fmt.Sprintf("%s(%v, root %d, %d elements, symmetric %b, in place %v, started %v, seed %d)",
		s.call, s.op, s.root, s.n, s.sym, s.inPlace, s.start, s.seed)
}

// calls are the collectives; those of the second list combine.
var (
	movers   = []string{"broadcast", "fcollect", "collect", "gather", "scatter", "alltoall", "alltoalls", "barrier", "sync"}
	reducers = []string{"reduce", "allreduce", "reduce-scatter", "scan", "exclusive scan"}
)

// ground is the memory of one member that tests use as symmetric buffers.
type ground struct {
	mem []byte
	at  int
}

func newGround(ctx context.Context, t *pe.Team, size int64) (*ground, heap.Ref, error) {
	ref, err := t.AllocMem(ctx, size, 64)
	if err != nil {
		return nil, ref, err
	}
	mem, err := t.PE().LocalBytes(ref, int(size))
	return &ground{mem: mem}, ref, err
}

// slice takes n elements, at a place of each member's own.
func slice[T heap.Elem](g *ground, sym bool, skip, n int) []T {
	var t T
	size := int(unsafe.Sizeof(t))
	if !sym {
		return make([]T, n)
	}
	b := g.mem[g.at:]
	pad := (skip%5*64 + 64) &^ 63
	g.at += pad + (n*size+127)/64*64
	b = b[pad : pad+n*size]
	clear(b)
	if n == 0 {
		return []T{}
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

// run carries one call out and compares with what it should give.
func run[T coll.Number](ctx context.Context, c *coll.Comm, g *ground, s spec) error {
	g.at = 0
	r, size := c.Rank(), c.Size()
	sym := s.sym>>r&1 == 1
	buf := func(n int) []T { return slice[T](g, sym, r, n) }
	rows := func(n int) [][]T {
		all := make([][]T, size)
		for i := range all {
			all[i] = input[T](s.seed, i, n)
		}
		return all
	}
	var p *pend
	// do runs the blocking or the started form.
	do := func(block func() error, start func() (*coll.Pending, error)) error {
		if !s.start {
			return block()
		}
		q, err := start()
		p = &pend{q}
		return p.wait(ctx, err)
	}
	switch s.call {
	case "broadcast":
		in := input[T](s.seed, s.root, s.n)
		b := buf(s.n)
		if r == s.root {
			copy(b, in)
		}
		err := do(func() error { return coll.Broadcast(ctx, c, s.root, b) },
			func() (*coll.Pending, error) { return coll.StartBroadcast(c, s.root, b) })
		return errors.Join(err, same(s.call, b, in))
	case "fcollect":
		all := rows(s.n)
		dst, src := buf(size*s.n), buf(s.n)
		if s.inPlace {
			src = dst[r*s.n : (r+1)*s.n]
		}
		copy(src, all[r])
		err := do(func() error { return coll.FCollect(ctx, c, dst, src) },
			func() (*coll.Pending, error) { return coll.StartFCollect(c, dst, src) })
		return errors.Join(err, same(s.call, dst, concat(all)), same("source", src, all[r]))
	case "collect":
		all := make([][]T, size)
		lens := rand.New(rand.NewPCG(s.seed, 77))
		counts := make([]int, size)
		for i := range all {
			counts[i] = lens.IntN(s.n + 1)
			if lens.IntN(4) == 0 {
				counts[i] = 0
			}
			all[i] = input[T](s.seed, i, counts[i])
		}
		want := concat(all)
		dst, src := buf(size*s.n+3), buf(counts[r])
		copy(src, all[r])
		got := make([]int, size)
		err := do(func() error { return coll.Collect(ctx, c, dst, src, got) },
			func() (*coll.Pending, error) { return coll.StartCollect(c, dst, src, got) })
		return errors.Join(err, same(s.call, dst[:len(want)], want), same("rest", dst[len(want):], make([]T, len(dst)-len(want))), same("counts", got, counts))
	case "gather":
		all := rows(s.n)
		var dst []T
		src := buf(s.n)
		if r == s.root {
			if dst = buf(size * s.n); s.inPlace {
				src = dst[r*s.n : (r+1)*s.n]
			}
		}
		copy(src, all[r])
		err := do(func() error { return coll.Gather(ctx, c, s.root, dst, src) },
			func() (*coll.Pending, error) { return coll.StartGather(c, s.root, dst, src) })
		if r == s.root {
			err = errors.Join(err, same(s.call, dst, concat(all)))
		}
		return errors.Join(err, same("source", src, all[r]))
	case "scatter":
		in := input[T](s.seed, s.root, size*s.n)
		var src []T
		dst := buf(s.n)
		if r == s.root {
			src = buf(size * s.n)
			copy(src, in)
			if s.inPlace {
				dst = src[r*s.n : (r+1)*s.n]
			}
		}
		err := do(func() error { return coll.Scatter(ctx, c, s.root, dst, src) },
			func() (*coll.Pending, error) { return coll.StartScatter(c, s.root, dst, src) })
		return errors.Join(err, same(s.call, dst, in[r*s.n:(r+1)*s.n]))
	case "alltoall":
		all := rows(size * s.n)
		dst, src := buf(size*s.n), buf(size*s.n)
		copy(src, all[r])
		err := do(func() error { return coll.AllToAll(ctx, c, dst, src) },
			func() (*coll.Pending, error) { return coll.StartAllToAll(c, dst, src) })
		return errors.Join(err, same(s.call, dst, concat(column(all, r, s.n))), same("source", src, all[r]))
	case "alltoalls":
		// Strides of each member's own; what lies between is left alone.
		strides := func(i int) (int, int) { return 1 + (int(s.seed%1000)+i)%3, 1 + (int(s.seed%1000)+2*i)%2 }
		all := rows(size * s.n)
		ds, ss := strides(r)
		dst, src := buf(size*s.n*ds), buf(size*s.n*ss)
		want := make([]T, len(dst))
		for i, v := range concat(column(all, r, s.n)) {
			want[i*ds] = v
		}
		for i, v := range all[r] {
			src[i*ss] = v
		}
		err := do(func() error { return coll.AllToAllS(ctx, c, dst, src, ds, ss, s.n) },
			func() (*coll.Pending, error) { return coll.StartAllToAllS(c, dst, src, ds, ss, s.n) })
		return errors.Join(err, same(s.call, dst, want))
	case "barrier":
		return do(func() error { return coll.Barrier(ctx, c.Team()) }, func() (*coll.Pending, error) { return coll.StartBarrier(c) })
	case "sync":
		return do(func() error { return coll.Sync(ctx, c.Team()) }, func() (*coll.Pending, error) { return coll.StartSync(c) })
	}
	return runReduction(ctx, c, s, buf, rows, do)
}

func runReduction[T coll.Number](ctx context.Context, c *coll.Comm, s spec, buf func(int) []T, rows func(int) [][]T,
	do func(func() error, func() (*coll.Pending, error)) error,
) error {
	r, size := c.Rank(), c.Size()
	if s.call == "reduce-scatter" {
		all := rows(size * s.n)
		dst, src := buf(s.n), buf(size*s.n)
		copy(src, all[r])
		if s.inPlace {
			dst = src[r*s.n : (r+1)*s.n]
		}
		err := do(func() error { return coll.ReduceScatter(ctx, c, s.op, dst, src) },
			func() (*coll.Pending, error) { return coll.StartReduceScatter(c, s.op, dst, src) })
		return errors.Join(err, same(s.call, dst, fold(s.op, column(all, r, s.n))))
	}
	all := rows(s.n)
	dst, src := buf(s.n), buf(s.n)
	copy(src, all[r])
	if s.inPlace {
		dst = src
	}
	var err error
	var want []T
	switch s.call {
	case "reduce":
		want = fold(s.op, all)
		if r != s.root {
			dst = nil
		}
		err = do(func() error { return coll.Reduce(ctx, c, s.op, s.root, dst, src) },
			func() (*coll.Pending, error) { return coll.StartReduce(c, s.op, s.root, dst, src) })
		if r != s.root {
			return errors.Join(err, same("source", src, all[r]))
		}
	case "allreduce":
		want = fold(s.op, all)
		err = do(func() error { return coll.AllReduce(ctx, c, s.op, dst, src) },
			func() (*coll.Pending, error) { return coll.StartAllReduce(c, s.op, dst, src) })
	case "scan":
		want = fold(s.op, all[:r+1])
		err = do(func() error { return coll.Scan(ctx, c, s.op, dst, src) },
			func() (*coll.Pending, error) { return coll.StartScan(c, s.op, dst, src) })
	case "exclusive scan":
		want = identity[T](s.op, s.n)
		if r > 0 {
			want = fold(s.op, all[:r])
		}
		err = do(func() error { return coll.ExclusiveScan(ctx, c, s.op, dst, src) },
			func() (*coll.Pending, error) { return coll.StartExclusiveScan(c, s.op, dst, src) })
	default:
		return fmt.Errorf("no call %q", s.call)
	}
	return errors.Join(err, same(s.call, dst, want))
}

type pend struct{ p *coll.Pending }

func (p *pend) wait(ctx context.Context, err error) error {
	if err != nil {
		return err
	}
	return p.p.Wait(ctx)
}

func concat[T any](rows [][]T) []T {
	var out []T
	for _, r := range rows {
		out = append(out, r...)
	}
	return out
}

// column is block i of every row.
func column[T any](rows [][]T, i, n int) [][]T {
	out := make([][]T, len(rows))
	for k, r := range rows {
		out[k] = r[i*n : (i+1)*n]
	}
	return out
}

// typed runs a call with elements of a type by number.
func typed(ctx context.Context, c *coll.Comm, g *ground, s spec, t int) error {
	runs := runners()
	r := runs[t%len(runs)]
	if s.op >= coll.And && !r.integer {
		s.op = coll.Sum
	}
	if err := r.run(ctx, c, g, s); err != nil {
		return fmt.Errorf("%s of %s: %w", s, r.name, err)
	}
	return nil
}

type myInt int32 // a named type works as its underlying one

type runner struct {
	name    string
	integer bool
	run     func(ctx context.Context, c *coll.Comm, g *ground, s spec) error
}

func runners() []runner {
	return []runner{
		{"int8", true, run[int8]},
		{"int16", true, run[int16]},
		{"int32", true, run[int32]},
		{"int64", true, run[int64]},
		{"int", true, run[int]},
		{"uint8", true, run[uint8]},
		{"uint16", true, run[uint16]},
		{"uint32", true, run[uint32]},
		{"uint64", true, run[uint64]},
		{"uint", true, run[uint]},
		{"float32", false, run[float32]},
		{"float64", false, run[float64]},
		{"bf16", false, run[coll.BF16]},
		{"named int32", true, run[myInt]},
	}
}
