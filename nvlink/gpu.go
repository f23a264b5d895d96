package nvlink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/nvlink/device"
)

// GPU is the transport of a world whose PEs have device memory: what touches none
// is carried out as by Host, the rest by streams of the lane's owner's device. A
// lane uses one stream; lanes share them.
//
// Order: a lane has one executing agent at a time. What the CPU must do waits until
// the lane's streams are done, and the other way round. A signal behind a copy is a
// store of the same stream, behind the copy.
type GPU struct {
	*Host
	cfg     GPUConfig
	streams map[int][]*stream // by the owner's rank; PEs of one device share them

	cells cells

	engines []*stream // resident kernels, where wanted

	movers  map[device.Device][]*stream // where some peers are not mapped: out of and into pipes
	ferries map[[2]int]*stream          // pipes by source and target
	intakes []*intake

	controlMu sync.Mutex
	controls  map[device.Device]*control
	waiting   atomic.Int32 // users' open streams that have waited

	// Under the proxy's role.
	active []*lane
	next   int

	closed atomic.Bool
	once   sync.Once
	end    error
}

// GPUConfig is what a world knows of its devices.
type GPUConfig struct {
	Table   *heap.Table // with device addresses in Addr of every region reached
	PEs     int
	Devices map[int]device.Device // of this process's PEs, by rank
	UUID    []string              // of every PE's device; empty: none here
	Streams int                   // most of this process
	Engine  bool                  // small puts and gets by a resident kernel of each device
	Share   device.Share          // how memory is shared, for people

	// Where a device's memory is not mapped for another's. nil: everywhere.
	Staged func(owner, peer int) bool
	Pipe   func(source int) (off uint64, ok bool) // of its pipe in the runtime region, PipeSize bytes
	Knock  func(local int)                        // rings a PE of this process
}

// stageSize is a stream's room for data on its way from or to memory that no
// device reaches; stagePiece the most that goes at once.
const (
	stageSize  = 4 << 20
	stagePiece = 256 << 10
)

// NewGPU makes the transport: streams and staging memory for every device.
func NewGPU(cfg GPUConfig) (*GPU, error) {
	g := &GPU{
		Host: NewHost(cfg.Table, cfg.PEs), cfg: cfg,
		streams:  map[int][]*stream{},
		controls: map[device.Device]*control{}, movers: map[device.Device][]*stream{}, ferries: map[[2]int]*stream{},
	}
	g.cells.init()
	byDevice := map[device.Device][]*stream{}
	n := len(distinct(cfg.Devices))
	for rank, d := range cfg.Devices {
		if byDevice[d] == nil {
			c, err := newControl(d)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("nvlink: %w", err), g.closeStreams())
			}
			g.controls[d] = c
			for range max(1, cfg.Streams/n) {
				s, err := newStream(d)
				if err != nil {
					return nil, errors.Join(fmt.Errorf("nvlink: %w", err), g.closeStreams())
				}
				byDevice[d] = append(byDevice[d], s)
			}
			if cfg.Engine {
				e, err := newEngine(d)
				if err != nil {
					return nil, errors.Join(fmt.Errorf("nvlink: %w", err), g.closeStreams())
				}
				g.engines = append(g.engines, e)
			}
		}
		g.streams[rank] = byDevice[d]
	}
	if err := g.openPipes(); err != nil {
		return nil, errors.Join(fmt.Errorf("nvlink: %w", err), g.closeStreams())
	}
	return g, nil
}

func distinct(devs map[int]device.Device) map[device.Device]bool {
	set := map[device.Device]bool{}
	for _, d := range devs {
		set[d] = true
	}
	return set
}

var _ channel.Transport = (*GPU)(nil)

// Describe tells devices and ways.
func (g *GPU) Describe() channel.Description {
	d := g.Host.Describe()
	for dev := range distinct(g.cfg.Devices) {
		i := dev.Info()
		d.Notes = append(d.Notes, fmt.Sprintf("device %d: %s %s, memory shared by %s", i.Index, i.Name, i.UUID, g.cfg.Share))
	}
	if len(g.engines) > 0 {
		d.Notes = append(d.Notes, "small puts and gets by a resident kernel")
	}
	if n := len(g.intakes); n > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("device memory of %d peers not mapped: through pipes in host memory", n))
	}
	return d
}

// Caps says that requests complete later, and that streams ring nobody.
func (g *GPU) Caps() channel.Caps { return channel.Caps{Kinds: allKinds[:], Prompt: true} }

var allKinds = [2]heap.Kind{heap.KindHost, heap.KindCUDA}

// Register has nothing to do: the world registered its segments.
func (g *GPU) Register(context.Context, int, uint16, heap.Memory) ([]byte, error) { return nil, nil }

// stream is a device's queue with its completion word and staging memory.
type stream struct {
	dev   device.Device
	uuid  string
	q     device.Stream
	info  device.Info
	stage *stage

	done     *atomic.Uint64 // the last group complete, written by the stream
	doneAddr uint64
	olds     *[amoSlots]uint64 // results of AMOs
	oldsAddr uint64
	oldFree  []uint8 // slots not in use

	seq    uint64 // the last group enqueued
	failed error
	asked  time.Time // when it was last asked whether it lives
	looks  uint8     // at the clock for that: one in 64 polls

	batch device.Batch
	words []device.Word

	*engine // of a stream that is one
	*ferry
}

// amoSlots is the most fetching AMOs in flight in one stream.
const amoSlots = 64

func newStream(d device.Device) (*stream, error) {
	q, err := d.NewStream()
	if err != nil {
		return nil, err
	}
	const page = 4096 // of words
	base, addr, err := d.Pinned(page + stageSize)
	if err != nil {
		return nil, err
	}
	info := d.Info()
	s := &stream{
		dev: d, uuid: info.UUID, q: q, info: info,
		done: (*atomic.Uint64)(base), doneAddr: addr,
		olds: (*[amoSlots]uint64)(unsafe.Add(base, 1024)), oldsAddr: addr + 1024,
		stage: newStage(unsafe.Add(base, page), addr+page, stageSize),
		words: make([]device.Word, 0, 64),
	}
	for i := range amoSlots {
		s.oldFree = append(s.oldFree, uint8(i))
	}
	return s, nil
}

// lane is what is in flight in one lane.
type lane struct {
	l     *channel.Lane
	s     *stream // the agent of what is in flight
	own   *stream // the lane's, for what no engine takes
	e     *stream // the device's engine, if it has one
	ready int     // complete and not reported
	q     []group
	wait  bool // the latest group must end before another begins
	on    bool // in GPU.active

	part    uint64 // of the first request not taken: bytes, or elements, on their way
	partSeq uint64 // which it is
}

// group is requests that one completion word ends.
type group struct {
	seq   uint64
	n     int      // requests
	outs  []out    // what the CPU copies when they are complete
	after *applied // what it does then
	knock bool

	back    []backCopy // what begins then, and ends the group
	backSeq uint64
}

// out is data of a get to be copied out of staging memory, or the result of an AMO.
type out struct {
	dst, src unsafe.Pointer
	n        uint64 // bytes, or elements
	stride   uint64 // of dst in elements; 0: contiguous
	size     uint64 // of an element
	mark     *mark
	amo      bool
	slot     uint8 // of an AMO's result
}

// applied is a signal of the CPU's behind a stream's payload.
type applied struct {
	word unsafe.Pointer
	op   channel.SigOp
	v    uint64
}

func (g *GPU) lane(l *channel.Lane) *lane {
	if x, ok := l.State().(*lane); ok {
		return x
	}
	all := g.streams[l.Config().Owner]
	s := all[g.next%len(all)]
	x := &lane{l: l, s: s, own: s}
	for _, e := range g.engines {
		if e.dev == s.dev {
			x.e = e
		}
	}
	g.next++
	l.SetState(x)
	return x
}

func (g *GPU) activate(x *lane) {
	if !x.on {
		x.on = true
		g.active = append(g.active, x)
	}
}

// Abort forgets a lane. Streams finish what they have; nothing of the lane is
// copied out any more.
func (g *GPU) Abort(l *channel.Lane) {
	x, ok := l.State().(*lane)
	if !ok {
		return
	}
	for i := range x.q {
		for _, o := range x.q[i].outs {
			x.s.release(&o)
		}
	}
	x.q, x.ready, x.wait, x.part = nil, 0, false, 0
}

// Connect succeeds where the peer is mapped.
func (g *GPU) Connect(l *channel.Lane) (bool, error) { return g.Host.Connect(l) }

// Poll reports what has become complete, and does what the CPU has to do then.
func (g *GPU) Poll(outc []channel.Completion) (n int) {
	g.tend()
	for i := 0; i < len(g.active) && n < len(outc); {
		x := g.active[i]
		n += g.pollLane(x, outc[n:])
		if len(x.q) > 0 || x.ready > 0 {
			i++
			continue
		}
		x.on = false
		last := len(g.active) - 1
		g.active[i], g.active[last] = g.active[last], nil
		g.active = g.active[:last]
	}
	return n
}

func (g *GPU) pollLane(x *lane, outc []channel.Completion) (n int) {
	if x.ready > 0 {
		outc[0] = channel.Completion{Lane: x.l, N: x.ready}
		x.ready = 0
		n++
	}
	for len(x.q) > 0 && n < len(outc) {
		f := &x.q[0]
		if int64(x.s.done.Load()-f.seq) < 0 || !g.returned(x.s, f) {
			if x.s.failed == nil {
				g.alive(x.s)
			}
			if x.s.failed == nil {
				break
			}
			if f.n > 0 {
				outc[n] = channel.Completion{Lane: x.l, N: 1, Err: x.s.failed}
				n++
			}
			if f.n--; f.n > 0 {
				continue
			}
			for _, o := range f.outs {
				x.s.release(&o)
			}
		} else {
			for j := range f.outs {
				f.outs[j].run()
				x.s.release(&f.outs[j])
			}
			for _, b := range f.back {
				b.mark.held = false
			}
			if f.after != nil {
				channel.ApplySignal(f.after.word, f.after.op, f.after.v)
			}
			if f.knock {
				x.l.Knock()
			}
			if f.n > 0 {
				outc[n] = channel.Completion{Lane: x.l, N: f.n}
				n++
			}
		}
		x.pop()
	}
	x.s.stage.reclaim(x.s.done.Load())
	return n
}

func (x *lane) pop() {
	copy(x.q, x.q[1:])
	x.q[len(x.q)-1] = group{}
	x.q = x.q[:len(x.q)-1]
	if len(x.q) == 0 {
		x.wait = false
	}
}

// alive asks a stream whose work takes long whether it failed.
func (g *GPU) alive(s *stream) {
	const every = 20 * time.Millisecond
	if s.looks++; s.looks%64 != 1 {
		return
	}
	now := time.Now()
	if s.asked.IsZero() {
		s.asked = now
	}
	if now.Sub(s.asked) < every {
		return
	}
	s.asked = now
	if s.cut() {
		return
	}
	if err := s.dev.Enter(); err != nil {
		s.failed = err
		return
	}
	defer s.dev.Leave()
	if err := s.q.Poll(); err != nil && !errors.Is(err, errs.ErrWouldBlock) {
		s.failed = fmt.Errorf("nvlink: stream of device %d: %w", s.info.Index, err)
	}
}

// Forget drops what the lanes of a local PE know of signals at [off, off+n) of the
// heap: their memory was zeroed, or is another object's.
func (g *GPU) Forget(owner int, off, n uint64) { g.cells.forget(owner, off, n) }

// Close ends the streams; lanes have been drained or given up. Work that does not
// end within ctx is left to the devices' own Close.
func (g *GPU) Close(ctx context.Context) error {
	g.once.Do(func() {
		g.closed.Store(true)
		g.end = g.drain(ctx)
		if err := g.closeStreams(); g.end == nil {
			g.end = err
		}
	})
	return g.end
}

func (g *GPU) drain(ctx context.Context) error {
	for s := range g.all() {
		for int64(s.done.Load()-s.seq) < 0 && s.failed == nil {
			g.tend()
			if g.alive(s); ctx.Err() != nil {
				return fmt.Errorf("nvlink: close with copies under way: %w", context.Cause(ctx))
			}
			time.Sleep(20 * time.Microsecond)
		}
	}
	return nil
}

func (g *GPU) all() map[*stream]bool {
	set := map[*stream]bool{}
	for _, ss := range g.streams {
		for _, s := range ss {
			set[s] = true
		}
	}
	for _, s := range g.engines {
		set[s] = true
	}
	for _, ss := range g.movers {
		for _, s := range ss {
			set[s] = true
		}
	}
	return set
}

func (g *GPU) closeStreams() error {
	var all []error
	for s := range g.all() {
		if err := s.dev.Enter(); err != nil {
			all = append(all, err)
			continue
		}
		all = append(all, s.q.Close())
		s.dev.Leave()
	}
	return errors.Join(all...)
}
