package coll

import (
	"context"

	"goshmem/heap"
)

// AllToAll sends block i of src to member i, into block r of its dst, where r is
// this PE's rank. All blocks have len(src)/Size elements. dst and src must not
// overlap.
func AllToAll[T heap.Elem](ctx context.Context, c *Comm, dst, src []T) error {
	if err := c.enter(ctx, "alltoall"); err != nil {
		return err
	}
	f := &c.core.flow
	return c.run(ctx, f, f.alltoall(c, bytesOf(dst), bytesOf(src), elemBytes[T]()))
}

// StartAllToAll begins an AllToAll.
func StartAllToAll[T heap.Elem](c *Comm, dst, src []T) (*Pending, error) {
	return c.startFlow("alltoall", func(f *flow) error {
		return f.alltoall(c, bytesOf(dst), bytesOf(src), elemBytes[T]())
	})
}

func (f *flow) alltoall(c *Comm, dst, src []byte, elem int) error {
	f.reset("alltoall", sign(kindAllToAll, 0, uint8(elem), 0, len(src)))
	n, err := share("source", src, c.n, elem)
	if err == nil {
		err = wantBytes("destination", dst, len(src), elem)
	}
	if err == nil {
		err = apart(dst, src)
	}
	if err != nil {
		return err
	}
	f.exchange(c, dst, src, n)
	return nil
}

// exchange sends block i of src to member i and receives its block; n bytes each.
func (f *flow) exchange(c *Comm, dst, src []byte, n int) {
	for q := range c.n {
		if q == c.rank {
			f.selfDst, f.selfSrc = block(dst, q, n), block(src, q, n)
			continue
		}
		f.send(q, block(src, q, n))
		f.recv(q, block(dst, q, n))
	}
}
