package moe

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"goshmem/internal/spin"
	"goshmem/moe/internal/kernels"
	"goshmem/moe/internal/plan"
)

// stagedNap is how long serve sleeps between looks when there was nothing for long.
const stagedNap = 50 * time.Microsecond

// serve makes the calls that the device posts, in their order, until the engine is
// closed. A call that breaks the host engine makes all later ones come to nothing at
// once, so that nothing on the device waits long.
func (g *staged) serve() {
	defer close(g.done)
	shared := g.e.team.PE().World().Oversubscribed()
	idle := spin.Ladder{Policy: spin.Auto(shared, false, 0, time.Millisecond)}
	for n := uint64(1); g.life.Err() == nil; {
		s := g.caller(n)
		if s == nil {
			if idle.Next() {
				time.Sleep(stagedNap)
			}
			continue
		}
		idle.Reset()
		s.carry(n)
		n++
	}
}

// caller is the slot whose box holds call n.
func (g *staged) caller(n uint64) *stagedSlot {
	for _, s := range g.slots {
		if atomic.LoadUint64(&s.box[kernels.BSeq]) == n {
			return s
		}
	}
	return nil
}

// request is a posted call.
type request struct {
	call   uint32 // plan.CallDispatch, …
	tokens int64
	gen    uint64
	route  *DeviceRouting
	fault  plan.Fault
}

func (s *stagedSlot) request() request {
	b, g := s.box, s.g
	r := request{call: uint32(b[kernels.BKind]), tokens: int64(b[kernels.BTokens]), gen: b[kernels.BGen]}
	r.fault = plan.Fault{Code: plan.Code(b[kernels.BCode]), A: int64(b[kernels.BA]), B: int64(b[kernels.BB]), C: int64(b[kernels.BC])}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := b[kernels.BRouting]; i < uint64(len(g.routes)) {
		r.route = g.routes[i]
	}
	return r
}

// carry makes call n and answers it.
func (s *stagedSlot) carry(n uint64) {
	e := s.g.e
	ctx, cancel := context.WithTimeout(s.g.life, e.opt.Deadline)
	defer cancel()
	r := s.request()
	s.calling, s.g.now = n, s
	s.box[kernels.BRefused] = 0
	var err error
	if r.call == plan.CallCombine {
		err = s.combine(ctx, r)
	} else {
		err = s.dispatch(ctx, r)
	}
	var b *BrokenError
	if errors.As(err, &b) {
		e.broken.CompareAndSwap(nil, b)
	}
	s.mu.Lock()
	s.outcome.gen, s.outcome.err = r.gen, err
	s.mu.Unlock()
	if err != nil {
		s.box[kernels.BRefused] = 1
	}
	atomic.StoreUint64(&s.box[kernels.BPlanned], n)
	atomic.StoreUint64(&s.box[kernels.BDone], n)
}

// dispatch makes a dispatch and lists what it has brought.
func (s *stagedSlot) dispatch(ctx context.Context, r request) error {
	g, p := s.g, &s.g.e.p
	s.handle, s.gen = nil, r.gen
	hs, number, err := g.host.take(nil)
	if err != nil {
		return err
	}
	defer g.host.done(hs)
	if r.fault.Code != plan.None {
		r.tokens = 0
	}
	x, scales := s.x[:r.tokens*p.RowBytes], s.scales[:r.tokens*p.ScaleBytes]
	var d *Dispatched
	if r.call == plan.CallCached {
		var routing *Routing
		if r.route != nil {
			routing = r.route.host
		}
		d, err = hs.cached(ctx, routing, r.fault, x, scales)
	} else {
		n := r.tokens * int64(p.TopK)
		to, f := hs.route(number, x, scales, s.idx[:n], s.weights[:n])
		if r.fault.Code != plan.None {
			f = r.fault
		}
		if d, err = hs.dispatch(ctx, to, f, x, scales); err == nil {
			r.route.keep(d.routing)
		}
	}
	if err != nil {
		return err
	}
	s.handle = d
	s.fetched(d, r.route)
	s.count(d)
	return nil
}

// keep makes a routing what this one stands for; the one before is no longer needed.
func (r *DeviceRouting) keep(now *Routing) {
	host, old := now.e, r.host
	host.mu.Lock()
	defer host.mu.Unlock()
	now.kept, r.host = true, now
	if old == nil || old == now {
		return
	}
	old.kept = false
	for _, s := range host.slots {
		if s.routing == old {
			return // it is given back with the slot's rows
		}
	}
	host.spare = append(host.spare, old)
}

// count keeps the counts for the host.
func (s *stagedSlot) count(d *Dispatched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, pl := &s.outcome.counts, &d.routing.place
	c.Rows, c.OutputRows = pl.Rows, d.OutputRows
	c.Counts = append(c.Counts[:0], pl.Counts...)
	c.Offsets = append(c.Offsets[:0], pl.Offsets...)
	c.FromCounts = c.FromCounts[:0]
	for i := range s.g.e.ranks {
		c.FromCounts = append(c.FromCounts, pl.From[i+1]-pl.From[i])
	}
}

// fetched lists what a dispatch has brought: rows where they arrived, and what goes with
// them, by way of the mirror.
func (s *stagedSlot) fetched(d *Dispatched, to *DeviceRouting) {
	e, c, hs := s.g.e, &s.g.e.layout.Ctx, d.s
	r, sz := d.routing, &hs.e.arena.sizes
	pl, a := &r.place, &r.arrived
	l := lister{s: s}
	s.box[kernels.BRows] = s.g.hostAddr(hs, sz.RowAt(&e.p, 0))
	s.box[kernels.BScales] = s.g.hostAddr(hs, sz.ScalesAt(&e.p, 0))
	s.pass(r)
	l.beside(c.Source, bytesOf(a.Source))
	l.beside(c.Token, bytesOf(a.Token))
	l.beside(c.Local, bytesOf(a.Local))
	l.beside(c.Weight, bytesOf(a.Weight))
	l.beside(c.PairStart, bytesOf(a.PairStart))
	l.beside(c.PairWeight, bytesOf(a.PairWeight))
	if e.p.ExpertMajor {
		l.beside(c.Choice, bytesOf(a.Choice))
		l.beside(c.PairRow, bytesOf(a.PairRow))
	}
	l.behind(to.at, bytesOf([]int64{int64(r.sent.T), pl.Records, pl.Rows, pl.Pairs}))
	l.behind(to.at+uint64(c.RFrom), bytesOf(pl.From))
	l.behind(to.at+uint64(c.RCounts), bytesOf(pl.Counts))
	l.behind(to.at+uint64(c.ROffsets), bytesOf(pl.Offsets))
	s.box[kernels.BPieces] = uint64(l.n)
}

// hostAddr is where an offset of a host engine's slot is, as the device names it.
func (g *staged) hostAddr(s *slot, off int64) uint64 {
	return g.at + s.base.Offset() - g.mem.Offset() + uint64(off)
}

// lister fills the table of a box.
type lister struct {
	s    *stagedSlot
	n    int
	used int64 // of the mirror's spare part
}

func (l *lister) piece(to, from uint64, n int64) {
	if n == 0 {
		return
	}
	w := l.s.box[kernels.BTable+l.n*kernels.PieceWords:]
	w[0], w[1], w[2] = to, from, uint64(n)
	l.n++
}

// beside sends what lies in front of a device slot's rows.
func (l *lister) beside(off int64, b []byte) {
	m := off - l.s.g.e.layout.Ctx.Source
	copy(l.s.mirror[m:], b)
	l.piece(l.s.s.base+uint64(off), l.s.mirrorAt+uint64(m), int64(len(b)))
}

// behind sends what lies elsewhere.
func (l *lister) behind(to uint64, b []byte) {
	m := l.s.spare + l.used
	copy(l.s.mirror[m:], b)
	l.piece(to, l.s.mirrorAt+uint64(m), int64(len(b)))
	l.used += int64(len(b))
}

// combine brings results here and lists what is to be added up.
func (s *stagedSlot) combine(ctx context.Context, r request) error {
	host, d := s.g.host, s.handle
	if r.fault.Code == plan.None && (d == nil || s.gen != r.gen) {
		r.fault.Code = plan.Stale
	}
	hs, _, err := host.take(host.slotOf(d))
	if err != nil {
		return err
	}
	defer host.done(hs)
	if r.fault.Code == plan.None && d.stale() {
		r.fault.Code = plan.Stale
	}
	give, sent := hs.giveChoices, s.back
	if host.p.AtExpert {
		give = hs.giveReady
	}
	if r.fault.Code == plan.None {
		n := d.OutputRows * host.p.YBytes // what goes to this node is not there
		if host.p.AtExpert {
			n = d.routing.place.Records * host.p.PartialBytes
		}
		sent = s.back[:n*host.p.Hidden]
	}
	if _, err := hs.bring(ctx, d, r.fault, sent, give); err != nil {
		return err
	}
	s.listSums(d)
	s.box[kernels.BSums] = uint64(d.routing.sent.T)
	return nil
}

// giveReady sends a source the shares of its tokens, which are added up already.
func (s *slot) giveReady(d *Dispatched, shares []byte, to int) (int64, error) {
	p, pl := &s.e.p, &d.routing.place
	row := p.BackBytes()
	from, end := pl.From[to]*row, pl.From[to+1]*row
	return end - from, s.put(s.e.arena.sizes.BackAt(p, pl.ReturnBase[to]), shares[from:end], to)
}

// planned lists what a dispatch sends within the node, and lets the device begin.
func (g *staged) planned(r *Routing) {
	s, e, n := g.now, g.host, 0
	rows := int64(0)
	for _, run := range r.runs {
		if e.carries(int(run.To)) {
			rows += run.N
		}
	}
	most := g.stretch(rows)
	for _, run := range r.runs {
		if e.carries(int(run.To)) {
			n = stretches(s.moves, n, most, plan.Forward{To: run.To, N: run.N, From: int64(run.Token), Row: run.Row})
		}
	}
	s.box[kernels.BMoves] = uint64(n)
	atomic.StoreUint64(&s.box[kernels.BPlanned], s.calling)
}

// pass lists the rows that have come from other nodes, those to be passed on, and those
// that are padding.
func (s *stagedSlot) pass(r *Routing) {
	rank, rows := int32(s.g.e.rank), int64(0)
	landed := func(f *plan.Forward) bool { return f.To == rank && f.From == f.Row }
	for _, all := range r.relay {
		for _, f := range all {
			rows += f.N
		}
	}
	n, most := 0, s.g.stretch(rows)
	for i, word := range []int{kernels.BLanded, kernels.BPassed} {
		before := n
		for _, all := range r.relay {
			for _, f := range all {
				if landed(&f) == (i == 0) {
					n = stretches(s.passes, n, most, f)
				}
			}
		}
		s.box[word] = uint64(n - before)
	}
	before := n
	if s.g.e.p.ExpertMajor {
		for l, count := range r.place.Counts {
			if from, to := r.place.Offsets[l]+count, r.place.Offsets[l+1]; from < to {
				n = stretches(s.passes, n, to-from, plan.Forward{To: rank, N: to - from, From: from, Row: from})
			}
		}
	}
	s.box[kernels.BBlank] = uint64(n - before)
}

// stretch is how many rows a warp moves at once, of so many: each has some to do.
func (g *staged) stretch(rows int64) int64 {
	const most = 16
	return min(max(rows/int64(g.e.sms*kernels.Threads/32), 1), most)
}

// stretches lists rows to be moved, no more than most at once, from entry n on.
func stretches(all []kernels.Move, n int, most int64, f plan.Forward) int {
	for i := int64(0); i < f.N; i += most {
		all[n] = kernels.Move{To: f.To, N: int32(min(most, f.N-i)), From: f.From + i, Row: f.Row + i}
		n++
	}
	return n
}

// listSums lists for each token where the rows to add up are, in the order of
// slot.gather: at a rank of this node, or come from another.
func (s *stagedSlot) listSums(d *Dispatched) {
	g, r, hs, p := s.g, d.routing, d.s, &s.g.e.p
	e, pl := g.host, &r.place
	row := uint64(p.BackBytes())
	home := g.hostAddr(hs, e.arena.sizes.BackAt(p, 0))
	hs.homing.Start(p, e.owners, pl)
	// By rank, or by expert: the next result there that is this rank's.
	next := append([]int64(nil), pl.RecordBase...)
	switch {
	case p.AtExpert:
	case p.ExpertMajor:
		next = append(next[:0], pl.ExpertBase...)
	default:
		next = append(next[:0], pl.PairBase...)
	}
	for t := range r.sent.T {
		from := t * p.TopK
		found := hs.results(r, t)
		for n, x := range found {
			i := x.rank
			if p.ExpertMajor && !p.AtExpert {
				i = x.expert
			}
			at := home + uint64(x.home)*row
			if e.carries(int(x.rank)) {
				at = s.s.peers[x.rank] + uint64(g.e.layout.Ctx.Back) + uint64(next[i])*row
			}
			next[i]++
			s.list[from+n], s.listW[from+n] = at, x.weight
		}
		s.listN[t] = int32(len(found))
	}
}
