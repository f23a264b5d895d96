package bench

import (
	"context"
	"sync/atomic"
	"time"

	"goshmem/coll"
	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

func barrierProgram() program {
	return program{
		name: "barrier", text: "barrier and sync of all PEs",
		pes: 2, least: 1,
		work: barrierWork, cuda: barrierDevice,
	}
}

// oversubscribedBatch is the length of a batch where PEs share processors: it
// must span many turns of the scheduler.
const oversubscribedBatch = 2 * time.Millisecond

func barrierWork(ctx context.Context, e *env) error {
	e.base.Path = e.farPath()
	b, err := newPlainBarrier(e)
	if err != nil {
		return err
	}
	seen, err := pe.Calloc[uint64](ctx, e.p, e.p.Size()*lineWords)
	if err != nil {
		return err
	}
	t := trial{line: line{unit: unitNS}, all: true, floor: b.run}
	t.algo = "dissemination"
	if b.central {
		t.algo, t.batch = "central", oversubscribedBatch
	}
	team := e.p.Team()
	for _, m := range []struct {
		name string
		call func(context.Context, *pe.Team) error
	}{{"latency", coll.Barrier}, {"sync", coll.Sync}} {
		t.metric = m.name
		t.work = func(ops int) error {
			for range ops {
				if err := m.call(ctx, team); err != nil {
					return err
				}
			}
			return nil
		}
		t.verify = func() (bool, error) { return e.checkBarrier(ctx, seen, m.call) }
		if err := e.measure(t); err != nil {
			return err
		}
	}
	return nil
}

// checkBarrier lets every PE tell every other one its round before each barrier:
// behind it, everybody's must be there, and nobody's later one.
func (e *env) checkBarrier(ctx context.Context, seen heap.Array[uint64], call func(context.Context, *pe.Team) error) (bool, error) {
	const rounds = 20
	ok := true
	n, rank := e.p.Size(), e.p.Rank()
	for round := uint64(1); round <= rounds; round++ {
		for i := range n {
			if err := rma.PutValue(e.c, seen.At(rank*lineWords), round, i); err != nil {
				return false, err
			}
		}
		if err := rma.Quiet(ctx, e.c); err != nil { // Sync completes nothing
			return false, err
		}
		if err := call(ctx, e.p.Team()); err != nil {
			return false, err
		}
		if e.cfg.corrupt != nil {
			seen.Local()[0] = 0
		}
		for i := range n {
			ok = ok && atomic.LoadUint64(&seen.Local()[i*lineWords]) == round
		}
		if err := call(ctx, e.p.Team()); err != nil {
			return false, err
		}
	}
	for i := range n { // for the next check
		atomic.StoreUint64(&seen.Local()[i*lineWords], 0)
	}
	_, err := e.share(0)
	return ok, err
}

// plainBarrier is the floor: the same algorithm on plain words. Between hosts there are
// none: it only lets the PEs begin together then, by a Sync.
type plainBarrier struct {
	*env
	central        bool
	epoch          uint64
	count, release *uint64 // PE 0's
	peers          []*uint64
	own            []*uint64
}

func newPlainBarrier(e *env) (*plainBarrier, error) {
	n, rank := e.p.Size(), e.p.Rank()
	b := &plainBarrier{env: e, central: e.p.World().Oversubscribed()}
	var err error
	if b.count, err = e.peer(lineCount, 0); err != nil {
		return nil, err
	}
	if b.release, err = e.peer(lineRelease, 0); err != nil {
		return nil, err
	}
	for k, d := 0, 1; d < n; k, d = k+1, 2*d {
		w, err := e.peer(lineRound+k, (rank+d)%n)
		if err != nil {
			return nil, err
		}
		b.peers = append(b.peers, w)
		b.own = append(b.own, e.own(lineRound+k))
	}
	return b, nil
}

func (b *plainBarrier) run(ops int) error {
	n := uint64(b.p.Size())
	for range ops {
		if b.apart {
			if err := coll.Sync(b.ctx, b.p.Team()); err != nil {
				return err
			}
			continue
		}
		b.epoch++
		if b.central {
			if atomic.AddUint64(b.count, 1) == b.epoch*n {
				atomic.StoreUint64(b.release, b.epoch)
			} else if err := b.await(b.release, b.epoch); err != nil {
				return err
			}
			continue
		}
		for k, w := range b.peers {
			atomic.StoreUint64(w, b.epoch)
			if err := b.await(b.own[k], b.epoch); err != nil {
				return err
			}
		}
	}
	return nil
}
