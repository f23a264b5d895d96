package bench

import (
	"context"
	"time"

	"goshmem/rma"
)

func waitProgram() program {
	return program{
		name: "wait", text: "how late a waiter notices its signal that has spun, and one that has gone to sleep: round trips",
		pes: 2, least: 2,
		work: waitWork,
	}
}

// asleep is long enough for a waiter to have gone to sleep.
const asleep = 5 * time.Millisecond

// waitWork bounces a signal between PE 0 and PE 1. Ahead of a round trip PE 0 lets
// PE 1 wait for a while; PE 0 itself spins.
func waitWork(ctx context.Context, e *env) error {
	sigs, err := e.p.AllocSignals(ctx, 1)
	if err != nil {
		return err
	}
	sig, rank := sigs.At(0), e.p.Rank()
	var n uint64
	bounce := func() error {
		n++
		if rank == 0 {
			if err := rma.Signal(e.c, sig, rma.SignalSet, n, 1); err != nil {
				return err
			}
		}
		if err := rma.WaitSignal(ctx, e.c, sig, rma.GE, n); err != nil {
			return err
		}
		if rank == 1 {
			return rma.Signal(e.c, sig, rma.SignalSet, n, 0)
		}
		return nil
	}
	for _, m := range []struct {
		metric string
		pause  time.Duration
	}{{"spinning", 0}, {"sleeping", asleep}} {
		t := trial{
			line: line{metric: m.metric, unit: unitNS}, all: true, batch: time.Nanosecond,
			work: func(ops int) error {
				for range ops {
					if rank > 1 {
						break
					}
					if err := bounce(); err != nil {
						return err
					}
				}
				return nil
			},
			verify: func() (bool, error) {
				if rank > 1 {
					return true, nil
				}
				have, err := rma.ReadSignal(e.c, sig)
				if e.cfg.corrupt != nil {
					have--
				}
				return have == n, err
			},
		}
		if m.pause > 0 {
			t.before = func() error {
				if rank == 0 {
					time.Sleep(m.pause)
				}
				return nil
			}
		}
		if err := e.measure(t); err != nil {
			return err
		}
	}
	return nil
}
