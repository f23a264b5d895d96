package bench

import (
	"context"

	"goshmem/heap"
	"goshmem/nvlink/device"
	"goshmem/rma"
)

// onStream is what the programs on a stream's operations share: the floor's stream is
// the one that they are issued on.
type onStream struct {
	*onDevice
	s   *rma.Stream
	sig heap.Signal
}

func newOnStream(ctx context.Context, o *onDevice) (*onStream, error) {
	sigs, err := o.p.AllocSignals(ctx, 1)
	if err != nil {
		return nil, err
	}
	s, err := rma.NewStream(ctx, o.c, o.q.Handle())
	return &onStream{o, s, sigs.At(0)}, err
}

// putOnStream is what it costs to enqueue a put and its signal on a stream.
func (o *onStream) putOnStream(size int64) error {
	w := o.ways(size)[0]
	issue := func(ops int) error {
		for range ops {
			if err := o.s.PutSignal(w.dst, w.src, o.sig, rma.SignalAdd, 1, o.to); err != nil {
				return err
			}
		}
		return nil
	}
	return o.measure(trial{
		line: line{metric: "on-stream issue", unit: unitNS}, algo: w.name, size: size,
		work: issue, before: o.finish,
		floor: func(ops int) error {
			return o.raw(func() error {
				for range ops {
					if err := o.q.Copy(w.far, w.own, uint64(size)); err != nil {
						return err
					}
					if err := o.q.Write([]device.Word{{Addr: o.doneAt, Value: o.seq, Wide: true}}); err != nil {
						return err
					}
				}
				return nil
			})
		},
		verify: func() (bool, error) {
			return o.check(w, size, func(ops int) error {
				if err := issue(ops); err != nil {
					return err
				}
				return o.finish()
			})
		},
	})
}

// bounceOnStream bounces a payload between the streams of PE 0 and PE 1, whose hosts
// only enqueue, beside copies, stores and waits of the driver.
func (o *onStream) bounceOnStream(ctx context.Context, size int64, flagAt, ownAt uint64, plain *uint64) error {
	w, rank := o.ways(size)[0], o.p.Rank()
	bounce := func(ops int) error {
		for range ops {
			for turn := range 2 {
				var err error
				if rank == turn {
					err = o.s.PutSignal(w.dst, w.src, o.sig, rma.SignalAdd, 1, o.to)
				} else {
					err = o.s.Next(o.sig, 1)
				}
				if err != nil {
					return err
				}
			}
		}
		return o.finish()
	}
	floor := func(ops int) error {
		err := o.raw(func() error {
			for range ops {
				*plain++
				for turn := range 2 {
					if rank != turn {
						if err := o.q.WaitGE(ownAt, *plain); err != nil {
							return err
						}
						continue
					}
					if err := o.q.Copy(w.far, w.own, uint64(size)); err != nil {
						return err
					}
					if err := o.q.Write([]device.Word{{Addr: flagAt, Value: *plain, Wide: true}}); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		return o.finish()
	}
	if rank > 1 {
		bounce, floor = nil, nil
	}
	return o.measure(trial{
		line: line{metric: "on-stream latency", unit: unitNS}, algo: w.name, size: size, per: 2, all: true,
		work: bounce, floor: floor,
		verify: func() (bool, error) { return o.checkMail(ctx, w, size, bounce) },
	})
}
