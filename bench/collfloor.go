package bench

import (
	"context"
	"sync/atomic"

	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// exchange is the floor of the collectives: each PE copies what it has for the
// others into their memory and sets a flag there, then waits for the flags of
// those that send to it. To a PE whose memory may not be used so (another node's)
// a put with signal goes instead.
type exchange struct {
	*env
	libc    copier
	from    []byte // what is sent: a block for all, or one for each
	each    bool
	room    []byte   // what is received
	blocks  [][]byte // the peers' block for this PE
	places  []heap.Ref
	flags   []*uint64 // the peers', for this PE
	own     []uint64  // this PE's
	distant []bool
	signals heap.Signals // one a source
	sent    []uint64     // so far, by target
	awaited []uint64     // by source
}

func newExchange(ctx context.Context, e *env, largest int64, k collective) (*exchange, error) {
	n, rank := e.p.Size(), e.p.Rank()
	x := &exchange{env: e, libc: newCopier(), each: k.src == toEach, sent: make([]uint64, n), awaited: make([]uint64, n)}
	x.from = make([]byte, largest*int64(max(1, k.src.blocks(n))))
	room, err := e.p.AllocMem(ctx, largest*int64(n), 4096)
	if err != nil {
		return nil, err
	}
	if x.room, err = e.p.LocalBytes(room, int(largest)*n); err != nil {
		return nil, err
	}
	flags, err := pe.Calloc[uint64](ctx, e.p, n*lineWords)
	if err != nil {
		return nil, err
	}
	x.own = flags.Local()
	if x.signals, err = e.p.AllocSignals(ctx, n); err != nil {
		return nil, err
	}
	for q := range n {
		peer, _ := e.p.Peer(q)
		self, _ := e.p.Peer(rank)
		x.distant = append(x.distant, peer.Node != self.Node)
		place := room.Add(uint64(int64(rank) * largest))
		x.places = append(x.places, place)
		block, err := rawBytes(e.c, place, largest, q)
		if err != nil {
			return nil, err
		}
		x.blocks = append(x.blocks, block)
		flag, err := rawWord(e.c, flags.At(rank*lineWords).Ref(), q)
		if err != nil {
			return nil, err
		}
		x.flags = append(x.flags, flag)
	}
	return x, nil
}

// run does what so many calls of a collective do. The roots take turns.
func (x *exchange) run(r *collRun, ops int) error {
	rounds := 1
	if r.k.rounds != nil {
		rounds = r.k.rounds(r)
	}
	defer func(root int) { r.root = root }(r.root)
	for range ops {
		for range rounds {
			if err := x.round(r); err != nil {
				return err
			}
		}
		r.root = (r.root + 1) % r.n
	}
	return nil
}

func (x *exchange) round(r *collRun) error {
	for i := range r.n {
		q := (r.rank + 1 + i) % r.n
		n := r.k.sends(r, r.rank, q)
		if n == silent {
			continue
		}
		from := x.from[:n]
		if x.each {
			from = x.from[int64(q)*r.size:][:n]
		}
		if x.sent[q]++; x.distant[q] {
			if err := rma.PutMemSignal(x.c, x.places[q], from, x.signals.At(r.rank), rma.SignalAdd, 1, q); err != nil {
				return err
			}
			continue
		}
		x.libc.plain(x.blocks[q][:n], from)
		atomic.StoreUint64(x.flags[q], x.sent[q])
	}
	for q := range r.n {
		if r.k.sends(r, q, r.rank) == silent {
			continue
		}
		x.awaited[q]++
		var err error
		if x.distant[q] {
			err = rma.WaitSignal(x.ctx, x.c, x.signals.At(q), rma.GE, x.awaited[q])
		} else {
			err = x.await(&x.own[q*lineWords], x.awaited[q])
		}
		if err != nil {
			return err
		}
	}
	return nil
}
