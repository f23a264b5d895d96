package moe

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"goshmem/moe/internal/kernels"
	"goshmem/moe/internal/plan"
	"goshmem/pe"
)

// hand enqueues a dispatch's way to the host.
func (s *stagedSlot) hand(stream uintptr, d *DeviceDispatched, in DeviceInput, f plan.Fault, wait bool) error {
	kind := plan.CallDispatch
	if d.cached {
		kind = plan.CallCached
	}
	if f.Code != plan.None {
		in = DeviceInput{}
	}
	err := s.g.e.launch(kernels.Hand, s.g.e.sms, kernels.Threads, uint32(kernels.SharedBase), stream,
		s.s.ctx, s.stage, in.X, in.Scales, in.Idx, in.Weights, uint64(in.Tokens), uint64(kind), d.gen, d.routing.index,
		uint64(f.Code), uint64(f.A), uint64(f.B), uint64(f.C))
	if err == nil {
		err = s.g.e.launch(kernels.Moved, s.g.e.sms, kernels.Threads, uint32(kernels.SharedBase), stream, s.s.ctx, s.stage, in.X, in.Scales, d.gen)
	}
	if err == nil && wait {
		err = s.take(stream, d)
	}
	return err
}

// take enqueues the way back of what a dispatch has brought.
func (s *stagedSlot) take(stream uintptr, d *DeviceDispatched) error {
	return s.g.e.launch(kernels.Take, s.g.e.sms, kernels.Threads, uint32(kernels.SharedBase), stream, s.s.ctx, s.stage, d.gen)
}

// offer enqueues a combine's way to the host.
func (s *stagedSlot) offer(stream uintptr, d *DeviceDispatched, o DeviceOutput, f plan.Fault) error {
	routing, gen := uint64(0), uint64(0)
	if f.Code == plan.None {
		routing, gen = d.routing.at, d.gen
	}
	return s.g.e.launch(kernels.Back, s.g.backSMs, kernels.Threads, uint32(kernels.SharedBase), stream,
		s.s.ctx, s.stage, routing, o.Y, gen, uint64(f.Code), uint64(f.A), uint64(f.B), uint64(f.C))
}

// sum enqueues the sums of what came back.
func (s *stagedSlot) sum(stream uintptr, d *DeviceDispatched, o DeviceOutput, f plan.Fault) error {
	gen, options := uint64(0), uint64(0)
	if f.Code == plan.None {
		gen = d.gen
		if o.OwnBias {
			options = kernels.OptOwnBias
		}
	}
	err := s.g.e.launch(kernels.Sum, s.g.e.sms, kernels.Threads, uint32(kernels.SharedBase), stream,
		s.s.ctx, s.stage, o.Bias, o.Out, gen, options)
	if err != nil {
		return err
	}
	return s.s.mark(stream)
}

// wait waits until the slot's latest call was answered; the device has posted it.
func (s *stagedSlot) wait(ctx context.Context, gen uint64) (c DeviceCounts, err error) {
	posted := atomic.LoadUint64(&s.box[kernels.BSeq])
	for turn := 0; atomic.LoadUint64(&s.box[kernels.BDone]) < posted; turn++ {
		if ctx.Err() != nil {
			return c, context.Cause(ctx)
		}
		if s.g.life.Err() != nil {
			return c, &pe.ClosedError{PE: -1}
		}
		if turn > 100 {
			time.Sleep(20 * time.Microsecond)
		}
	}
	if err := s.g.e.overdue(); err != nil {
		return c, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &s.outcome
	switch {
	case o.gen != gen:
		return c, faultError(plan.Fault{Code: plan.Stale})
	case o.err != nil:
		return c, o.err
	}
	c = o.counts
	c.Counts, c.Offsets, c.FromCounts = slices.Clone(c.Counts), slices.Clone(c.Offsets), slices.Clone(c.FromCounts)
	return c, nil
}
