package main

import (
	"context"

	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// tree is a broadcast along a binomial tree, in pieces: a member passes a piece
// on as soon as it has it, so all levels work at once.
//
// Who is whose parent changes with the root, so every pair of members has a slot
// and a pair of signals: data[i] here counts pieces from member i, free[i] pieces
// that member i took from this one.
type tree struct {
	team  *pe.Team
	c     *pe.Context
	piece int

	inbox heap.Ref // a piece of each member
	sigs  heap.Signals
	mem   []byte

	sent, taken []uint64 // by member
}

// newTree makes the tree. Collective over the team.
func newTree(ctx context.Context, team *pe.Team, piece int) (*tree, error) {
	n := team.Size()
	t := &tree{team: team, piece: piece, sent: make([]uint64, n), taken: make([]uint64, n)}
	var err error
	if t.c, err = team.NewContext(ctx); err != nil {
		return nil, err
	}
	if t.inbox, err = team.AllocMem(ctx, int64(n*piece), 64); err != nil {
		return nil, err
	}
	if t.mem, err = team.PE().LocalBytes(t.inbox, n*piece); err != nil {
		return nil, err
	}
	t.sigs, err = team.AllocSignals(ctx, 2*n)
	return t, err
}

func (t *tree) data(member int) heap.Signal { return t.sigs.At(member) }

func (t *tree) room(member int) heap.Signal { return t.sigs.At(t.team.Size() + member) }

// broadcast copies b of root to everybody. Collective, with the same length.
func (t *tree) broadcast(ctx context.Context, root int, b []byte) error {
	n, me := t.team.Size(), t.team.Rank()
	// Counted from the root, member v's parent is v without its lowest bit; its
	// children have one lower bit more.
	v := (me - root + n) % n
	member := func(v int) int { return (v + root) % n }
	low := n // the root has all bits below free
	if v != 0 {
		low = v & -v
	}
	for len(b) > 0 {
		k := min(t.piece, len(b))
		if v != 0 {
			if err := t.take(ctx, member(v&(v-1)), b[:k]); err != nil {
				return err
			}
		}
		for bit := highest(n); bit > 0; bit >>= 1 { // the largest subtree first
			if bit < low && v+bit < n {
				if err := t.send(ctx, member(v+bit), b[:k]); err != nil {
					return err
				}
			}
		}
		b = b[k:]
	}
	return nil
}

// highest is the highest bit of numbers below n.
func highest(n int) int {
	bit := 1
	for bit*2 < n {
		bit *= 2
	}
	return bit
}

func (t *tree) send(ctx context.Context, to int, b []byte) error {
	// The last piece sent there must have been taken out of the slot.
	if err := rma.WaitSignal(ctx, t.c, t.room(to), rma.GE, t.sent[to]); err != nil {
		return err
	}
	t.sent[to]++
	me := t.team.Rank()
	return rma.PutMemSignal(t.c, t.inbox.Add(uint64(me*t.piece)), b, t.data(me), rma.SignalAdd, 1, to)
}

func (t *tree) take(ctx context.Context, from int, b []byte) error {
	t.taken[from]++
	if err := rma.WaitSignal(ctx, t.c, t.data(from), rma.GE, t.taken[from]); err != nil {
		return err
	}
	copy(b, t.mem[from*t.piece:])
	return rma.Signal(t.c, t.room(t.team.Rank()), rma.SignalAdd, 1, from)
}

// free gives the memory back. Collective.
func (t *tree) free(ctx context.Context) error {
	if err := t.team.FreeMem(ctx, t.inbox); err != nil {
		return err
	}
	if err := t.team.FreeMem(ctx, t.sigs.Ref()); err != nil {
		return err
	}
	return t.c.Free(ctx)
}
