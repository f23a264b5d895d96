package coll

import (
	"context"

	"goshmem/coll/internal/reduce"
)

// Reduce combines the members' src element by element into dst at root: see the
// package documentation for the order. dst may be src. At the others dst is not
// used.
func Reduce[T Number](ctx context.Context, c *Comm, op Op, root int, dst, src []T) error {
	if err := c.enter(ctx, "reduce"); err != nil {
		return err
	}
	r := &c.core.red
	return c.run(ctx, r, r.reduce(c, arithmetic{reduce.Op(op), typeOf[T]()}, root, bytesOf(dst), bytesOf(src)))
}

// StartReduce begins a Reduce.
func StartReduce[T Number](c *Comm, op Op, root int, dst, src []T) (*Pending, error) {
	return c.startReduction("reduce", func(r *reduction) error {
		return r.reduce(c, arithmetic{reduce.Op(op), typeOf[T]()}, root, bytesOf(dst), bytesOf(src))
	})
}

func (r *reduction) reduce(c *Comm, how arithmetic, root int, dst, src []byte) error {
	r.reset("reduce", sign(kindReduce, uint8(how.op), uint8(how.typ), root, len(src)), how, dst, src)
	if err := how.check(); err != nil {
		return err
	}
	if err := c.checkRoot(root); err != nil {
		return err
	}
	if c.rank != root {
		r.rs[root].set(src)
		return nil
	}
	if err := wantBytes("destination", dst, len(src), how.size()); err != nil {
		return err
	}
	if err := apartOrSame(dst, src); err != nil {
		return err
	}
	r.fold(dst, src, 0, c.n)
	return nil
}

// AllReduce is Reduce with the result at every member. dst may be src.
func AllReduce[T Number](ctx context.Context, c *Comm, op Op, dst, src []T) error {
	if err := c.enter(ctx, "allreduce"); err != nil {
		return err
	}
	r := &c.core.red
	return c.run(ctx, r, r.allreduce(c, arithmetic{reduce.Op(op), typeOf[T]()}, bytesOf(dst), bytesOf(src)))
}

// StartAllReduce begins an AllReduce.
func StartAllReduce[T Number](c *Comm, op Op, dst, src []T) (*Pending, error) {
	return c.startReduction("allreduce", func(r *reduction) error {
		return r.allreduce(c, arithmetic{reduce.Op(op), typeOf[T]()}, bytesOf(dst), bytesOf(src))
	})
}

func (r *reduction) allreduce(c *Comm, how arithmetic, dst, src []byte) error {
	r.reset("allreduce", sign(kindAllReduce, uint8(how.op), uint8(how.typ), 0, len(src)), how, dst, src)
	if err := how.check(); err != nil {
		return err
	}
	if err := wantBytes("destination", dst, len(src), how.size()); err != nil {
		return err
	}
	if err := apartOrSame(dst, src); err != nil {
		return err
	}
	if everyoneFolds(c.geo, len(src), c.core.piece) {
		r.fold(dst, src, 0, c.n)
		for q := range c.n {
			if q != c.rank {
				r.rs[q].set(src)
			}
		}
		return nil
	}
	per := blockBytes(c.geo, len(src))
	part := func(b []byte, q int) []byte { return b[min(q*per, len(b)):min((q+1)*per, len(b))] }
	mine := part(src, c.rank)
	if len(mine) > 0 {
		r.fold(part(dst, c.rank), mine, 0, c.n)
	}
	for q := range c.n {
		if q == c.rank {
			continue
		}
		if len(mine) > 0 {
			r.ag[q].set(part(dst, c.rank))
		}
		if theirs := part(src, q); len(theirs) > 0 {
			r.rs[q].set(theirs)
			r.in[q].set(part(dst, q))
		}
	}
	return nil
}

// everyoneFolds chooses how to allreduce: everybody sends everything to everybody
// and folds it all, in one step; or some fold a block each and send it to all,
// which takes two steps and moves less. Where PEs share cores, what all of them do
// together takes the time, and messages more than steps.
func everyoneFolds(g geometry, bytes, piece int) bool {
	if g.crowded && g.n > 3 {
		return false
	}
	return bytes <= piece && (g.n-1)*bytes <= 32*kib
}

// blockBytes is the length of the blocks that members fold, whole cache lines; the
// last ones may be short or empty. Where PEs share cores short vectors are not cut
// into many: with one block there are 2n messages, with n there are n^2.
func blockBytes(g geometry, bytes int) int {
	per := (bytes + g.n - 1) / g.n
	if g.crowded {
		per = max(per, 8*kib)
	}
	return int(roundUp(int64(per)))
}

// ReduceScatter combines block r of the members' src into dst of member r; src
// has Size times as many elements as dst. dst may be this PE's own block of src.
func ReduceScatter[T Number](ctx context.Context, c *Comm, op Op, dst, src []T) error {
	if err := c.enter(ctx, "reduce-scatter"); err != nil {
		return err
	}
	r := &c.core.red
	return c.run(ctx, r, r.reduceScatter(c, arithmetic{reduce.Op(op), typeOf[T]()}, bytesOf(dst), bytesOf(src)))
}

// StartReduceScatter begins a ReduceScatter.
func StartReduceScatter[T Number](c *Comm, op Op, dst, src []T) (*Pending, error) {
	return c.startReduction("reduce-scatter", func(r *reduction) error {
		return r.reduceScatter(c, arithmetic{reduce.Op(op), typeOf[T]()}, bytesOf(dst), bytesOf(src))
	})
}

func (r *reduction) reduceScatter(c *Comm, how arithmetic, dst, src []byte) error {
	r.reset("reduce-scatter", sign(kindReduceScatter, uint8(how.op), uint8(how.typ), 0, len(dst)), how, dst, src)
	if err := how.check(); err != nil {
		return err
	}
	n := len(dst)
	if err := wantBytes("source", src, n*c.n, how.size()); err != nil {
		return err
	}
	if err := ownBlock(src, dst, c.rank); err != nil {
		return err
	}
	r.fold(dst, block(src, c.rank, n), 0, c.n)
	for q := range c.n {
		if q != c.rank {
			r.rs[q].set(block(src, q, n))
		}
	}
	return nil
}

// startReduction starts a reduction that prepare fills in.
func (c *Comm) startReduction(name string, prepare func(r *reduction) error) (*Pending, error) {
	if c == nil {
		return nil, wrap("coll: start "+name, errNoComm)
	}
	r := &reduction{call: name}
	r.make(c.n)
	return c.start(r, prepare(r))
}
