package moe

import (
	"context"
	"fmt"
	"sync/atomic"

	"goshmem/heap"
	"goshmem/moe/internal/plan"
	"goshmem/pe"
	"goshmem/rma"
)

// slot is the memory of one dispatch in flight and what its calls need. Calls on
// a slot follow each other and are numbered from 1; call q is the same one on
// every rank.
//
// A call has up to two rounds. In the first every rank puts its head (what it
// calls, whether it can, a dispatch also its counts) to every other one. In the
// second the data follow, straight to where they belong. Each round ends with
// one signal from each rank to each, set to a number that grows with q.
//
// Why nothing is overwritten that is still in use:
//
//   - Whoever has finished call q has had a signal of call q from every rank, so
//     all of them have begun q and finished q-1. Heads of call q therefore may
//     overwrite those of q-2; there are two sets, by parity.
//   - Rows and records of call q are put after the heads of all ranks have come,
//     and a rank sends its head when it no longer uses what is in the slot.
//   - Results are put to a rank that has finished its previous combine on the
//     slot. If the call before was a dispatch, its heads have shown that;
//     otherwise the combine has a first round of its own.
//   - Rows that a rank passes on within its node (see spread.go) go to ranks whose heads
//     of this call have come to their source, and so are in use nowhere. Who has finished
//     a dispatch has heard from its whole node that it has passed on everything.
//   - A rank can be one call ahead of another, and then its data signal shows the
//     number of that call: the one waited for went well.
type slot struct {
	e       *Engine
	c       *pe.Context
	base    heap.Ref
	mem     []byte // the same, of this rank
	signals heap.Signals
	piece   int // the most bytes to put at once

	busy  bool          // guarded by Engine.mu
	epoch atomic.Uint64 // the call that delivered the rows here; 0: there are none

	// Of the call in progress.
	seq     uint64
	bulk    bool     // it puts so much that the caches are no help
	granted bool     // every rank is known to have finished its last combine here
	routing *Routing // of the rows here
	matrix  plan.Matrix
	homing  plan.Homing
	head    []byte
	records []byte
	lists   []byte
	share   []byte
	ranks   []int32
	found   []result
	acc     []float32
}

func newSlot(e *Engine, i int, c *pe.Context, local []byte) *slot {
	at := e.arena.slots + int64(i)*e.arena.sizes.Slot
	per := e.arena.signals
	s := &slot{
		e: e, c: c,
		base:    e.mem.Add(uint64(at)),
		mem:     local[at : at+e.arena.sizes.Slot : at+e.arena.sizes.Slot],
		signals: heap.MakeSignals(e.mem, e.p.Slots*per).Slice(i*per, (i+1)*per),
		piece:   pieceFor(c.InlineMax()),
		head:    make([]byte, e.arena.sizes.HeadBytes),
	}
	return s
}

// pieceFor keeps non-blocking puts below the size from which they are queued
// even where the caller could do them itself.
func pieceFor(inlineMax int) int {
	const least, most = 4 << 10, 1 << 20
	n := (inlineMax - 1) &^ 127
	if n < least || n > most {
		return most
	}
	return n
}

// word is the signal that a source sets in every rank's slot.
func (s *slot) word(w, source int) heap.Signal {
	return s.signals.At(w*s.e.p.Ranks + source)
}

// Data signals carry the call's number above a flag: the sender could not take
// part, and its head says why.
const (
	flagBits = 4
	refused  = 1
)

// A broken rank's last signal has these bits; below them the cause and the rank.
const poisonBits = uint64(0xffff) << 48

func poison(rank int, cause error) uint64 {
	return poisonBits | uint64(causeCode(cause))<<32 | uint64(uint32(rank))
}

// signal sets a word of ours at another rank, unless the engine is broken.
func (s *slot) signal(w int, v uint64, to int) error {
	return s.putSignal(0, nil, w, v, to)
}

// putSignal puts b at an offset of the slot, with a signal behind it.
func (s *slot) putSignal(at int64, b []byte, w int, v uint64, to int) error {
	s.e.sending.Lock()
	defer s.e.sending.Unlock()
	if b := s.e.broken.Load(); b != nil {
		return b
	}
	_, err := rma.PutMemSignalNBI(s.c, s.base.Add(uint64(at)), b, s.word(w, s.e.rank), rma.SignalSet, v, to)
	return err
}

// bulkMin is how many bytes a call puts from which on it does so past the caches.
const bulkMin = 6 << 20

// put puts b at an offset of the slot. b must stay as it is until quiet.
func (s *slot) put(at int64, b []byte, to int) error {
	if s.bulk {
		_, err := rma.PutMemStream(s.c, s.base.Add(uint64(at)), b, to)
		return err
	}
	for len(b) > 0 {
		n := min(len(b), s.piece)
		if _, err := rma.PutMemNBI(s.c, s.base.Add(uint64(at)), b[:n], to); err != nil {
			return err
		}
		at += int64(n)
		b = b[n:]
	}
	return nil
}

func (s *slot) quiet(ctx context.Context) error { return rma.Quiet(ctx, s.c) }

// await waits until a source's word reaches v, and returns it.
func (s *slot) await(ctx context.Context, w, source int, v uint64) (uint64, error) {
	sig := s.word(w, source)
	if err := rma.WaitSignal(ctx, s.c, sig, rma.GE, v, rma.From(source)); err != nil {
		return 0, err
	}
	have, err := rma.ReadSignal(s.c, sig)
	if err != nil {
		return 0, err
	}
	if have >= poisonBits {
		return 0, &BrokenError{
			PE:  int(uint32(have)),
			Err: fmt.Errorf("told by pe %d: %w", source, causeError(int(have>>32)&0xffff)),
		}
	}
	return have, nil
}

// refusal is an error that all ranks agree on: the call has come to nothing, the
// engine goes on.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }

// refuse is what a call returns for a fault of a rank, this one or another.
func (s *slot) refuse(rank int, f plan.Fault) error {
	err := faultError(f)
	if rank != s.e.rank {
		err = &RemoteError{PE: rank, Err: err}
	}
	return &refusal{err}
}

// settle turns the error of a call into what the user gets: a refusal as it is,
// anything else breaks the engine.
func (s *slot) settle(err error) error {
	switch err := err.(type) {
	case nil:
		return nil
	case *refusal:
		return err.err
	case *BrokenError:
		return s.e.fail(err.PE, err.Err)
	}
	return s.e.fail(s.e.rank, err)
}

// exchange is the first round: it sends h, with body behind it, to every rank
// and gives every rank's head to take. If some rank cannot take part, that is
// what it returns, on every rank.
func (s *slot) exchange(ctx context.Context, h plan.Head, counts *plan.Sent, take func(source int, h plan.Head, b []byte) plan.Fault) error {
	e := s.e
	h.Seq = s.seq
	h.Encode(s.head)
	n := int64(plan.ShortHead)
	if h.Fault.Code == plan.None && counts != nil {
		plan.EncodeCounts(s.head, counts)
		n = e.arena.sizes.HeadBytes
	}
	for i := range e.p.Ranks {
		to := (e.rank + i) % e.p.Ranks
		if err := s.putSignal(s.headAt(e.rank), s.head[:n], wordHead, s.seq, to); err != nil {
			return err
		}
	}
	verdict, at := h.Fault, e.rank
	for source := range e.p.Ranks {
		if _, err := s.await(ctx, wordHead, source, s.seq); err != nil {
			return err
		}
		f, err := s.readHead(source, h, take)
		if err != nil {
			return err
		}
		if f.Code != plan.None && verdict.Code == plan.None {
			verdict, at = f, source
			if f.Code == plan.OtherCall || f.Code == plan.OtherPlan {
				at = e.rank // every rank finds it by itself
			}
		}
	}
	if verdict.Code == plan.None {
		return nil
	}
	if err := s.quiet(ctx); err != nil {
		return err
	}
	s.granted = true
	return s.refuse(at, verdict)
}

func (s *slot) headAt(source int) int64 {
	return s.e.arena.sizes.HeadAt(s.seq, s.e.p.Ranks, source)
}

// readHead looks at what a source sent. mine is this rank's own head. A head that
// contradicts itself breaks the engine; what every rank sees alike is a fault.
func (s *slot) readHead(source int, mine plan.Head, take func(int, plan.Head, []byte) plan.Fault) (plan.Fault, error) {
	b := s.mem[s.headAt(source):][:s.e.arena.sizes.HeadBytes]
	h, ok := plan.DecodeHead(b)
	if !ok || h.Seq != s.seq {
		return plan.Fault{}, faultError(plan.Fault{Code: plan.Corrupt, A: int64(source)})
	}
	switch {
	case h.Fault.Code != plan.None:
		return h.Fault, nil
	case h.Call != mine.Call:
		return plan.Fault{Code: plan.OtherCall, A: int64(source), B: int64(h.Call), C: int64(mine.Call)}, nil
	case h.Plan != mine.Plan:
		return plan.Fault{Code: plan.OtherPlan, A: int64(source), B: int64(h.Plan), C: int64(mine.Plan)}, nil
	case take == nil || mine.Fault.Code != plan.None:
		return plan.Fault{}, nil
	}
	if f := take(source, h, b); f.Code != plan.None {
		return plan.Fault{}, faultError(f)
	}
	return plan.Fault{}, nil
}

// finish waits for everybody's data. A rank that could not take part is what it
// returns, as every rank does.
func (s *slot) finish(ctx context.Context, own plan.Fault) error {
	verdict, at := own, s.e.rank
	for source := range s.e.p.Ranks {
		have, err := s.await(ctx, wordData, source, s.seq<<flagBits)
		if err != nil {
			return err
		}
		if have != s.seq<<flagBits|refused || verdict.Code != plan.None {
			continue
		}
		h, ok := plan.DecodeHead(s.mem[s.headAt(source):][:plan.ShortHead])
		if !ok || h.Seq != s.seq || h.Fault.Code == plan.None {
			return faultError(plan.Fault{Code: plan.Corrupt, A: int64(source)})
		}
		verdict, at = h.Fault, source
	}
	if err := s.quiet(ctx); err != nil {
		return err
	}
	if verdict.Code != plan.None {
		return s.refuse(at, verdict)
	}
	return nil
}

// decline takes part in a second round without data: the others learn why.
func (s *slot) decline(h plan.Head) error {
	h.Seq = s.seq
	h.Encode(s.head)
	for i := range s.e.p.Ranks {
		to := (s.e.rank + i) % s.e.p.Ranks
		if err := s.putSignal(s.headAt(s.e.rank), s.head[:plan.ShortHead], wordData, s.seq<<flagBits|refused, to); err != nil {
			return err
		}
	}
	return nil
}
