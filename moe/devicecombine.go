package moe

import (
	"errors"

	"goshmem/moe/internal/kernels"
	"goshmem/moe/internal/plan"
)

// DeviceOutput is what a combine works on, as device addresses.
type DeviceOutput struct {
	Y   uint64 // what the experts made of the rows, as Engine.Combine's y
	Out uint64 // [tokens*Hidden] bf16

	// Bias starts the sums: float32, Hidden elements, or Hidden for each token if
	// OwnBias. 0: none.
	Bias    uint64
	OwnBias bool
}

// Combine enqueues a combine: when the stream gets to what follows, Out is there.
// Errors are those of Dispatch.
func (e *DeviceEngine) Combine(stream uintptr, d *DeviceDispatched, o DeviceOutput) error {
	if err := e.StartCombine(stream, d, o); err != nil {
		return err
	}
	return e.FinishCombine(stream, d, o)
}

// StartCombine enqueues the half of a combine that makes results ready for the
// others, FinishCombine the half that fetches theirs and adds them up. The same
// arguments go to both. Y must stay as it is until FinishCombine's work is done.
func (e *DeviceEngine) StartCombine(stream uintptr, d *DeviceDispatched, o DeviceOutput) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(); err != nil {
		return wrap("start combine", err)
	}
	s, f := e.slotFor(d), plan.Fault{}
	switch {
	case d == nil || d.s.e != e:
		f.Code = plan.Foreign
	case !d.live():
		f.Code = plan.Stale
	case o.Y == 0 || o.Y%uint64(e.p.YBytes) != 0:
		f = plan.Fault{Code: plan.BadArgument, A: plan.ArgY, C: d.outputMost()}
	case d.routing.tokens > 0 && (o.Out == 0 || o.Out%2 != 0):
		f = plan.Fault{Code: plan.BadArgument, A: plan.ArgOut, C: int64(d.routing.tokens) * e.p.Hidden}
	case o.Bias%4 != 0:
		f = plan.Fault{Code: plan.BadArgument, A: plan.ArgBias}
	}
	if err := e.run.Enter(); err != nil {
		return wrap("start combine", e.fail(err))
	}
	defer e.run.Leave()
	if err := s.offer(stream, d, o, f); err != nil {
		return wrap("start combine", e.fail(err))
	}
	if f.Code != plan.None {
		// The other half of the call, without data.
		return wrap("combine", errors.Join(faultError(f), s.fetch(stream, d, DeviceOutput{}, f)))
	}
	return nil
}

func (d *DeviceDispatched) outputMost() int64 { return d.s.e.layout.OutRows * d.s.e.p.Hidden }

// live reports whether so few dispatches came after this one that its rows are there.
// What replays of graphs did the device knows. mu is held.
func (d *DeviceDispatched) live() bool { return d.s.e.gen-d.gen < uint64(d.s.e.p.Slots) }

// slotFor is where a combine takes place, also one that is refused: then that of the
// latest dispatch, which the other ranks most likely use.
func (e *DeviceEngine) slotFor(d *DeviceDispatched) *deviceSlot {
	if d != nil && d.s.e == e && d.live() {
		return d.s
	}
	return e.slots[(max(e.turn, 1)-1)%uint64(len(e.slots))]
}

// offer makes results ready.
func (s *deviceSlot) offer(stream uintptr, d *DeviceDispatched, o DeviceOutput, f plan.Fault) error {
	e := s.e
	if s.staged != nil {
		return s.staged.offer(stream, d, o, f)
	}
	routing, gen, what, blocks := uint64(0), uint64(0), uint64(kernels.OfferNothing), 1
	if f.Code == plan.None {
		routing, gen = d.routing.at, d.gen
		capturing, err := e.run.Capturing(stream)
		if err != nil {
			return err
		}
		if s.combined || capturing {
			if err := s.await(stream, d, kernels.FlagDone, 0); err != nil {
				return err
			}
		}
		switch {
		case e.p.AtExpert:
			what, blocks = kernels.OfferSums, e.reduceSMs
		case o.Y != d.Output:
			what, blocks = kernels.OfferCopies, e.reduceSMs
		}
	}
	s.combined = true
	return e.launch(kernels.Offer, blocks, kernels.Threads, uint32(kernels.SharedBase), stream,
		s.ctx, routing, o.Y, gen, what, uint64(f.Code), uint64(f.A), uint64(f.B), uint64(f.C))
}

// FinishCombine is the other half of StartCombine.
func (e *DeviceEngine) FinishCombine(stream uintptr, d *DeviceDispatched, o DeviceOutput) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(); err != nil {
		return wrap("combine", err)
	}
	if d == nil || d.s.e != e {
		return wrap("combine", faultError(plan.Fault{Code: plan.Foreign}))
	}
	err := e.run.Enter()
	if err == nil {
		err = d.s.fetch(stream, d, o, plan.Fault{})
		e.run.Leave()
	}
	if err != nil {
		return wrap("combine", e.fail(err))
	}
	return nil
}

func (s *deviceSlot) fetch(stream uintptr, d *DeviceDispatched, o DeviceOutput, f plan.Fault) error {
	e := s.e
	if s.staged != nil {
		return s.staged.sum(stream, d, o, f)
	}
	routing, gen, options := uint64(0), uint64(0), uint64(0)
	if f.Code == plan.None {
		routing, gen = d.routing.at, d.gen
		if o.OwnBias {
			options |= kernels.OptOwnBias
		}
		if d.Output != 0 {
			options |= kernels.OptDrain // the caller may write there next
		}
		if e.opt.Mover == MoverCopyEngine {
			if err := s.pull(stream, d); err != nil {
				return err
			}
		}
	}
	shared := uint32(kernels.SharedBase)
	if f.Code == plan.None && e.run.Bulk() && e.p.Hidden%8 == 0 && e.p.TopK <= kernels.FetchTopK && o.Out%16 == 0 {
		options |= kernels.OptBulk
		shared = uint32(kernels.FetchShared)
	}
	err := e.launch(kernels.Combine, e.sms, kernels.Threads, shared, stream,
		s.ctx, routing, o.Bias, o.Out, gen, options, uint64(f.Code))
	if err != nil {
		return err
	}
	return s.mark(stream)
}
