package moe

import (
	"context"

	"goshmem/moe/internal/plan"
)

// Dispatch sends each of this rank's tokens to the ranks that hold its experts
// and receives those of the others. idx has TopK choices a token, -1 for none,
// w as many weights; both are copied. x has a row for each token, scales the
// scales of each (empty without ScaleBytes).
//
// Every rank calls it, also with zero tokens. If one has bad arguments, it gets
// the error (ErrRange, ErrDuplicateExpert, ErrCapacity, ErrAlias), the others get
// it as *RemoteError, nothing has been delivered, earlier handles stay valid, and
// the engine goes on.
func (e *Engine) Dispatch(ctx context.Context, x, scales []byte, idx []int32, w []float32) (*Dispatched, error) {
	const op = "dispatch"
	s, number, err := e.take(nil)
	if err != nil {
		return nil, wrap(op, err)
	}
	defer e.done(s)
	r, f := s.route(number, x, scales, idx, w)
	d, err := s.dispatch(ctx, r, f, x, scales)
	return d, wrap(op, err)
}

// StartDispatch is Dispatch that goes on by itself: Wait on what it returns. idx
// and w are copied; x and scales must stay as they are until the wait returns.
// Errors of the arguments come from the wait. ErrWouldBlock says that the call
// whose rows it would overwrite is not over yet; nothing has happened then, and
// it may be tried again.
func (e *Engine) StartDispatch(ctx context.Context, x, scales []byte, idx []int32, w []float32) (*Pending[*Dispatched], error) {
	s, number, err := e.take(nil)
	if err != nil {
		return nil, wrap("start dispatch", err)
	}
	r, f := s.route(number, x, scales, idx, w)
	return start("dispatch", s, func() (*Dispatched, error) { return s.dispatch(ctx, r, f, x, scales) }), nil
}

// DispatchCached is Dispatch along a routing of before: the rows of x and scales
// go where those of that dispatch went, with the same tokens and weights. Counts
// are not exchanged again. Every rank must give the routing of the same dispatch
// (ErrMismatch).
func (e *Engine) DispatchCached(ctx context.Context, r *Routing, x, scales []byte) (*Dispatched, error) {
	const op = "cached dispatch"
	s, _, err := e.take(nil)
	if err != nil {
		return nil, wrap(op, err)
	}
	defer e.done(s)
	d, err := s.cached(ctx, r, plan.Fault{}, x, scales)
	return d, wrap(op, err)
}

// StartDispatchCached is DispatchCached that goes on by itself, as StartDispatch
// does.
func (e *Engine) StartDispatchCached(ctx context.Context, r *Routing, x, scales []byte) (*Pending[*Dispatched], error) {
	const op = "cached dispatch"
	s, _, err := e.take(nil)
	if err != nil {
		return nil, wrap("start "+op, err)
	}
	return start(op, s, func() (*Dispatched, error) { return s.cached(ctx, r, plan.Fault{}, x, scales) }), nil
}

// route checks the arguments of a dispatch.
func (s *slot) route(number uint64, x, scales []byte, idx []int32, w []float32) (*Routing, plan.Fault) {
	r := s.e.fresh(number)
	f := plan.Route(&s.e.p, s.e.owners, idx, w, &r.sent)
	if f.Code == plan.None {
		f = s.payload(r.sent.T, x, scales)
	}
	return r, f
}

// payload checks the rows of t tokens.
func (s *slot) payload(t int, x, scales []byte) plan.Fault {
	p := &s.e.p
	for _, a := range []struct {
		arg   int64
		have  []byte
		bytes int64
	}{{plan.ArgX, x, p.RowBytes}, {plan.ArgScales, scales, p.ScaleBytes}} {
		if want := int64(t) * a.bytes; int64(len(a.have)) != want {
			return plan.Fault{Code: plan.BadArgument, A: a.arg, B: int64(len(a.have)), C: want}
		}
		if overlap(a.have, s.mem) {
			return plan.Fault{Code: plan.Aliased, A: a.arg}
		}
	}
	return plan.Fault{}
}

// dispatch is the call itself. r is the slot's afterwards, or given back.
func (s *slot) dispatch(ctx context.Context, r *Routing, f plan.Fault, x, scales []byte) (*Dispatched, error) {
	ctx, stop := s.e.bounded(ctx)
	defer stop()
	s.seq++
	h := plan.Head{Call: plan.CallDispatch, T: uint32(r.sent.T), Plan: r.number, Fault: f}
	if err := s.agree(ctx, r, h); err != nil {
		s.e.discard(r)
		return nil, s.settle(err)
	}
	s.epoch.Store(0) // the rows of before are gone
	s.install(r)
	if err := s.deliver(ctx, r, x, scales, true); err != nil {
		return nil, s.settle(err)
	}
	f = plan.Unpack(&s.e.p, &r.place, s.received(&r.place), &r.arrived)
	if f.Code != plan.None {
		return nil, s.settle(faultError(f))
	}
	return s.handle(r, r.traffic), nil
}

// agree exchanges the counts and computes where everything goes.
func (s *slot) agree(ctx context.Context, r *Routing, h plan.Head) error {
	e := s.e
	s.matrix.Reset(&e.p)
	err := s.exchange(ctx, h, &r.sent, func(source int, h plan.Head, b []byte) plan.Fault {
		return s.matrix.Decode(&e.p, e.owners, source, h, b)
	})
	if err != nil {
		return err
	}
	s.granted = true
	if f := plan.Place(&e.p, e.owners, &e.arena.sizes, &s.matrix, e.rank, &r.place); f.Code != plan.None {
		if err := s.quiet(ctx); err != nil {
			return err
		}
		return s.refuse(e.rank, f) // every rank finds it by itself
	}
	r.plan(e)
	r.account(e)
	return nil
}

// cached is the call of a cached dispatch. f is what was found wrong so far.
func (s *slot) cached(ctx context.Context, r *Routing, f plan.Fault, x, scales []byte) (*Dispatched, error) {
	ctx, stop := s.e.bounded(ctx)
	defer stop()
	s.seq++
	h := plan.Head{Call: plan.CallCached, Fault: f}
	switch {
	case f.Code != plan.None:
	case r == nil || r.e != s.e:
		h.Fault.Code = plan.Foreign
	default:
		h.Plan = r.number
		h.Fault = s.payload(r.sent.T, x, scales)
	}
	if err := s.exchange(ctx, h, nil, nil); err != nil {
		return nil, s.settle(err)
	}
	s.granted = true
	s.epoch.Store(0)
	s.install(r)
	if err := s.deliver(ctx, r, x, scales, false); err != nil {
		return nil, s.settle(err)
	}
	t := r.traffic
	t.Meta = int64(s.e.p.Ranks-1) * plan.ShortHead
	return s.handle(r, t), nil
}

// deliver is the second round of a dispatch: rows to their places, records
// beside them, one signal behind all of it for each rank; then the same from
// everybody.
func (s *slot) deliver(ctx context.Context, r *Routing, x, scales []byte, withRecords bool) error {
	e := s.e
	if need := e.arena.sizes.RecordBytes * int64(r.sent.Records()); withRecords && int64(cap(s.records)) < need {
		s.records = make([]byte, need)
	}
	if need := r.listBytes(e); withRecords && int64(cap(s.lists)) < need {
		s.lists = make([]byte, need)
	}
	s.bulk = r.bytes >= bulkMin
	if e.carrier != nil {
		e.carrier(r)
	}
	used, listed := int64(0), int64(0)
	runs := r.runs
	for i := 1; i <= e.p.Ranks; i++ {
		to := (e.rank + i) % e.p.Ranks
		for len(runs) > 0 && int(runs[0].To) == to {
			if !e.carries(to) {
				if err := s.putRows(runs[0], x, scales); err != nil {
					return err
				}
			}
			runs = runs[1:]
		}
		var rec []byte
		if withRecords {
			rec = s.records[used:cap(s.records)]
			rec = rec[:plan.Records(&e.p, e.owners, &r.sent, to, rec)]
			used += int64(len(rec))
			var err error
			if listed, err = s.putList(r, to, listed); err != nil {
				return err
			}
		}
		if err := s.putSignal(e.arena.sizes.RecordAt(r.place.RecordBase[to]), rec, wordData, s.seq<<flagBits, to); err != nil {
			return err
		}
	}
	if e.carrier == nil {
		s.pad(&r.place)
	}
	if err := s.spread(ctx, r, withRecords); err != nil {
		return err
	}
	return s.finish(ctx, plan.Fault{})
}

func (s *slot) putRows(run plan.Run, x, scales []byte) error {
	p, sz := &s.e.p, &s.e.arena.sizes
	first := int64(run.Token)
	if err := s.put(sz.RowAt(p, run.Row), x[first*p.RowBytes:(first+run.N)*p.RowBytes], int(run.To)); err != nil {
		return err
	}
	if p.ScaleBytes == 0 {
		return nil
	}
	return s.put(sz.ScalesAt(p, run.Row), scales[first*p.ScaleBytes:(first+run.N)*p.ScaleBytes], int(run.To))
}

// pad zeroes the rows between one expert's last and the next one's first. No
// other rank writes there.
func (s *slot) pad(pl *plan.Placement) {
	p, sz := &s.e.p, &s.e.arena.sizes
	if !p.ExpertMajor {
		return
	}
	for l, n := range pl.Counts {
		from, to := pl.Offsets[l]+n, pl.Offsets[l+1]
		clear(s.mem[sz.RowAt(p, from):sz.RowAt(p, to)])
		clear(s.mem[sz.ScalesAt(p, from):sz.ScalesAt(p, to)])
	}
}

// received is the records that have come.
func (s *slot) received(pl *plan.Placement) []byte {
	sz := &s.e.arena.sizes
	return s.mem[sz.RecordAt(0):sz.RecordAt(pl.Records)]
}
