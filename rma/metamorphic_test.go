package rma_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"goshmem/amo"
	"goshmem/heap"
	"goshmem/internal/suite"
	"goshmem/pe"
	"goshmem/rma"
)

// player is one PE that carries out its log.
type player struct {
	*suite.Env
	ctxs   [2]*pe.Context
	data   heap.Ref // areas by source, then context
	words  heap.Array[uint64]
	sigs   heap.Signals // a set one and an add one each
	model  [][2]area    // by target
	later  []check      // reads that are certain after Quiet
	latest [2]rma.Ticket
}

// check is a non-blocking read and what it must bring.
type check struct {
	at   int
	got  []byte
	old  *uint64
	want []byte
	was  uint64
}

func (p *player) area(source, ctx int) int { return source*2 + ctx }

func newPlayer(e *suite.Env) *player {
	p := &player{Env: e, model: make([][2]area, e.Size())}
	p.ctxs[0] = e.C
	var err error
	p.ctxs[1], err = e.P.Team().NewContext(e.Ctx)
	e.OK(err)
	p.data, err = e.P.CallocMem(e.Ctx, int64(e.Size()*2*areaBytes), 0)
	e.OK(err)
	p.words = suite.Calloc[uint64](e, e.Size()*2*areaWords)
	p.sigs = e.Signals(e.Size() * 4)
	return p
}

func (p *player) play(log []step) {
	for i, s := range log {
		p.step(i, s)
	}
	p.quiet(0, len(log))
	p.quiet(1, len(log))
	p.Barrier()
}

func (p *player) quiet(ctx, at int) {
	p.OK(rma.Quiet(p.Ctx, p.ctxs[ctx]))
	if ctx == 0 {
		return // reads of both contexts are looked at when both are quiet
	}
	p.OK(rma.Quiet(p.Ctx, p.ctxs[0]))
	for _, c := range p.later {
		if i := differ(c.got, c.want); i >= 0 {
			p.Fatalf("step %d, seen at %d: byte %d of %d is %#x, want %#x", c.at, at, i, len(c.want), c.got[i], c.want[i])
		}
		if c.old != nil && *c.old != c.was {
			p.Fatalf("step %d, seen at %d: old value %d, want %d", c.at, at, *c.old, c.was)
		}
	}
	p.later = p.later[:0]
}

func (p *player) step(i int, s step) {
	c := p.ctxs[s.ctx]
	k := p.area(p.Rank(), s.ctx)
	at := p.data.Add(uint64(k*areaBytes + s.off))
	word := p.words.At(k*areaWords + s.word)
	sig, op := p.sigs.At(2*k), rma.SignalSet
	if s.add {
		sig, op = p.sigs.At(2*k+1), rma.SignalAdd
	}
	want, was := p.model[s.target][s.ctx].play(s)
	same := func(got []byte) {
		if k := differ(got, want); k >= 0 {
			p.Fatalf("step %d: %v: byte %d is %#x, want %#x", i, s, k, got[k], want[k])
		}
	}
	sameOld := func(old uint64, err error) {
		p.OK(err)
		if old != was {
			p.Fatalf("step %d: %v: old value %d, want %d", i, s, old, was)
		}
	}
	keep := func(t rma.Ticket, err error) {
		p.OK(err)
		p.latest[s.ctx] = t
	}
	src := func() []byte { return bytesOfSeed(s.seed, s.n) }
	switch s.kind {
	case kPut:
		b := src()
		p.OK(rma.PutMem(c, at, b, s.target))
		clear(b)
	case kPutNBI:
		keep(rma.PutMemNBI(c, at, src(), s.target))
	case kTryPut:
		p.Retry(func() error {
			t, err := rma.TryPutMemNBI(c, at, src(), s.target)
			p.latest[s.ctx] = t
			return err
		})
	case kGet:
		got := make([]byte, s.n)
		p.OK(rma.GetMem(c, got, at, s.target))
		same(got)
	case kGetNBI:
		got := make([]byte, s.n)
		keep(rma.GetMemNBI(c, got, at, s.target))
		p.later = append(p.later, check{at: i, got: got, want: want})
	case kPutSignal:
		b := src()
		p.OK(rma.PutMemSignal(c, at, b, sig, op, s.v, s.target))
		clear(b)
	case kPutSignalNBI:
		keep(rma.PutMemSignalNBI(c, at, src(), sig, op, s.v, s.target))
	case kSignal:
		p.OK(rma.Signal(c, sig, op, s.v, s.target))
	case kNotify:
		p.OK(rma.Notify(c, 4, s.target))
	case kPutValue:
		p.putValue(c, at, s)
	case kGetValue:
		same(p.getValue(c, at, s))
	case kIPut, kIPutNBI:
		a, err := pe.ArrayAt[uint32](p.P, at, s.n*s.far)
		p.OK(err)
		b := words32(bytesOfSeed(s.seed, 4*s.n*s.here))
		if s.kind == kIPut {
			p.OK(rma.IPut(c, a, b, s.far, s.here, s.n, s.target))
			clear(b)
		} else {
			keep(rma.IPutNBI(c, a, b, s.far, s.here, s.n, s.target))
		}
	case kIGet:
		a, err := pe.ArrayAt[uint32](p.P, at, s.n*s.far)
		p.OK(err)
		got := make([]uint32, s.n*s.here)
		p.OK(rma.IGet(c, got, a, s.here, s.far, s.n, s.target))
		same(bytes32(got))
	case kBatch:
		offs, srcs := s.items()
		var items []rma.BatchItem
		for j := range offs {
			items = append(items, rma.BatchItem{Dst: at.Add(uint64(offs[j] - s.off)), Src: srcs[j]})
		}
		keep(rma.PutBatch(c, items, s.target))
	case kAMOSet:
		p.OK(amo.Set(c, word, s.v, s.target))
	case kAMOAdd:
		p.OK(amo.Add(c, word, s.v, s.target))
	case kFetchAdd:
		sameOld(amo.FetchAdd(c, word, s.v, s.target))
	case kCompareSwap:
		sameOld(amo.CompareSwap(c, word, s.cond, s.v, s.target))
	case kFetchXorNBI:
		old := new(uint64)
		keep(amo.FetchXorNBI(c, old, word, s.v, s.target))
		p.later = append(p.later, check{at: i, old: old, was: was})
	case kFence:
		p.OK(rma.Fence(c))
	case kQuiet:
		p.quiet(s.ctx, i)
	case kWait:
		p.OK(rma.Wait(p.Ctx, c, p.latest[s.ctx]))
	case kCollect:
		if s.v == 0 {
			runtime.GC()
		}
	}
}

// differ is the first index at which two slices of one length do; -1: nowhere.
func differ(got, want []byte) int {
	for i := range want {
		if got[i] != want[i] {
			return i
		}
	}
	return -1
}

func (p *player) putValue(c *pe.Context, at heap.Ref, s step) {
	switch v := s.value(); s.n {
	case 1:
		p.OK(rma.PutValue(c, heap.MakePtr[uint8](at), uint8(v), s.target))
	case 2:
		p.OK(rma.PutValue(c, heap.MakePtr[uint16](at), uint16(v), s.target))
	case 4:
		p.OK(rma.PutValue(c, heap.MakePtr[uint32](at), uint32(v), s.target))
	default:
		p.OK(rma.PutValue(c, heap.MakePtr[uint64](at), v, s.target))
	}
}

func (p *player) getValue(c *pe.Context, at heap.Ref, s step) []byte {
	var v uint64
	take := func(x uint64, err error) {
		p.OK(err)
		v = x
	}
	switch s.n {
	case 1:
		x, err := rma.GetValue(c, heap.MakePtr[uint8](at), s.target)
		take(uint64(x), err)
	case 2:
		x, err := rma.GetValue(c, heap.MakePtr[uint16](at), s.target)
		take(uint64(x), err)
	case 4:
		x, err := rma.GetValue(c, heap.MakePtr[uint32](at), s.target)
		take(uint64(x), err)
	default:
		take(rma.GetValue(c, heap.MakePtr[uint64](at), s.target))
	}
	b := make([]byte, s.n)
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
	return b
}

// compare checks this PE's heap against what all logs leave there.
func (p *player) compare(logs [][]step) {
	own := p.Bytes(p.data, p.Size()*2*areaBytes)
	for source, log := range logs {
		for ctx, want := range final(log, p.Rank()) {
			k := p.area(source, ctx)
			got := own[k*areaBytes:][:areaBytes]
			for i, b := range want.data {
				if got[i] != b {
					p.Fatalf("area of pe %d, ctx %d: byte %d is %#x, want %#x", source, ctx, i, got[i], b)
				}
			}
			for i, w := range want.words {
				p.Equal(w, p.words.Local()[k*areaWords+i])
			}
			for i, w := range []uint64{want.set, want.add} {
				v, err := rma.ReadSignal(p.C, p.sigs.At(2*k+i))
				p.OK(err)
				p.Equal(w, v)
			}
			p.OK(rma.WaitNotify(p.Ctx, p.ctxs[ctx], 4, source, want.notify))
		}
	}
	p.Barrier()
}

// perform runs logs, one for each PE, on a configuration.
func perform(t *testing.T, cfg pe.Config, logs [][]step) error {
	cfg.Size = len(logs)
	cfg.HeapSize, cfg.InlineMax, cfg.Timeout = 1<<20, queuedAt, 20*time.Second
	return pe.Run(t.Context(), cfg, func(p *pe.PE) error {
		return suite.Body(t.Context(), p, cfg, func(e *suite.Env) {
			player := newPlayer(e)
			player.play(logs[e.Rank()])
			player.compare(logs)
		})
	})
}

// A random log gives the same on every path and ring capacity: what a model of
// plain arrays gives.
func TestMetamorphic(t *testing.T) {
	configs := []pe.Config{
		{Path: "direct", RingCapacity: 1024}, {Path: "direct", RingCapacity: 1},
		{Path: "proxy", RingCapacity: 1}, {Path: "proxy", RingCapacity: 2}, {Path: "proxy", RingCapacity: 1024},
		{Path: "proxy", RingCapacity: 16, Window: 1, Backlog: 2},
	}
	for seed := range uint64(suite.Times(16)) {
		n := 1 + int(seed%4)
		logs := make([][]step, n)
		for rank := range logs {
			logs[rank] = generate(seed, rank, n, 400)
		}
		for _, cfg := range configs {
			if err := perform(t, cfg, logs); err != nil {
				t.Fatalf("seed %d, %s, ring of %d: %v\n%s", seed, cfg.Path, cfg.RingCapacity, err, reduced(t, cfg, logs))
			}
		}
	}
}

// reduced leaves out what a failure does not need, as far as some tries go.
func reduced(t *testing.T, cfg pe.Config, logs [][]step) string {
	tries := 60
	fails := func(some [][]step) bool {
		tries--
		return perform(t, cfg, some) != nil
	}
	for chunk := 200; chunk >= 5 && tries > 0; chunk /= 2 {
		for rank := range logs {
			for at := 0; at < len(logs[rank]) && tries > 0; {
				some := append([][]step(nil), logs...)
				end := min(at+chunk, len(logs[rank]))
				some[rank] = append(append([]step(nil), logs[rank][:at]...), logs[rank][end:]...)
				if fails(some) {
					logs = some
				} else {
					at = end
				}
			}
		}
	}
	var b strings.Builder
	for rank, log := range logs {
		for _, s := range log {
			fmt.Fprintf(&b, "pe %d: %v\n", rank, s)
		}
	}
	return b.String()
}
