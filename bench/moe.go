package bench

import (
	"context"
	"time"

	"goshmem/coll"
	"goshmem/heap"
	"goshmem/moe"
	"goshmem/moe/routing"
)

func moeProgram() program {
	return program{
		name: "moe", text: "mixture-of-experts dispatch and combine, compared with the oracle",
		pes: 4, least: 1, time: 2 * time.Second,
		work: moeWork, cuda: moeDevice,
		check: func(c *Config) error {
			if err := c.MoE.complete(); err != nil {
				return err
			}
			_, err := c.MoE.batch(max(c.PEs, 1)-1, max(c.PEs, 1)) // a trace may be too short
			return err
		},
		heap: func(c *Config) (int64, error) {
			if c.Mem == memCUDA {
				n, err := c.MoE.config().DeviceBytes(c.PEs, c.MoE.mover())
				if err != nil {
					return 0, err
				}
				staged, err := c.MoE.config().StagedBytes(c.PEs)
				return max(n, staged), err
			}
			n, err := c.MoE.config().Bytes(c.PEs)
			return n + scratchMost, err
		},
	}
}

// scratchMost bounds the memory that the floor copies to; it is more than the
// caches hold.
const scratchMost = 64 << 20

// moeRun is a PE's part of program moe.
type moeRun struct {
	*env
	ctx     context.Context
	m       MoE
	cfg     moe.Config
	engine  *moe.Engine
	shape   moeShape
	own     routing.Batch
	x       []byte
	scales  []byte
	y, out  []byte
	d       *moe.Dispatched
	scratch []byte // the next PE's, for the floor
	libc    copier
}

// moeShape is what an engine of either memory tells of itself.
type moeShape interface {
	RowBytes() int64
	LocalExperts(rank int) (first, end int)
}

func moeWork(ctx context.Context, e *env) error {
	r := &moeRun{env: e, ctx: ctx, m: e.cfg.MoE, libc: newCopier()}
	if err := r.prepare(); err != nil {
		return err
	}
	d, err := r.dispatch()
	if err != nil {
		return err
	}
	r.d = d
	sent := d.Traffic()
	r.y = r.outputs(d)
	r.out = make([]byte, 2*r.own.Tokens()*r.cfg.Hidden)
	t, err := r.trial("dispatch", r.cfg.Layout.String(), sent)
	if err != nil {
		return err
	}
	t.work = func(ops int) error {
		for range ops {
			if r.d, err = r.dispatch(); err != nil {
				return err
			}
			if err := coll.Barrier(ctx, e.p.Team()); err != nil {
				return err
			}
		}
		return nil
	}
	t.verify = r.checkDispatch
	if err := e.measure(t); err != nil {
		return err
	}

	if sent, err = r.combine(); err != nil {
		return err
	}
	if t, err = r.trial("combine", r.cfg.Combine.String(), sent); err != nil {
		return err
	}
	t.before = func() error {
		if r.d, err = r.dispatch(); err != nil {
			return err
		}
		return coll.Barrier(ctx, e.p.Team())
	}
	t.work = func(ops int) error {
		for range ops {
			if _, err := r.combine(); err != nil {
				return err
			}
			if err := coll.Barrier(ctx, e.p.Team()); err != nil {
				return err
			}
		}
		return nil
	}
	t.verify = r.checkCombine
	if err := e.measure(t); err != nil {
		return err
	}
	return r.engine.Close(ctx)
}

func (r *moeRun) prepare() (err error) {
	rank, n := r.p.Rank(), r.p.Size()
	r.cfg = r.m.config()
	if r.engine, err = moe.New(r.ctx, r.p.Team(), r.cfg); err != nil {
		return err
	}
	if r.own, err = r.m.batch(rank, n); err != nil {
		return err
	}
	r.shape = r.engine
	r.fillRows()
	if r.apart {
		r.base.Path = r.farPath()
	}
	var ref heap.Ref
	if ref, err = r.p.AllocMem(r.ctx, scratchMost, 4096); err != nil {
		return err
	}
	r.scratch, err = rawBytes(r.c, ref, scratchMost, (rank+1)%n)
	return err
}

// fillRows makes this rank's rows and scales.
func (r *moeRun) fillRows() {
	row, rank := r.shape.RowBytes(), r.p.Rank()
	r.x = make([]byte, int64(r.own.Tokens())*row)
	r.scales = make([]byte, int64(r.own.Tokens())*r.cfg.ScaleBytes)
	for t := range int64(r.own.Tokens()) {
		pattern(r.x[t*row:(t+1)*row], rowSeed(rank, int(t)))
		pattern(r.scales[t*r.cfg.ScaleBytes:(t+1)*r.cfg.ScaleBytes], ^rowSeed(rank, int(t)))
	}
}

// rowSeed tells the rows of all tokens apart.
func rowSeed(rank, token int) uint64 { return uint64(rank)<<40 + uint64(token) + 1 }

func (r *moeRun) dispatch() (*moe.Dispatched, error) {
	return r.engine.Dispatch(r.ctx, r.x, r.scales, r.own.Idx, r.own.Weights)
}

func (r *moeRun) combine() (moe.Traffic, error) {
	return r.engine.Combine(r.ctx, r.d, r.y, nil, r.out)
}

// trial is what dispatch and combine share: latency until all PEs are done, wire
// and logical bandwidth of all PEs together, and as the floor the same number
// of bytes copied by as many PEs at once, each into its neighbour's memory.
func (r *moeRun) trial(what, algo string, mine moe.Traffic) (trial, error) {
	n := int64(r.p.Size())
	wire, err := r.sum(mine.Wire)
	if err != nil {
		return trial{}, err
	}
	logical, err := r.sum(mine.Logical)
	if err != nil {
		return trial{}, err
	}
	between, err := r.sum(mine.Between)
	if err != nil {
		return trial{}, err
	}
	t := trial{
		line: line{metric: what, unit: unitNS}, algo: algo, all: true,
		more: []line{
			{metric: what + "-wire", unit: unitGBs, bytes: wire},
			{metric: what + "-logical", unit: unitGBs, bytes: logical, noFloor: true},
		},
		batch: time.Millisecond,
	}
	if r.base.Nodes > 1 {
		t.more = append(t.more, line{metric: what + "-between", unit: unitGBs, bytes: between, noFloor: true})
	}
	if n > 1 {
		t.size = wire / (n * (n - 1))
	}
	if wire > 0 {
		t.floor = func(ops int) error {
			for range ops {
				r.copies(mine.Wire)
				if err := coll.Barrier(r.ctx, r.p.Team()); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return t, nil
}

func (r *moeRun) sum(v int64) (int64, error) {
	all, err := r.share(uint64(v))
	total := int64(0)
	for _, x := range all {
		total += int64(x)
	}
	return total, err
}

// copies copies so many bytes of this PE's rows, again and again from the start,
// in pieces of 1 MiB.
func (r *moeRun) copies(total int64) {
	const piece = 1 << 20
	from, to := r.x, r.scratch
	for total > 0 && len(r.x) > 0 {
		k := min(int(min(total, piece)), len(from), len(to))
		r.libc.copies(to[:k], from[:k], 1)
		total -= int64(k)
		if from = from[k:]; len(from) == 0 {
			from = r.x
		}
		if to = to[k:]; len(to) == 0 {
			to = r.scratch
		}
	}
}
