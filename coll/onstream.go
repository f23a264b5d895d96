package coll

import (
	"fmt"

	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// Streamed is collectives on device memory in the order of a stream: calls enqueue
// and return, may be captured in a graph, and say what went wrong by the stream's Err.
// It is used by one goroutine at a time.
type Streamed struct {
	s     *rma.Stream
	parts []rma.Part
}

// NewStreamed makes collectives of the members of a stream's team, MaxExchange of
// package rma at most. It takes nothing that had to be given back.
func NewStreamed(s *rma.Stream) (*Streamed, error) {
	if s == nil {
		return nil, fmt.Errorf("coll: collectives on a stream: no stream: %w", pe.ErrConfig)
	}
	if s.Size() > rma.MaxExchange {
		return nil, fmt.Errorf("coll: collectives on a stream: %d members, %d at most: %w", s.Size(), rma.MaxExchange, pe.ErrCapacity)
	}
	return &Streamed{s: s, parts: make([]rma.Part, s.Size())}, nil
}

// AllToAllV is AllToAllVMem on device memory: both src and dst are of the device heap.
// dst is written from when the member's stream has come to its call.
func (x *Streamed) AllToAllV(dst heap.Ref, recvCounts, recvDispls []int, src heap.Ref, sendCounts, sendDispls []int) error {
	const op = "coll: alltoallv on a stream"
	n := len(x.parts)
	for _, v := range [][]int{recvCounts, recvDispls, sendCounts, sendDispls} {
		if v != nil && len(v) != n {
			return fmt.Errorf("%s: %d counts or displacements for %d members: %w", op, len(v), n, pe.ErrConfig)
		}
		for i, k := range v {
			if k < 0 {
				return fmt.Errorf("%s: member %d: count or displacement %d: %w", op, i, k, pe.ErrRange)
			}
		}
	}
	if recvCounts == nil || sendCounts == nil {
		return fmt.Errorf("%s: no counts: %w", op, pe.ErrConfig)
	}
	from, to := uint64(0), uint64(0)
	for i := range n {
		if sendDispls != nil {
			from = uint64(sendDispls[i])
		}
		if recvDispls != nil {
			to = uint64(recvDispls[i])
		}
		x.parts[i] = rma.Part{Src: rma.At(src.Add(from), int64(sendCounts[i])), Dst: dst.Add(to), N: uint64(recvCounts[i])}
		from += uint64(sendCounts[i])
		to += uint64(recvCounts[i])
	}
	if err := x.s.Exchange(x.parts); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}
