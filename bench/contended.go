package bench

import (
	"context"
	"sync/atomic"

	"goshmem/amo"
	"goshmem/pe"
)

func contendedProgram() program {
	return program{
		name: "contended", text: "fetch-add of all PEs on one word of PE 0: rate of all together",
		pes: 2, least: 1,
		work: contendedWork,
	}
}

func contendedWork(ctx context.Context, e *env) error {
	w, err := pe.Calloc[uint64](ctx, e.p, lineWords)
	if err != nil {
		return err
	}
	plain, err := newPlainBarrier(e)
	if err != nil {
		return err
	}
	floor, err := e.peer(lineFlag, 0)
	if err != nil {
		return err
	}
	var mine uint64
	lockstep := func(f func() error) func(int) error {
		return func(ops int) error {
			if err := plain.run(1); err != nil {
				return err
			}
			for range ops {
				if err := f(); err != nil {
					return err
				}
			}
			return plain.run(1)
		}
	}
	t := trial{
		line: line{metric: "fetch-add", unit: unitMs}, size: 8, per: float64(e.p.Size()), all: true,
		work: lockstep(func() error {
			mine++
			_, err := amo.FetchAdd(e.c, w.At(0), 1, 0)
			return err
		}),
		floor: lockstep(func() error { atomic.AddUint64(floor, 1); return nil }),
		verify: func() (bool, error) {
			all, err := e.share(mine)
			if err != nil || e.p.Rank() != 0 {
				return true, err
			}
			sum := uint64(0)
			for _, n := range all {
				sum += n
			}
			if e.cfg.corrupt != nil {
				sum++
			}
			return atomic.LoadUint64(&w.Local()[0]) == sum, nil
		},
	}
	if e.p.World().Oversubscribed() {
		t.batch = oversubscribedBatch
	}
	return e.measure(t)
}
