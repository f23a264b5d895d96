package main

import (
	"context"
	"fmt"

	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// ring is an allreduce (a sum) along a ring of the team's members: in n-1 steps
// each block goes once round and collects everybody's part, in another n-1 steps
// the sums go round.
//
// A member writes into its right neighbour's inbox only, which has two slots used
// in turn. Two signals keep the two apart for ever: data counts what the left
// neighbour wrote here, free counts what the right neighbour took out of what was
// written there. Both only grow, so nothing is reset between calls, and a
// neighbour that is a call ahead waits like any other. The waits name nobody
// (rma.From), so the loss of any member ends them at every member.
type ring struct {
	team        *pe.Team
	c           *pe.Context
	left, right int

	inbox heap.Array[float64] // two slots of block elements
	sigs  heap.Signals        // data, free
	block int

	sent, taken uint64 // messages so far
}

const slots = 2

// newRing makes the ring for vectors of up to elems elements. Collective over the
// team: all symmetric memory is allocated here, never in a call.
func newRing(ctx context.Context, team *pe.Team, elems int) (*ring, error) {
	n := team.Size()
	r := &ring{
		team: team, left: (team.Rank() - 1 + n) % n, right: (team.Rank() + 1) % n,
		block: max(1, (elems+n-1)/n),
	}
	var err error
	// A context of its own: its lanes are ordered, and nobody else's operations
	// are in them.
	if r.c, err = team.NewContext(ctx); err != nil {
		return nil, err
	}
	bytes := int64(slots*r.block) * heap.ElemSize[float64]()
	ref, err := team.AllocMem(ctx, bytes, 64)
	if err != nil {
		return nil, err
	}
	if r.inbox, err = pe.ArrayAt[float64](team.PE(), ref, slots*r.block); err != nil {
		return nil, err
	}
	r.sigs, err = team.AllocSignals(ctx, 2)
	return r, err
}

// allReduce replaces x by the sum over the members. Collective.
func (r *ring) allReduce(ctx context.Context, x []float64) error {
	n, me := r.team.Size(), r.team.Rank()
	per := (len(x) + n - 1) / n
	if per > r.block {
		return fmt.Errorf("ring: %d elements, made for %d: %w", len(x), r.block*n, pe.ErrRange)
	}
	part := func(i int) []float64 {
		i = (i + 2*n) % n
		return x[min(i*per, len(x)):min((i+1)*per, len(x))]
	}
	for step := range n - 1 {
		if err := r.send(ctx, part(me-step)); err != nil {
			return err
		}
		if err := r.take(ctx, part(me-step-1), func(dst, got []float64) {
			for i, v := range got {
				dst[i] += v
			}
		}); err != nil {
			return err
		}
	}
	for step := range n - 1 {
		if err := r.send(ctx, part(me+1-step)); err != nil {
			return err
		}
		if err := r.take(ctx, part(me-step), func(dst, got []float64) { copy(dst, got) }); err != nil {
			return err
		}
	}
	return nil
}

// send puts a block into the right neighbour's next slot, once that is free.
func (r *ring) send(ctx context.Context, b []float64) error {
	data, free := r.sigs.At(0), r.sigs.At(1)
	if r.sent >= slots {
		// The slot was used before, slots messages ago: it must have been taken out.
		if err := rma.WaitSignal(ctx, r.c, free, rma.GE, r.sent-slots+1); err != nil {
			return err
		}
	}
	at := int(r.sent%slots) * r.block
	r.sent++
	// The signal is seen after the payload, wherever the two travel.
	return rma.PutSignal(r.c, r.inbox.Slice(at, at+r.block), b, data, rma.SignalAdd, 1, r.right)
}

// take waits for the left neighbour's next block, uses it, and gives its slot
// back.
func (r *ring) take(ctx context.Context, dst []float64, use func(dst, got []float64)) error {
	data, free := r.sigs.At(0), r.sigs.At(1)
	if err := rma.WaitSignal(ctx, r.c, data, rma.GE, r.taken+1); err != nil {
		return err
	}
	at := int(r.taken%slots) * r.block
	r.taken++
	use(dst, r.inbox.Local()[at:at+len(dst)])
	return rma.Signal(r.c, free, rma.SignalAdd, 1, r.left)
}

// free gives the memory back. Collective.
func (r *ring) free(ctx context.Context) error {
	if err := r.team.FreeMem(ctx, r.inbox.Ref()); err != nil {
		return err
	}
	if err := r.team.FreeMem(ctx, r.sigs.Ref()); err != nil {
		return err
	}
	return r.c.Free(ctx)
}
