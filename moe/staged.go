package moe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
	"unsafe"

	"goshmem/heap"
	"goshmem/moe/internal/kernels"
	"goshmem/moe/internal/plan"
	"goshmem/pe"
)

// staged is a device engine whose ranks are of several nodes. What a call sends to other
// nodes goes to host memory, a host Engine makes the call there, and what arrives goes
// to the device. What stays on the node goes from device to device; the host engine says
// where to. The device posts calls in boxes in host memory and waits for answers there,
// so that calls stay on the stream; serve is the goroutine that makes them.
type staged struct {
	e       *DeviceEngine
	host    *Engine
	mem     heap.Ref // the host engine's memory and the slots' staging behind it
	local   []byte
	at      uint64 // of local, on the device; 0: not reachable yet
	staging int64  // where that begins in local
	sizes   plan.Staging
	slots   []*stagedSlot

	// backSMs is how many blocks offer results: where PEs share a device, no more than
	// all can have at once, since they may wait for each other.
	backSMs int

	now  *stagedSlot     // whose call serve makes
	life context.Context // of serve
	end  context.CancelFunc
	done chan struct{} // closed when serve is over; nil: it never began

	mu     sync.Mutex
	routes []*DeviceRouting // by the number that a call names it with
}

// stagedSlot is what a slot has beside: its staging, and what serve knows of it.
type stagedSlot struct {
	g     *staged
	s     *deviceSlot
	stage uint64 // address of kernels.Stage
	box   []uint64

	x, scales, back []byte
	idx             []int32
	weights         []float32
	moves, passes   []kernels.Move
	list            []uint64
	listW           []float32
	listN           []int32
	calling         uint64 // the call that is being made

	mirror   []byte // of what a device slot has before its rows and of a routing's head
	mirrorAt uint64
	spare    int64 // in mirror

	// What the rows are of.
	handle *Dispatched
	gen    uint64

	mu      sync.Mutex
	outcome outcome
}

// outcome is what became of a slot's latest call.
type outcome struct {
	gen    uint64
	counts DeviceCounts
	err    error
}

// StagedBytes is the symmetric host memory that a DeviceEngine over so many ranks of
// more than one node takes on each of them: the most, however they lie.
func (c Config) StagedBytes(ranks int) (int64, error) {
	p, err := c.params(max(ranks, 1))
	if err != nil {
		return 0, err
	}
	p.Fan = plan.FanMost(&p) + 1
	a, err := arrange(&p)
	if err != nil {
		return 0, err
	}
	_, _, total, err := stage(&p, &a)
	return total, err
}

// stage computes the staging, where it begins behind the engine's memory, and the whole.
func stage(p *plan.Params, a *arena) (sizes plan.Staging, begin, total int64, err error) {
	sizes, ok := plan.Stage(p, &a.sizes)
	begin, fits := plan.Pages(a.total)
	if !ok || !fits || begin > math.MaxInt-sizes.Total {
		return sizes, 0, 0, &ConfigError{"Config", "as given", "its buffers exceed 2^63 bytes"}
	}
	return sizes, begin, begin + sizes.Total, nil
}

// allocateStaged takes the host memory and makes the host engine, collectively, then
// takes this rank's device memory.
func (e *DeviceEngine) allocateStaged(ctx context.Context, mine *invite) error {
	g := &staged{e: e}
	g.life, g.end = context.WithCancel(context.Background())
	e.staged = g
	p := e.p
	p.Fan = e.nodes.Fan(&p, e.owners) + 1
	a, err := arrange(&p)
	if err != nil {
		return err
	}
	total := int64(0)
	if g.sizes, g.staging, total, err = stage(&p, &a); err != nil {
		return err
	}
	if g.mem, err = e.team.AllocMem(ctx, total, 4096); err != nil {
		return err
	}
	cfg := e.cfg
	cfg.Memory = g.mem
	if g.host, err = newEngine(ctx, e.team, cfg, g.planned); err != nil {
		return err
	}
	if g.local, err = e.team.PE().LocalBytes(g.mem, int(total)); err != nil {
		return err
	}
	if g.at, err = e.run.Register(unsafe.Pointer(unsafe.SliceData(g.local)), total, e.team.PE().Device() != nil); err != nil {
		return err
	}
	if e.arena, err = e.run.Alloc(e.arenaBytes()); err != nil {
		return err
	}
	mine.Arena, err = e.run.Export(e.arena)
	return err
}

// makeStages gives every slot its staging.
func (g *staged) makeStages(up *uploader, sharing int) error {
	e, c := g.e, &g.e.layout.Ctx
	g.backSMs = e.reduceSMs
	if sharing > 1 {
		g.backSMs = min(e.sms, e.reduceSMs)
	}
	posted := up.alloc(8)
	for i, s := range e.slots {
		t := &stagedSlot{g: g, s: s}
		s.staged = t
		g.slots = append(g.slots, t)
		box, boxAt, err := e.run.Pinned(8 * kernels.BoxWords)
		if err != nil {
			return err
		}
		e.pins = append(e.pins, box)
		t.box = unsafe.Slice((*uint64)(box), kernels.BoxWords)
		t.spare = c.Rows - c.Source
		n := t.spare + 8*(kernels.HeadWords+c.Ranks+1+2*c.Locals+1)
		mirror, mirrorAt, err := e.run.Pinned(n)
		if err != nil {
			return err
		}
		e.pins = append(e.pins, mirror)
		t.mirror, t.mirrorAt = unsafe.Slice((*byte)(mirror), n), mirrorAt
		t.place(g.staging+int64(i)*g.sizes.Slot, boxAt, posted, up)
	}
	return nil
}

// place finds the staging's parts and tells the device of them.
func (s *stagedSlot) place(base int64, box, posted uint64, up *uploader) {
	g, p, z := s.g, &s.g.e.p, &s.g.sizes
	part := func(off, end int64) []byte { return g.local[base+off : base+end : base+end] }
	at := func(off int64) uint64 { return g.at + uint64(base+off) }
	choices := p.MaxTokens * int64(p.TopK)
	s.x, s.scales = part(z.X, z.X+p.MaxTokens*p.RowBytes), part(z.Scales, z.Scales+p.MaxTokens*p.ScaleBytes)
	s.back = part(z.Back, z.Moves)
	s.moves, s.passes = view[kernels.Move](part(z.Moves, z.Passes)), view[kernels.Move](part(z.Passes, z.List))
	s.idx, s.weights = view[int32](part(z.Idx, z.Idx+4*choices)), view[float32](part(z.Weights, z.Weights+4*choices))
	s.list, s.listW = view[uint64](part(z.List, z.List+8*choices)), view[float32](part(z.ListW, z.ListW+4*choices))
	s.listN = view[int32](part(z.ListN, z.ListN+4*p.MaxTokens))
	w := kernels.Stage{
		Box: box, Posted: posted, X: at(z.X), Scales: at(z.Scales), Idx: at(z.Idx), W: at(z.Weights), Back: at(z.Back),
		Moves: at(z.Moves), Passes: at(z.Passes), List: at(z.List), ListW: at(z.ListW), ListN: at(z.ListN),
	}
	s.stage = up.words64(unsafe.Slice((*uint64)(unsafe.Pointer(&w)), unsafe.Sizeof(w)/8))
}

// view is memory as elements; it is aligned to them.
func view[T any](b []byte) []T {
	var x T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(x)))
}

// bytesOf is the other way.
func bytesOf[T any](v []T) []byte {
	var x T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(x)))
}

// route gives a routing a number, by which calls on the device name it.
func (g *staged) route(r *DeviceRouting) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.index = uint64(len(g.routes))
	g.routes = append(g.routes, r)
}

// start lets serve begin.
func (g *staged) start() {
	g.done = make(chan struct{})
	go g.serve()
}

// release ends serve and gives back what allocateStaged took.
func (g *staged) release(ctx context.Context) error {
	g.end()
	var all []error
	if g.done != nil {
		select {
		case <-g.done:
		case <-time.After(g.e.opt.Deadline):
			all = append(all, fmt.Errorf("a call on the host goes on: %w", &pe.TimeoutError{PE: -1}))
		}
	}
	if g.at != 0 {
		all = append(all, g.e.run.Unregister(unsafe.Pointer(unsafe.SliceData(g.local))))
	}
	if g.host != nil {
		all = append(all, g.host.Close(ctx))
	}
	if g.mem != (heap.Ref{}) {
		all = append(all, g.e.team.FreeMem(ctx, g.mem))
	}
	return errors.Join(all...)
}
