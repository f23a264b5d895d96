package coll

import (
	"context"

	"goshmem/heap"
)

// Gather brings every member's src into dst at root, in the order of ranks; dst
// has Size times as many elements as src. At the others dst is not used.
// At root src may be its own block of dst.
func Gather[T heap.Elem](ctx context.Context, c *Comm, root int, dst, src []T) error {
	if err := c.enter(ctx, "gather"); err != nil {
		return err
	}
	f := &c.core.flow
	return c.run(ctx, f, f.gather(c, root, bytesOf(dst), bytesOf(src), elemBytes[T]()))
}

// StartGather begins a Gather.
func StartGather[T heap.Elem](c *Comm, root int, dst, src []T) (*Pending, error) {
	return c.startFlow("gather", func(f *flow) error {
		return f.gather(c, root, bytesOf(dst), bytesOf(src), elemBytes[T]())
	})
}

func (f *flow) gather(c *Comm, root int, dst, src []byte, elem int) error {
	f.reset("gather", sign(kindGather, 0, uint8(elem), root, len(src)))
	err := c.checkRoot(root)
	if err != nil || c.rank != root {
		if err == nil {
			f.send(root, src)
		}
		return err
	}
	n := len(src)
	if err = wantBytes("destination", dst, n*c.n, elem); err == nil {
		err = ownBlock(dst, src, c.rank)
	}
	if err != nil {
		return err
	}
	for q := range c.n {
		if q == root {
			f.selfDst, f.selfSrc = block(dst, q, n), src
		} else {
			f.recv(q, block(dst, q, n))
		}
	}
	return nil
}

// Scatter sends block i of src at root to member i's dst; src has Size times as
// many elements as dst. At the others src is not used. At root dst may be its own
// block of src.
func Scatter[T heap.Elem](ctx context.Context, c *Comm, root int, dst, src []T) error {
	if err := c.enter(ctx, "scatter"); err != nil {
		return err
	}
	f := &c.core.flow
	return c.run(ctx, f, f.scatter(c, root, bytesOf(dst), bytesOf(src), elemBytes[T]()))
}

// StartScatter begins a Scatter.
func StartScatter[T heap.Elem](c *Comm, root int, dst, src []T) (*Pending, error) {
	return c.startFlow("scatter", func(f *flow) error {
		return f.scatter(c, root, bytesOf(dst), bytesOf(src), elemBytes[T]())
	})
}

func (f *flow) scatter(c *Comm, root int, dst, src []byte, elem int) error {
	f.reset("scatter", sign(kindScatter, 0, uint8(elem), root, len(dst)))
	err := c.checkRoot(root)
	if err != nil || c.rank != root {
		if err == nil {
			f.recv(root, dst)
		}
		return err
	}
	n := len(dst)
	if err = wantBytes("source", src, n*c.n, elem); err == nil {
		err = ownBlock(src, dst, c.rank)
	}
	if err != nil {
		return err
	}
	for q := range c.n {
		if q == root {
			f.selfDst, f.selfSrc = dst, block(src, q, n)
		} else {
			f.send(q, block(src, q, n))
		}
	}
	return nil
}

// ownBlock refuses a small buffer that shares bytes with a large one, unless it
// is block r of it.
func ownBlock(large, small []byte, r int) error {
	if same, _ := overlap(block(large, r, len(small)), small); same {
		return nil
	}
	return apart(large, small)
}
