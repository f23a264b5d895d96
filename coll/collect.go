package coll

import (
	"context"
	"encoding/binary"
	"fmt"

	"goshmem/heap"
	"goshmem/pe"
)

// Collect brings every member's src, of any length, into dst at every member, one
// after the other in the order of ranks (an allgatherv). counts, if not nil, must
// have Size elements and gets how many came from each member. dst may be longer
// than what comes; if it is too short at a member the call fails with ErrRange.
// dst and src must not overlap.
func Collect[T heap.Elem](ctx context.Context, c *Comm, dst, src []T, counts []int) error {
	if err := c.enter(ctx, "collect"); err != nil {
		return err
	}
	k := &c.core.collect
	return c.run(ctx, k, k.set(c, bytesOf(dst), bytesOf(src), elemBytes[T](), counts))
}

// StartCollect begins a Collect.
func StartCollect[T heap.Elem](c *Comm, dst, src []T, counts []int) (*Pending, error) {
	if c == nil {
		return nil, wrap("coll: start collect", errNoComm)
	}
	k := new(collect)
	k.make(c.n)
	return c.start(k, k.set(c, bytesOf(dst), bytesOf(src), elemBytes[T](), counts))
}

// collect has two parts: the members tell their lengths, then they send.
type collect struct {
	flow
	lens     []byte // of each member, 8 bytes each
	dst, src []byte
	elem     int
	second   bool
	out      []int
}

func (k *collect) make(n int) {
	k.flow.make(n)
	k.lens = make([]byte, 8*n)
}

func (k *collect) set(c *Comm, dst, src []byte, elem int, counts []int) error {
	k.reset("collect", sign(kindCollect, 0, uint8(elem), 0, 0))
	k.dst, k.src, k.elem, k.second, k.out = dst, src, elem, false, counts
	if counts != nil && len(counts) != c.n {
		return fmt.Errorf("%d counts for %d members: %w", len(counts), c.n, pe.ErrRange)
	}
	if err := apart(dst, src); err != nil {
		return err
	}
	own := block(k.lens, c.rank, 8)
	binary.LittleEndian.PutUint64(own, uint64(len(src)))
	for q := range c.n {
		if q != c.rank {
			k.send(q, own)
			k.recv(q, block(k.lens, q, 8))
		}
	}
	return nil
}

func (k *collect) step(c *Comm) (bool, error) {
	done, err := k.flow.step(c)
	if !done || err != nil {
		return false, err
	}
	if k.second {
		for q := range k.out {
			k.out[q] = int(k.len(q)) / k.elem
		}
		return true, nil
	}
	k.second = true
	c.moved = true
	return false, k.arrange(c)
}

func (k *collect) len(q int) uint64 { return binary.LittleEndian.Uint64(k.lens[8*q:]) }

// arrange prepares the second part: everybody's place follows from the lengths.
func (k *collect) arrange(c *Comm) error {
	at, room := uint64(0), uint64(len(k.dst))
	for q := range c.n {
		n := k.len(q)
		if n > room-at || n%uint64(k.elem) != 0 {
			return fmt.Errorf("destination of %d elements is too short for those of pe %d: %w", len(k.dst)/k.elem, c.world[q], pe.ErrRange)
		}
		at += n
	}
	k.reset("collect", k.sig)
	k.part = flagPart
	at = 0
	for q := range c.n {
		d := k.dst[at:][:k.len(q)]
		at += k.len(q)
		if q == c.rank {
			k.selfDst, k.selfSrc = d, k.src
			continue
		}
		k.send(q, k.src)
		k.recv(q, d)
	}
	return nil
}
