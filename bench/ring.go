package bench

import (
	"context"
	"sync/atomic"

	"goshmem/rma"
)

func ringProgram() program {
	return program{
		name: "ring", text: "a signal that goes round the PEs: time of a hop",
		pes: 2, least: 2,
		work: ringWork,
	}
}

func ringWork(ctx context.Context, e *env) error {
	signals, err := e.p.AllocSignals(ctx, 1)
	if err != nil {
		return err
	}
	n, rank, c, sig := e.p.Size(), e.p.Rank(), e.c, signals.At(0)
	next := (rank + 1) % n
	nextFlag, err := e.peer(lineFlag, next)
	if err != nil {
		return err
	}
	var round, plain uint64
	pass := func() error { return rma.Signal(c, sig, rma.SignalSet, round, next) }
	t := trial{
		line: line{metric: "latency", unit: unitNS}, per: float64(n), all: true,
		work: func(ops int) error {
			for range ops {
				round++
				if rank == 0 {
					if err := pass(); err != nil {
						return err
					}
				}
				if err := rma.WaitSignal(ctx, c, sig, rma.GE, round); err != nil {
					return err
				}
				if rank != 0 {
					if err := pass(); err != nil {
						return err
					}
				}
			}
			return nil
		},
		floor: func(ops int) error {
			for range ops {
				plain++
				if rank == 0 {
					atomic.StoreUint64(nextFlag, plain)
				}
				if err := e.await(e.own(lineFlag), plain); err != nil {
					return err
				}
				if rank != 0 {
					atomic.StoreUint64(nextFlag, plain)
				}
			}
			return nil
		},
		verify: func() (bool, error) {
			// Every round came by, and the PEs agree on how many there were.
			want, err := e.first0(round)
			if err != nil {
				return false, err
			}
			have, err := rma.ReadSignal(c, sig)
			if e.cfg.corrupt != nil {
				have--
			}
			return have == want && round == want, err
		},
	}
	if e.p.World().Oversubscribed() {
		t.batch = oversubscribedBatch
	}
	return e.measure(t)
}
