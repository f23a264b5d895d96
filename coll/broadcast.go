package coll

import (
	"context"

	"goshmem/heap"
)

// Broadcast copies buf of root to buf of every member.
func Broadcast[T heap.Elem](ctx context.Context, c *Comm, root int, buf []T) error {
	if err := c.enter(ctx, "broadcast"); err != nil {
		return err
	}
	f := &c.core.flow
	return c.run(ctx, f, f.broadcast(c, root, bytesOf(buf), elemBytes[T]()))
}

// StartBroadcast begins a Broadcast.
func StartBroadcast[T heap.Elem](c *Comm, root int, buf []T) (*Pending, error) {
	return c.startFlow("broadcast", func(f *flow) error {
		return f.broadcast(c, root, bytesOf(buf), elemBytes[T]())
	})
}

func (f *flow) broadcast(c *Comm, root int, buf []byte, elem int) error {
	f.reset("broadcast", sign(kindBroadcast, 0, uint8(elem), root, len(buf)))
	if err := c.checkRoot(root); err != nil {
		return err
	}
	t := c.tree(root, len(buf))
	if p := t.parent[c.rank]; p >= 0 {
		f.relay = p
		f.recv(p, buf)
	}
	for _, q := range t.children {
		f.send(q, buf)
	}
	return nil
}
