package coll

import (
	"context"

	"goshmem/heap"
)

// FCollect brings every member's src into dst at every member, in the order of
// ranks (an allgather); dst has Size times as many elements as src. src may be
// this PE's own block of dst.
func FCollect[T heap.Elem](ctx context.Context, c *Comm, dst, src []T) error {
	if err := c.enter(ctx, "fcollect"); err != nil {
		return err
	}
	f := &c.core.flow
	return c.run(ctx, f, f.fcollect(c, bytesOf(dst), bytesOf(src), elemBytes[T]()))
}

// StartFCollect begins an FCollect.
func StartFCollect[T heap.Elem](c *Comm, dst, src []T) (*Pending, error) {
	return c.startFlow("fcollect", func(f *flow) error {
		return f.fcollect(c, bytesOf(dst), bytesOf(src), elemBytes[T]())
	})
}

func (f *flow) fcollect(c *Comm, dst, src []byte, elem int) error {
	f.reset("fcollect", sign(kindFCollect, 0, uint8(elem), 0, len(src)))
	n := len(src)
	err := wantBytes("destination", dst, n*c.n, elem)
	if err == nil {
		err = ownBlock(dst, src, c.rank)
	}
	if err != nil {
		return err
	}
	for q := range c.n {
		if q == c.rank {
			f.selfDst, f.selfSrc = block(dst, q, n), src
			continue
		}
		f.send(q, src)
		f.recv(q, block(dst, q, n))
	}
	return nil
}
