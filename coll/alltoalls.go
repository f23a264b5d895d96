package coll

import (
	"context"
	"fmt"
	"math"

	"goshmem/heap"
	"goshmem/pe"
)

// AllToAllS is AllToAll of strided blocks: element k of the block for member i is
// src[(i*n+k)*srcStride], and that from member i goes to dst[(i*n+k)*dstStride].
// Strides are in elements, at least 1, and may differ between members. Elements
// between are left alone. dst and src must not overlap.
func AllToAllS[T heap.Elem](ctx context.Context, c *Comm, dst, src []T, dstStride, srcStride, n int) error {
	if err := c.enter(ctx, "alltoalls"); err != nil {
		return err
	}
	s := &c.core.strided
	s.flow, s.buf = &c.core.flow, &c.core.pack
	return c.run(ctx, s, s.set(c, bytesOf(dst), bytesOf(src), dstStride, srcStride, n, elemBytes[T]()))
}

// StartAllToAllS begins an AllToAllS.
func StartAllToAllS[T heap.Elem](c *Comm, dst, src []T, dstStride, srcStride, n int) (*Pending, error) {
	if c == nil {
		return nil, wrap("coll: start alltoalls", errNoComm)
	}
	s := &strided{flow: &flow{}, buf: new([]byte)}
	s.make(c.n)
	return c.start(s, s.set(c, bytesOf(dst), bytesOf(src), dstStride, srcStride, n, elemBytes[T]()))
}

// strided is an alltoall between buffers with holes: it is packed before and
// unpacked afterwards, where the strides are not 1.
type strided struct {
	*flow
	buf          *[]byte // packed source and destination
	dst, from    []byte  // to unpack
	stride, elem int
}

func (s *strided) set(c *Comm, dst, src []byte, dstStride, srcStride, n, elem int) error {
	s.reset("alltoalls", sign(kindAllToAllS, 0, uint8(elem), 0, n))
	span := func(what string, b []byte, stride int) error {
		switch {
		case stride < 1:
			return fmt.Errorf("%s stride %d: %w", what, stride, pe.ErrRange)
		case n < 0:
			return fmt.Errorf("%d elements: %w", n, pe.ErrRange)
		case n == 0:
			return nil
		case n > math.MaxInt/c.n/elem/stride:
			return fmt.Errorf("%d elements for %d members, %d apart: %w", n, c.n, stride, pe.ErrRange)
		}
		if last := (n*c.n - 1) * stride; last >= len(b)/elem {
			return fmt.Errorf("%s has %d elements, the last is number %d: %w", what, len(b)/elem, last, pe.ErrRange)
		}
		return nil
	}
	err := span("source", src, srcStride)
	if err == nil {
		err = span("destination", dst, dstStride)
	}
	if err == nil {
		err = apart(dst, src)
	}
	if err != nil {
		return err
	}
	total := n * c.n * elem
	need := 0
	if srcStride > 1 {
		need += total
	}
	if dstStride > 1 {
		need += total
	}
	if cap(*s.buf) < need {
		*s.buf = make([]byte, need)
	}
	pack := (*s.buf)[:need]
	if srcStride > 1 {
		restride(pack, src, 1, srcStride, n*c.n, elem)
		src, pack = pack[:total], pack[total:]
	}
	s.dst, s.from, s.stride, s.elem = nil, nil, dstStride, elem
	if dstStride > 1 {
		s.dst, s.from = dst, pack
		dst = pack
	}
	s.exchange(c, dst[:total], src[:total], n*elem)
	return nil
}

func (s *strided) step(c *Comm) (bool, error) {
	done, err := s.flow.step(c)
	if done && s.dst != nil {
		restride(s.dst, s.from, s.stride, 1, len(s.from)/s.elem, s.elem)
		s.dst = nil
	}
	return done, err
}

// restride copies n elements between strides.
func restride(dst, src []byte, dstStride, srcStride, n, elem int) {
	switch elem {
	case 1:
		restrideOf[uint8](dst, src, dstStride, srcStride, n)
	case 2:
		restrideOf[uint16](dst, src, dstStride, srcStride, n)
	case 4:
		restrideOf[uint32](dst, src, dstStride, srcStride, n)
	case 8:
		restrideOf[uint64](dst, src, dstStride, srcStride, n)
	default:
		for i := range n {
			copy(dst[i*dstStride*elem:][:elem], src[i*srcStride*elem:])
		}
	}
}
