package bench

import (
	"context"

	"goshmem/heap"
	"goshmem/rma"
)

func orderProgram() program {
	return program{
		name: "order", text: "fence and quiet: with nothing to order, and behind non-blocking puts",
		pes: 2, least: 1,
		work: orderWork,
	}
}

// outstanding is how many puts go before a fence or quiet that has work.
const outstanding = 16

// orderWork measures on PE 0 alone.
func orderWork(ctx context.Context, e *env) error {
	dst, err := e.p.CallocMem(ctx, 8, 0)
	if err != nil {
		return err
	}
	mine, err := e.p.LocalBytes(dst, 8)
	if err != nil {
		return err
	}
	o := &order{env: e, ctx: ctx, dst: dst, out: make([]byte, 8)}
	quiet := func() error { return rma.Quiet(ctx, e.c) }
	fence := func() error { return rma.Fence(e.c) }
	for _, m := range []struct {
		metric string
		puts   int
		call   func() error
	}{
		{"fence", 0, fence}, {"quiet", 0, quiet}, {"puts-fence", outstanding, fence}, {"puts-quiet", outstanding, quiet},
	} {
		err := e.measure(trial{
			line: line{metric: m.metric, unit: unitNS},
			work: func(ops int) error {
				for range ops {
					if err := o.puts(m.puts); err != nil {
						return err
					}
					if err := m.call(); err != nil {
						return err
					}
				}
				return nil
			},
			verify: func() (bool, error) { return o.check(mine) },
		})
		if err != nil {
			return err
		}
	}
	return nil
}

type order struct {
	*env
	ctx  context.Context
	dst  heap.Ref
	out  []byte
	seed uint64
}

func (o *order) puts(n int) error {
	for range n {
		if _, err := rma.PutMemNBI(o.c, o.dst, o.out, o.target()); err != nil {
			return err
		}
	}
	return nil
}

// check sees that a put is at its target behind a quiet.
func (o *order) check(mine []byte) (bool, error) {
	o.seed++
	if o.p.Rank() == 0 {
		pattern(o.out, o.seed)
		if err := o.puts(1); err != nil {
			return false, err
		}
		if err := rma.Quiet(o.ctx, o.c); err != nil {
			return false, err
		}
	}
	if _, err := o.share(0); err != nil || o.p.Rank() != o.target() {
		return true, err
	}
	if o.cfg.corrupt != nil {
		o.cfg.corrupt(mine)
	}
	return samePattern(mine, o.seed), nil
}
