package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"goshmem/coll"
	"goshmem/heap"
	"goshmem/nvlink/device"
	"goshmem/pe"
	"goshmem/rma"
)

// The memory that a program measures.
const (
	memHost = "host"
	memCUDA = "cuda"
)

// onDevice is what the programs on device memory share. The floor is the driver's own
// copies on a stream of this program, to the same addresses.
type onDevice struct {
	*env
	dst, src  heap.Ref // in device memory
	host      heap.Ref
	hostSrc   heap.Ref
	q         device.Stream
	done      *uint64 // written by q
	doneAt    uint64
	seq       uint64
	to        int
	seed      uint64
	near, far uint64 // device addresses of src, and of dst at the target
	hNear     uint64 // of hostSrc
	hFar      uint64 // of host at the target
	sigs      heap.Signals
}

func newOnDevice(ctx context.Context, e *env, to int) (*onDevice, error) {
	o := &onDevice{env: e, to: to}
	dev := e.p.Device()
	if dev == nil {
		return nil, fmt.Errorf("bench: %s -mem cuda: this PE has no device: %w", e.cfg.Name, pe.ErrUnsupported)
	}
	e.base.Mem = memCUDA
	n := max(e.cfg.largest(), batchItems*batchItem)
	var err error
	for _, r := range []*heap.Ref{&o.dst, &o.src} {
		if *r, err = e.p.AllocDevice(ctx, n, 4096); err != nil {
			return nil, err
		}
	}
	for _, r := range []*heap.Ref{&o.host, &o.hostSrc} {
		if *r, err = e.p.AllocMem(ctx, n, 4096); err != nil {
			return nil, err
		}
	}
	if o.sigs, err = e.p.AllocSignals(ctx, numSignals); err != nil {
		return nil, err
	}
	for _, x := range []struct {
		addr *uint64
		ref  heap.Ref
		pe   int
	}{{&o.near, o.src, e.p.Rank()}, {&o.far, o.dst, to}, {&o.hNear, o.hostSrc, e.p.Rank()}, {&o.hFar, o.host, to}} {
		// A target whose device is not mapped here leaves no address for a floor.
		if *x.addr, err = e.p.DeviceAddr(x.ref, uint64(n), x.pe); err != nil && !errors.Is(err, pe.ErrUnsupported) {
			return nil, err
		}
	}
	if mapped, err := e.first0(bit(o.far != 0)); err != nil {
		return nil, err
	} else if mapped == 0 {
		o.far = 0 // nor does PE 0's to the target itself
	}
	if o.q, err = dev.NewStream(); err != nil {
		return nil, err
	}
	o.done = e.own(lineCount)
	o.doneAt, err = e.p.DeviceAddr(e.lines.At(lineCount*lineWords).Ref(), 8, e.p.Rank())
	return o, err
}

// raw makes calls of the driver with the device current.
func (o *onDevice) raw(f func() error) error {
	dev := o.p.Device()
	if err := dev.Enter(); err != nil {
		return err
	}
	defer dev.Leave()
	return f()
}

// finish waits until the floor's stream has done everything.
func (o *onDevice) finish() error {
	o.seq++
	err := o.raw(func() error {
		return o.q.Write([]device.Word{{Addr: o.doneAt, Value: o.seq, Wide: true}})
	})
	if err != nil {
		return err
	}
	return o.await(o.done, o.seq)
}

// way is a put from one kind of memory to another.
type way struct {
	name     string
	dst      heap.Ref
	src      rma.Local
	far, own uint64
}

func (o *onDevice) ways(size int64) []way {
	return []way{
		{"d2d", o.dst, rma.At(o.src, size), o.far, o.near},
		{"h2d", o.dst, rma.At(o.hostSrc, size), o.far, o.hNear},
		{"d2h", o.host, rma.At(o.src, size), o.hFar, o.near},
	}
}

// Of the batch that is compared with single copies.
const (
	batchItems = 64
	batchItem  = 4 << 10
)

func putDevice(ctx context.Context, e *env) error {
	o, err := newOnDevice(ctx, e, e.target())
	if err != nil {
		return err
	}
	s, err := newOnStream(ctx, o)
	if err != nil {
		return err
	}
	for _, size := range e.cfg.Sizes {
		for _, w := range o.ways(size) {
			for _, t := range o.putTrials(ctx, w, size) {
				if err := o.measure(t); err != nil {
					return err
				}
			}
		}
		if size > rateUpTo || o.far == 0 {
			continue
		}
		if err := s.putOnStream(size); err != nil {
			return err
		}
	}
	b := o.batchTrial(ctx)
	if o.far == 0 {
		b.floor = nil
	}
	return o.measure(b)
}

func (o *onDevice) putTrials(ctx context.Context, w way, size int64) []trial {
	n := uint64(size)
	nbi := func(ops int) error {
		for range ops {
			if _, err := rma.PutLocalNBI(o.c, w.dst, w.src, o.to); err != nil {
				return err
			}
		}
		return nil
	}
	copies := func(ops int) error {
		return o.raw(func() error {
			for range ops {
				if err := o.q.Copy(w.far, w.own, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	all := []trial{{
		line: line{metric: "latency", unit: unitNS},
		work: func(ops int) error {
			for range ops {
				if err := rma.PutLocal(o.c, w.dst, w.src, o.to); err != nil {
					return err
				}
			}
			return nil
		},
		floor: func(ops int) error {
			for range ops {
				if err := copies(1); err != nil {
					return err
				}
				if err := o.finish(); err != nil {
					return err
				}
			}
			return nil
		},
	}}
	if size <= rateUpTo {
		all = append(all, trial{
			line: line{metric: "issue", unit: unitNS}, work: nbi, floor: copies,
			before: func() error {
				if err := o.finish(); err != nil {
					return err
				}
				return rma.Quiet(ctx, o.c)
			},
		})
	}
	if size >= bandwidthFrom {
		all = append(all, trial{
			line: line{metric: "bandwidth", unit: unitGBs, bytes: size}, batch: 2 * time.Millisecond,
			work: func(ops int) error {
				if err := nbi(ops); err != nil {
					return err
				}
				return rma.Quiet(ctx, o.c)
			},
			floor: func(ops int) error {
				if err := copies(ops); err != nil {
					return err
				}
				return o.finish()
			},
		})
	}
	for i := range all {
		if w.far == 0 {
			all[i].floor = nil
		}
		all[i].size, all[i].algo = size, w.name
		all[i].verify = func() (bool, error) { return o.check(w, size, all[i].work) }
	}
	return all
}

// check sends another payload the same way and compares it at the target.
func (o *onDevice) check(w way, size int64, work func(int) error) (bool, error) {
	o.seed++
	b := make([]byte, size)
	pattern(b, o.seed)
	src := o.src
	if w.name == "h2d" {
		src = o.hostSrc
	}
	if o.p.Rank() == 0 {
		if err := rma.PutMem(o.c, src, b, 0); err != nil {
			return false, err
		}
		if err := work(1); err != nil {
			return false, err
		}
		if err := rma.Quiet(o.ctx, o.c); err != nil {
			return false, err
		}
	}
	if _, err := o.share(0); err != nil || o.p.Rank() != o.to {
		return err == nil, err
	}
	got := make([]byte, size)
	if err := rma.GetLocal(o.c, rma.Bytes(got), w.dst, o.to); err != nil {
		return false, err
	}
	if o.cfg.corrupt != nil {
		o.cfg.corrupt(got)
	}
	return samePattern(got, o.seed), nil
}

// batchTrial is many small puts as one batch, beside as many single copies.
func (o *onDevice) batchTrial(ctx context.Context) trial {
	var items []rma.BatchItem
	for i := range uint64(batchItems) {
		items = append(items, rma.BatchItem{Dst: o.dst.Add(i * batchItem), From: o.src.Add(i * batchItem), N: batchItem})
	}
	whole := way{name: "d2d", dst: o.dst}
	work := func(ops int) error {
		for range ops {
			if _, err := rma.PutBatch(o.c, items, o.to); err != nil {
				return err
			}
			if err := rma.Quiet(ctx, o.c); err != nil {
				return err
			}
		}
		return nil
	}
	return trial{
		line: line{metric: "batch-of-64", unit: unitNS}, algo: whole.name, size: batchItem, work: work,
		floor: func(ops int) error {
			for range ops {
				err := o.raw(func() error {
					for i := range uint64(batchItems) {
						if err := o.q.Copy(o.far+i*batchItem, o.near+i*batchItem, batchItem); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					return err
				}
				if err := o.finish(); err != nil {
					return err
				}
			}
			return nil
		},
		verify: func() (bool, error) { return o.check(whole, batchItems*batchItem, work) },
	}
}

func getDevice(ctx context.Context, e *env) error {
	o, err := newOnDevice(ctx, e, e.target())
	if err != nil {
		return err
	}
	for _, size := range e.cfg.Sizes {
		n := uint64(size)
		t := trial{
			line: line{metric: "latency", unit: unitNS}, algo: "d2d", size: size,
			work: func(ops int) error {
				for range ops {
					if err := rma.GetLocal(o.c, rma.At(o.src, size), o.dst, o.to); err != nil {
						return err
					}
				}
				return nil
			},
			floor: func(ops int) error {
				for range ops {
					if err := o.raw(func() error { return o.q.Copy(o.near, o.far, n) }); err != nil {
						return err
					}
					if err := o.finish(); err != nil {
						return err
					}
				}
				return nil
			},
			verify: func() (bool, error) { return o.checkGet(size) },
		}
		if o.far == 0 {
			t.floor = nil
		}
		if err := o.measure(t); err != nil {
			return err
		}
	}
	return nil
}

// checkGet gets another payload.
func (o *onDevice) checkGet(size int64) (bool, error) {
	o.seed++
	b := make([]byte, size)
	pattern(b, o.seed)
	if o.p.Rank() == o.to {
		if err := rma.PutMem(o.c, o.dst, b, o.to); err != nil {
			return false, err
		}
	}
	if _, err := o.share(0); err != nil || o.p.Rank() != 0 {
		return err == nil, err
	}
	if err := rma.GetLocal(o.c, rma.At(o.src, size), o.dst, o.to); err != nil {
		return false, err
	}
	if err := rma.GetLocal(o.c, rma.Bytes(b), o.src, 0); err != nil {
		return false, err
	}
	if o.cfg.corrupt != nil {
		o.cfg.corrupt(b)
	}
	return samePattern(b, o.seed), nil
}

// putSignalDevice bounces a payload of device memory between PE 0 and PE 1, whose
// CPUs wait for the signal.
func putSignalDevice(ctx context.Context, e *env) error {
	o, err := newOnDevice(ctx, e, (e.p.Rank()+1)%2)
	if err != nil {
		return err
	}
	flagAt, err := e.p.DeviceAddr(e.lines.At(lineFlag*lineWords).Ref(), 8, o.to)
	if err != nil {
		return err
	}
	ownAt, err := e.p.DeviceAddr(e.lines.At(lineFlag*lineWords).Ref(), 8, e.p.Rank())
	if err != nil {
		return err
	}
	s, err := newOnStream(ctx, o)
	if err != nil {
		return err
	}
	flag, rank, sig := e.own(lineFlag), e.p.Rank(), o.sigs.At(sigMessage)
	round, plain := uint64(0), uint64(0)
	for _, size := range e.cfg.Sizes {
		for _, w := range o.ways(size)[:2] {
			bounce := func(ops int) error {
				for range ops {
					round++
					for turn := range 2 {
						if rank == turn {
							if _, err := rma.PutLocalSignalNBI(o.c, w.dst, w.src, sig, rma.SignalAdd, 1, o.to); err != nil {
								return err
							}
						} else if err := rma.WaitSignal(ctx, o.c, sig, rma.GE, round); err != nil {
							return err
						}
					}
				}
				return nil
			}
			t := trial{
				line: line{metric: "latency", unit: unitNS}, algo: w.name, size: size, per: 2, all: true, work: bounce,
				floor: func(ops int) error {
					for range ops {
						plain++
						for turn := range 2 {
							if rank != turn {
								if err := o.await(flag, plain); err != nil {
									return err
								}
								continue
							}
							err := o.raw(func() error {
								if err := o.q.Copy(w.far, w.own, uint64(size)); err != nil {
									return err
								}
								return o.q.Write([]device.Word{{Addr: flagAt, Value: plain, Wide: true}})
							})
							if err != nil {
								return err
							}
						}
					}
					return nil
				},
				verify: func() (bool, error) { return o.checkMail(ctx, w, size, bounce) },
			}
			if w.far == 0 {
				t.floor = nil
			}
			if rank > 1 {
				t.work, t.floor = nil, nil
			}
			if err := o.measure(t); err != nil {
				return err
			}
		}
		if o.far == 0 {
			continue
		}
		if err := s.bounceOnStream(ctx, size, flagAt, ownAt, &plain); err != nil {
			return err
		}
	}
	return nil
}

// checkMail sends payloads of other patterns, and looks at them as soon as the signal
// is seen.
func (o *onDevice) checkMail(ctx context.Context, w way, size int64, bounce func(int) error) (bool, error) {
	rank := o.p.Rank()
	if rank > 1 {
		return true, nil
	}
	o.seed++
	b := make([]byte, size)
	pattern(b, o.seed+uint64(rank))
	src := o.src
	if w.name == "h2d" {
		src = o.hostSrc
	}
	if err := rma.PutMem(o.c, src, b, rank); err != nil {
		return false, err
	}
	if err := rma.Quiet(ctx, o.c); err != nil { // a stream reads it unordered with this lane
		return false, err
	}
	if err := bounce(1); err != nil {
		return false, err
	}
	if rank == 0 { // PE 1's came with the last signal that it waited for
		if err := rma.Quiet(ctx, o.c); err != nil {
			return false, err
		}
	}
	got := make([]byte, size)
	if err := rma.GetLocal(o.c, rma.Bytes(got), w.dst, rank); err != nil {
		return false, err
	}
	if o.cfg.corrupt != nil {
		o.cfg.corrupt(got)
	}
	return samePattern(got, o.seed+uint64(o.to)), nil
}

// barrierDevice is a put of device memory and a barrier of all PEs, which completes
// it, beside the put's copy alone.
func barrierDevice(ctx context.Context, e *env) error {
	e.cfg.Sizes = []int64{batchItem}
	o, err := newOnDevice(ctx, e, (e.p.Rank()+1)%e.p.Size())
	if err != nil {
		return err
	}
	w := o.ways(batchItem)[0]
	work := func(ops int) error {
		for range ops {
			if _, err := rma.PutLocalNBI(o.c, w.dst, w.src, o.to); err != nil {
				return err
			}
			if err := coll.Barrier(ctx, o.p.Team()); err != nil {
				return err
			}
		}
		return nil
	}
	return o.measure(trial{
		line: line{metric: "put-barrier", unit: unitNS}, algo: w.name, size: batchItem, all: true, work: work,
		floor: func(ops int) error {
			for range ops {
				if err := o.raw(func() error { return o.q.Copy(w.far, w.own, batchItem) }); err != nil {
					return err
				}
				if err := o.finish(); err != nil {
					return err
				}
			}
			return nil
		},
		verify: func() (bool, error) { return o.checkDeviceBarrier(w, work) },
	})
}

func (o *onDevice) checkDeviceBarrier(w way, work func(int) error) (bool, error) {
	o.seed++
	b := make([]byte, batchItem)
	pattern(b, o.seed+uint64(o.p.Rank()))
	if err := rma.PutMem(o.c, o.src, b, o.p.Rank()); err != nil {
		return false, err
	}
	if err := work(1); err != nil {
		return false, err
	}
	if err := rma.GetLocal(o.c, rma.Bytes(b), w.dst, o.p.Rank()); err != nil {
		return false, err
	}
	if o.cfg.corrupt != nil {
		o.cfg.corrupt(b)
	}
	from := (o.p.Rank() + o.p.Size() - 1) % o.p.Size()
	ok := samePattern(b, o.seed+uint64(from))
	_, err := o.share(0)
	return ok, err
}
