package moe

import (
	"context"
	"slices"

	"goshmem/moe/internal/kernels"
	"goshmem/moe/internal/plan"
	"goshmem/pe"
)

// DeviceInput is what a rank dispatches: device addresses of Engine.Dispatch's
// arguments, for so many tokens. They are read when the stream gets there, but for
// Idx and Weights, which are copied then.
type DeviceInput struct {
	Tokens       int
	X, Scales    uint64 // rows; scales of each, where Config.ScaleBytes
	Idx, Weights uint64 // int32 and float32, [Tokens*TopK]
}

// DeviceRouting is where the rows of a dispatch went; see DeviceDispatched.Routing.
type DeviceRouting struct {
	e      *DeviceEngine
	at     uint64
	number uint64
	tokens int

	index uint64   // staged: its number
	host  *Routing // likewise; serve's
}

// DeviceDispatched is what a rank receives, as device addresses of what Dispatched
// has as slices. What is behind them is there when the stream gets to what follows
// the dispatch, and until the InFlight-th dispatch after it.
//
// L is the number of this rank's experts and R that of ranks.
type DeviceDispatched struct {
	Rows, Scales   uint64
	Source, Token  uint64 // int32
	Choice         uint64 // int32, ExpertMajor; else 0
	Local, Weights uint64 // int32, float32
	PairStart      uint64 // int64 [rows+1], RankMajor
	Counts         uint64 // int64 [L]
	Offsets        uint64 // int64 [L+1]
	FromCounts     uint64 // int64 [R+1]: where each rank's records begin, and the end

	// Output is symmetric memory for the experts' output. A combine whose y is Output
	// need not copy it first (WeightsAtSource and the direct mover). It may be written
	// from the end of the dispatch on, and again when a combine is over. 0: there is
	// none.
	Output uint64

	s       *deviceSlot
	gen     uint64
	routing *DeviceRouting
	cached  bool
}

// DeviceCounts is what a dispatch delivered, for the host.
type DeviceCounts struct {
	Rows       int64   // received, padding included
	OutputRows int64   // rows of the combine's input
	Counts     []int64 // [L] choices of each expert
	Offsets    []int64 // [L+1] as Dispatched.Offsets
	FromCounts []int64 // [R] records from each rank
}

// Dispatch enqueues a dispatch: when the stream gets to what follows, everything has
// arrived.
//
// An argument that the host can check is this rank's error at once; the other ranks
// get it from Wait, as *RemoteError. What only the device sees (an index out of
// range, a duplicate, too many rows) is the error of Wait, nothing was delivered, and
// the engine goes on; a combine of that handle is ErrBadRef.
func (e *DeviceEngine) Dispatch(stream uintptr, in DeviceInput) (*DeviceDispatched, error) {
	d, err := e.dispatch(stream, nil, false, in, true)
	return d, wrap("dispatch", err)
}

// StartDispatch enqueues the sending half of a dispatch; Finish enqueues the wait
// for what arrives. Work enqueued between them overlaps with the rows' way.
func (e *DeviceEngine) StartDispatch(stream uintptr, in DeviceInput) (*DeviceDispatched, error) {
	d, err := e.dispatch(stream, nil, false, in, false)
	return d, wrap("start dispatch", err)
}

// DispatchCached is Dispatch along a routing of before; counts are not exchanged
// again.
func (e *DeviceEngine) DispatchCached(stream uintptr, r *DeviceRouting, x, scales uint64) (*DeviceDispatched, error) {
	d, err := e.dispatch(stream, r, true, DeviceInput{X: x, Scales: scales}, true)
	return d, wrap("cached dispatch", err)
}

// StartDispatchCached is StartDispatch along a routing of before.
func (e *DeviceEngine) StartDispatchCached(stream uintptr, r *DeviceRouting, x, scales uint64) (*DeviceDispatched, error) {
	d, err := e.dispatch(stream, r, true, DeviceInput{X: x, Scales: scales}, false)
	return d, wrap("start cached dispatch", err)
}

func (e *DeviceEngine) dispatch(stream uintptr, r *DeviceRouting, cached bool, in DeviceInput, wait bool) (*DeviceDispatched, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(); err != nil {
		return nil, err
	}
	s := e.slots[e.turn%uint64(len(e.slots))]
	var f plan.Fault
	switch {
	case !cached:
		r = s.routing
		r.number, r.tokens = e.turn+1, max(in.Tokens, 0)
	case r == nil || r.e != e:
		f.Code = plan.Foreign
		r = &DeviceRouting{}
	default:
		in.Tokens = r.tokens
	}
	if f.Code == plan.None {
		f = e.checkInput(in, cached)
	}
	e.turn++
	e.gen++
	s.gen, s.combined = e.gen, false
	d := s.handle(r, cached)
	err := e.run.Enter()
	if err == nil {
		if s.staged != nil {
			err = s.staged.hand(stream, d, in, f, wait)
		} else {
			err = s.launch(stream, d, in, f, wait)
		}
		if err == nil {
			err = s.mark(stream)
		}
		e.run.Leave()
	}
	if err != nil {
		return nil, e.fail(err)
	}
	if f.Code != plan.None {
		return nil, faultError(f)
	}
	return d, nil
}

// usable is called with mu held.
func (e *DeviceEngine) usable() error {
	if b := e.broken.Load(); b != nil {
		return b
	}
	if e.closed {
		return &pe.ClosedError{PE: -1}
	}
	return nil
}

// fail: a call of the driver was refused, the ranks no longer agree.
func (e *DeviceEngine) fail(cause error) error {
	b := &BrokenError{PE: e.rank, Err: cause}
	if e.broken.CompareAndSwap(nil, b) {
		e.stop.Store(1)
	}
	return e.broken.Load()
}

// launch enqueues a kernel. The device is current, mu held.
func (e *DeviceEngine) launch(k kernels.Kernel, blocks, threads int, shared uint32, stream uintptr, params ...uint64) error {
	n := copy(e.params[:], params)
	return e.run.Launch(k, uint32(blocks), uint32(threads), shared, stream, e.params[:n]...)
}

func (e *DeviceEngine) checkInput(in DeviceInput, cached bool) plan.Fault {
	switch {
	case in.Tokens < 0:
		return plan.Fault{Code: plan.BadArgument, A: plan.ArgIdx, B: int64(in.Tokens), C: 0}
	case int64(in.Tokens) > e.p.MaxTokens:
		return plan.Fault{Code: plan.TooMany, A: int64(in.Tokens), B: e.p.MaxTokens}
	case in.Tokens == 0:
		return plan.Fault{}
	}
	for _, a := range []struct {
		arg   int64
		at    uint64
		align uint64
		want  bool
		bytes int64
	}{
		{plan.ArgX, in.X, 1, true, e.p.RowBytes},
		{plan.ArgScales, in.Scales, 1, e.p.ScaleBytes > 0, e.p.ScaleBytes},
		{plan.ArgIdx, in.Idx, 4, !cached, 0},
		{plan.ArgWeights, in.Weights, 4, !cached, 0},
	} {
		if a.want && (a.at == 0 || a.at%a.align != 0) {
			return plan.Fault{Code: plan.BadArgument, A: a.arg, B: 0, C: int64(in.Tokens)}
		}
		if a.want && a.bytes > 0 && e.inside(a.at, int64(in.Tokens)*a.bytes) {
			return plan.Fault{Code: plan.Aliased, A: a.arg}
		}
	}
	return plan.Fault{}
}

// inside reports whether memory overlaps the receive buffers.
func (e *DeviceEngine) inside(at uint64, n int64) bool {
	end := e.arena + uint64(e.arenaBytes())
	return at < end && at+uint64(n) > e.arena
}

func (s *deviceSlot) handle(r *DeviceRouting, cached bool) *DeviceDispatched {
	c := &s.e.layout.Ctx
	at := func(off int64) uint64 { return s.base + uint64(off) }
	d := &DeviceDispatched{
		Rows: at(c.Rows), Source: at(c.Source), Token: at(c.Token), Local: at(c.Local), Weights: at(c.Weight),
		Counts: r.at + uint64(c.RCounts), Offsets: r.at + uint64(c.ROffsets), FromCounts: r.at + uint64(c.RFrom),
		s: s, gen: s.gen, routing: r, cached: cached,
	}
	if s.e.p.ScaleBytes > 0 {
		d.Scales = at(c.Scales)
	}
	if s.e.p.ExpertMajor {
		d.Choice = at(c.Choice)
	} else {
		d.PairStart = at(c.PairStart)
	}
	if !s.e.p.AtExpert && c.Engine == 0 && s.staged == nil {
		d.Output = at(c.Back)
	}
	return d
}

// manyTokens a block are worth bulk copies; of fewer, warps share the rows.
const manyTokens = 16

// launch enqueues a dispatch's kernels.
func (s *deviceSlot) launch(stream uintptr, d *DeviceDispatched, in DeviceInput, f plan.Fault, wait bool) error {
	e := s.e
	engine := e.opt.Mover == MoverCopyEngine
	options := uint64(0)
	if d.cached {
		options |= kernels.OptCached
	}
	if wait && !engine {
		options |= kernels.OptWait
	}
	interval, stages := int64(0), e.stages
	if e.bulk && in.X%16 == 0 && (in.Tokens >= manyTokens*e.sms || e.p.TopK > kernels.FetchTopK) {
		options |= kernels.OptBulk
		if e.p.TopK <= kernels.FetchTopK {
			interval = e.interval
		}
	}
	if options&kernels.OptBulk == 0 {
		stages = 1 // room for choices alone
	}
	if engine {
		options |= kernels.OptEngine
	}
	err := e.launch(kernels.Dispatch, e.sms, kernels.Threads, kernels.DispatchShared(e.stage, stages), stream,
		s.ctx, d.routing.at, in.X, in.Scales, in.Idx, in.Weights, uint64(in.Tokens), d.gen, options, d.routing.number,
		uint64(f.Code), uint64(f.A), uint64(f.B), uint64(f.C), uint64(e.stage), uint64(stages), uint64(interval))
	if err != nil {
		return err
	}
	if engine && f.Code == plan.None {
		if err := s.carry(stream, d, in); err != nil {
			return err
		}
		if wait {
			return s.unpack(stream, d)
		}
	}
	return nil
}

// mark records the end of a call, for Wait; not in a graph.
func (s *deviceSlot) mark(stream uintptr) error {
	capturing, err := s.e.run.Capturing(stream)
	if err != nil || capturing {
		return err
	}
	return s.e.run.Record(s.event, stream)
}

// Finish enqueues the wait of a started dispatch.
func (d *DeviceDispatched) Finish(stream uintptr) error {
	e := d.s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.usable()
	if err == nil {
		err = e.run.Enter()
	}
	if err == nil {
		err = d.s.finish(stream, d)
		e.run.Leave()
	}
	return wrap("finish dispatch", err)
}

func (s *deviceSlot) finish(stream uintptr, d *DeviceDispatched) (err error) {
	switch {
	case s.staged != nil:
		err = s.staged.take(stream, d)
	case s.e.opt.Mover == MoverCopyEngine:
		err = s.unpack(stream, d)
	default:
		err = s.await(stream, d, kernels.FlagData, kernels.LastPart)
	}
	if err != nil {
		return err
	}
	return s.mark(stream)
}

func (s *deviceSlot) await(stream uintptr, d *DeviceDispatched, kind, part uint64) error {
	return s.e.launch(kernels.Await, 1, kernels.WaitThreads, uint32(kernels.SharedBase), stream,
		s.ctx, d.routing.at, d.gen, kind, part)
}

// Wait waits on the host until a call with these rows is over, and returns what came
// of the latest one: the counts of the dispatch, or what was found wrong. Not while
// the call is being captured.
func (d *DeviceDispatched) Wait(ctx context.Context) (DeviceCounts, error) {
	c, err := d.wait(ctx)
	return c, wrap("wait", err)
}

func (d *DeviceDispatched) wait(ctx context.Context) (c DeviceCounts, err error) {
	s := d.s
	if err := s.e.passed(ctx, s.event); err != nil {
		return c, err
	}
	if s.staged != nil {
		return s.staged.wait(ctx, d.gen)
	}
	if err := s.verdict(d.gen); err != nil {
		return c, err
	}
	w := s.report
	r, l := s.e.ranks, int(s.e.layout.Ctx.Locals)
	c.Rows, c.OutputRows = int64(w[kernels.WRows]), int64(w[kernels.WPairs])
	if s.e.p.ExpertMajor {
		c.OutputRows = c.Rows
	}
	all := make([]int64, r+1+2*l+1)
	for i := range all {
		all[i] = int64(w[kernels.ReportHead+i])
	}
	c.FromCounts = slices.Clone(all[:r])
	for i := range c.FromCounts {
		c.FromCounts[i] = all[i+1] - all[i]
	}
	c.Counts, c.Offsets = all[r+1:r+1+l], all[r+1+l:]
	return c, nil
}

// verdict is what the device reported of the call gen.
func (s *deviceSlot) verdict(gen uint64) error {
	if err := s.e.overdue(); err != nil {
		return err
	}
	w := s.report
	if w[kernels.WGen] != gen || s.e.count.Load() >= w[kernels.WLast]+uint64(s.e.p.Slots) {
		return faultError(plan.Fault{Code: plan.Stale})
	}
	f := plan.Fault{Code: plan.Code(w[kernels.WCode]), A: int64(w[kernels.WA]), B: int64(w[kernels.WB]), C: int64(w[kernels.WC])}
	if f.Code == plan.None {
		return nil
	}
	err := faultError(f)
	if rank := int(w[kernels.WPE]); rank != s.e.rank {
		err = &RemoteError{PE: rank, Err: err}
	}
	return err
}

// overdue reports a wait on the device that has timed out: that breaks the engine.
func (e *DeviceEngine) overdue() error {
	for _, s := range e.slots {
		if w := s.report; w[kernels.WCode] == kernels.TimedOut {
			e.broken.CompareAndSwap(nil, &BrokenError{PE: e.rank, Err: &pe.TimeoutError{PE: int(w[kernels.WPE])}})
			return e.broken.Load()
		}
	}
	return nil
}

// Routing keeps the routing of the dispatch for DispatchCached, as long as the engine
// lives. The first call for a dispatch allocates device memory.
func (d *DeviceDispatched) Routing() (*DeviceRouting, error) {
	e := d.s.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if !d.live() {
		return nil, wrap("routing", faultError(plan.Fault{Code: plan.Stale}))
	}
	if d.routing == d.s.routing { // the next dispatch takes other memory
		at, err := e.run.Alloc(e.layout.Routing)
		if err != nil {
			return nil, wrap("routing", err)
		}
		e.private = append(e.private, at)
		d.s.routing = e.newRouting(at)
	}
	return d.routing, nil
}
