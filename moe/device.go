package moe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"goshmem/heap"
	"goshmem/moe/internal/cudarun"
	"goshmem/moe/internal/kernels"
	"goshmem/moe/internal/plan"
	"goshmem/nvlink/device/cudadev"
	"goshmem/pe"
)

// Mover is who moves rows between devices.
type Mover int

// The movers.
const (
	// MoverAuto is MoverDirect.
	MoverAuto Mover = iota
	// MoverDirect: multiprocessors store rows straight into their place at the
	// receivers and fetch results from where they were made.
	MoverDirect
	// MoverCopyEngine: rows are packed once and carried by one large copy for each
	// peer, in parts, so that packing, copying and unpacking overlap. No
	// multiprocessor is held while data move. For each peer MaxTokens rows travel,
	// however few are for it.
	MoverCopyEngine
)

func (m Mover) String() string { return name("mover", int(m), "auto", "direct", "copy-engine") }

// DefaultSMs is how many multiprocessors a mover takes at most, by default.
const DefaultSMs = 24

// DeviceOptions are what ranks of a DeviceEngine may choose for themselves, but for
// Mover, which is the same on all.
type DeviceOptions struct {
	Device    int           // ordinal of the GPU; of no meaning in a world with device heaps
	Mover     Mover         // who moves rows
	SMs       int           // multiprocessors for moving; 0: DefaultSMs. PEs that share a GPU share its multiprocessors.
	ReduceSMs int           // multiprocessors for adding up what local experts made; 0: all
	Deadline  time.Duration // of waits on the device; 0: one minute

	runner kernels.Runner // instead of a GPU
	far    bool           // other ranks are taken for ones on other devices
}

// DeviceBytes is the symmetric device memory that an engine over so many ranks takes
// on each of them.
func (c Config) DeviceBytes(ranks int, mover Mover) (int64, error) {
	p, err := c.params(max(ranks, 1))
	if err != nil {
		return 0, err
	}
	sz, ok := plan.Measure(&p)
	if !ok {
		return 0, &ConfigError{"Config", "as given", "its buffers exceed 2^63 bytes"}
	}
	l := kernels.Measure(&p, &sz, 0, mover == MoverCopyEngine, 1)
	return l.Slot * l.Ctx.Slots, nil
}

// DeviceEngine carries out dispatches and combines on the memory of GPUs: Engine's
// semantics and results, bit for bit, with device addresses and on streams.
//
// Calls enqueue work on the caller's stream, a CUstream of any framework, and
// return. They are collective and in the same order on every rank, as Engine's; a
// rank's calls must follow each other on the device as they were made (one stream,
// or streams that wait for each other). What a call found wrong is what
// DeviceDispatched.Wait and DeviceEngine.Wait return.
//
// A rank must come to its call without waiting for its device: other ranks' calls may
// be waiting there for it. Allocating device or pinned memory is such a wait, and the
// first use of a stream may be; it also keeps ranks of the same process from launching,
// so it must not happen while one of them is inside a call.
//
// All calls but New, Routing, Wait and Close may be captured in a graph, and the
// graph be replayed, mixed with calls made eagerly, as long as every rank does so
// in the same order.
type DeviceEngine struct {
	cfg    Config
	opt    DeviceOptions
	team   *pe.Team
	rank   int
	p      plan.Params
	sizes  plan.Sizes
	owners *plan.Owners
	layout kernels.Layout
	run    kernels.Runner
	own    *cudarun.Runner // to be closed
	onHeap bool            // the symmetric memory is the device heap's

	sms, reduceSMs int
	stage, stages  int64
	interval       int64 // ns between pieces of rows; 0: no rank is on another device
	bulk           bool
	ranks          int

	mem      heap.Ref // in the device heap
	arena    uint64
	imported []uint64
	private  []uint64
	stop     *atomic.Uint64 // tells the device to give up waiting
	count    *atomic.Uint64 // of dispatches that are over on the device
	stopAt   uint64
	pins     []unsafe.Pointer
	slots    []*deviceSlot
	copies   []uintptr // streams for copies to peers
	events   []uintptr

	mu     sync.Mutex
	params [kernels.MaxParams]uint64 // of a launch
	turn   uint64
	gen    uint64
	closed bool
	broken atomic.Pointer[BrokenError]
}

// deviceSlot is the memory of a dispatch in flight.
type deviceSlot struct {
	e        *DeviceEngine
	ctx      uint64 // address of kernels.Ctx
	base     uint64 // of this rank's symmetric part
	peers    []uint64
	report   []uint64
	send     uint64
	pulled   uint64
	routing  *DeviceRouting // of the next dispatch
	gen      uint64         // of the latest dispatch
	combined bool           // the latest call was a combine
	event    uintptr
}

// NewDevice makes an engine on a GPU. Collective over the team. ErrUnsupported where
// there is no GPU that can. In a world with device heaps (GOSHMEM_DEVICE_HEAP) it
// takes DeviceBytes of them, on the device of the PE; else device memory of its own,
// which works for PEs of one host. Config.Memory must not be given.
func NewDevice(ctx context.Context, team *pe.Team, cfg Config, opt DeviceOptions) (*DeviceEngine, error) {
	const op = "new on device"
	if team == nil {
		return nil, fmt.Errorf("moe: %s: no team: %w", op, pe.ErrConfig)
	}
	e := &DeviceEngine{cfg: cfg, opt: opt, team: team, rank: team.Rank(), ranks: team.Size()}
	err := e.prepareDevice()
	if err := compare(ctx, team, cfg, err); err != nil {
		return nil, wrap(op, errors.Join(err, e.release(context.WithoutCancel(ctx))))
	}
	if err := e.build(ctx); err != nil {
		return nil, wrap(op, errors.Join(err, e.release(context.WithoutCancel(ctx))))
	}
	return e, nil
}

func (e *DeviceEngine) prepareDevice() (err error) {
	if e.p, err = e.cfg.params(e.ranks); err != nil {
		return err
	}
	o := &e.opt
	switch {
	case e.cfg.Memory != (Config{}).Memory:
		return &ConfigError{"Memory", e.cfg.Memory, "none on a device"}
	case o.Mover < MoverAuto || o.Mover > MoverCopyEngine:
		return &ConfigError{"Mover", o.Mover, "auto, direct or copy-engine"}
	case o.SMs < 0:
		return &ConfigError{"SMs", o.SMs, "0 or more"}
	case o.ReduceSMs < 0:
		return &ConfigError{"ReduceSMs", o.ReduceSMs, "0 or more"}
	case o.Deadline < 0:
		return &ConfigError{"Deadline", o.Deadline, "0 or more"}
	case e.ranks > 1<<15:
		return &ConfigError{"ranks", e.ranks, "at most 2^15 on a device"}
	case e.p.MaxTokens > 1<<31:
		return &ConfigError{"MaxTokens", e.cfg.MaxTokens, "at most 2^31 on a device"}
	case e.p.Hidden > 1<<31:
		return &ConfigError{"Hidden", e.cfg.Hidden, "at most 2^31 on a device"}
	}
	if o.Mover == MoverAuto {
		o.Mover = MoverDirect
	}
	if o.SMs == 0 {
		o.SMs = DefaultSMs
	}
	if o.Deadline == 0 {
		o.Deadline = time.Minute
	}
	var ok bool
	if e.sizes, ok = plan.Measure(&e.p); !ok {
		return &ConfigError{"Config", "as given", "its buffers exceed 2^63 bytes"}
	}
	e.owners = plan.NewOwners(e.p.Ranks, e.p.Experts)
	if e.run = o.runner; e.run == nil {
		lib, err := cudarun.Load()
		if err != nil {
			return err
		}
		if dev := e.team.PE().Device(); dev != nil {
			o.Device, e.onHeap = dev.Info().Index, true
			if _, cuda := dev.(*cudadev.Device); !cuda {
				return fmt.Errorf("a device that is no GPU: %w", pe.ErrUnsupported)
			}
		}
		if e.own, err = cudarun.Open(lib, o.Device); err != nil {
			return err
		}
		e.run = e.own
	}
	return nil
}

// invite is what a rank tells the others of its device memory.
type invite struct {
	Device string
	Mover  Mover
	Arena  []byte
	Failed string
}

// build makes what the ranks share. On error release undoes it.
func (e *DeviceEngine) build(ctx context.Context) error {
	mine := invite{Device: e.run.Name(), Mover: e.opt.Mover}
	own := e.allocate(ctx, &mine)
	if own != nil {
		mine.Failed = own.Error()
	}
	blob, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	blobs, err := e.team.Gather(ctx, "moe/device", blob)
	if own != nil || err != nil {
		return errors.Join(own, err)
	}
	var all []invite
	sharing := 0
	for rank, b := range blobs {
		var in invite
		if err := json.Unmarshal(b, &in); err != nil {
			return &pe.MismatchError{PE: rank, Field: "device memory", Want: "readable", Have: "unreadable"}
		}
		if in.Failed != "" {
			return &pe.MismatchError{PE: rank, Field: "device memory", Want: "available", Have: in.Failed}
		}
		if in.Mover != mine.Mover {
			return &pe.MismatchError{PE: rank, Field: "Mover", Want: mine.Mover.String(), Have: in.Mover.String()}
		}
		if in.Device == mine.Device {
			sharing++
		}
		all = append(all, in)
	}
	own = e.connect(mine, all, sharing)
	// Nobody sends before everybody has connected.
	done, err := json.Marshal(fmt.Sprint(own))
	if err != nil {
		return err
	}
	blobs, err = e.team.Gather(ctx, "moe/device-ready", done)
	if own != nil || err != nil {
		return errors.Join(own, err)
	}
	for rank, b := range blobs {
		var said string
		if err := json.Unmarshal(b, &said); err != nil || said != fmt.Sprint(error(nil)) {
			return &pe.MismatchError{PE: rank, Field: "device", Want: "connected", Have: said}
		}
	}
	return nil
}

// allocate takes this rank's symmetric memory. The layout but for blocks is known.
func (e *DeviceEngine) allocate(ctx context.Context, mine *invite) error {
	e.layout = kernels.Measure(&e.p, &e.sizes, e.rank, e.opt.Mover == MoverCopyEngine, e.opt.SMs)
	var err error
	n := e.arenaBytes()
	if e.onHeap {
		if e.mem, err = e.team.AllocDevice(ctx, n, 256); err != nil {
			return err
		}
		e.arena, err = e.heapAddr(e.rank)
		return err
	}
	if e.arena, err = e.run.Alloc(n); err != nil {
		return err
	}
	mine.Arena, err = e.run.Export(e.arena)
	return err
}

// heapAddr is where a rank's symmetric memory is mapped here.
func (e *DeviceEngine) heapAddr(rank int) (uint64, error) {
	world, ok := e.team.WorldRank(rank)
	if !ok {
		return 0, fmt.Errorf("rank %d of the team: %w", rank, pe.ErrPeer)
	}
	return e.team.PE().DeviceAddr(e.mem, uint64(e.arenaBytes()), world)
}

func (e *DeviceEngine) arenaBytes() int64 { return e.layout.Slot * e.layout.Ctx.Slots }

func (e *DeviceEngine) alloc(n int64) uint64 {
	addr, err := e.run.Alloc(max(n, 8))
	if err != nil {
		panic(err) // caught by connect
	}
	e.private = append(e.private, addr)
	return addr
}

// connect reaches the others' memory and makes the slots.
func (e *DeviceEngine) connect(mine invite, all []invite, sharing int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			failed, ok := r.(error)
			if !ok {
				panic(r)
			}
			err = failed
		}
	}()
	bases := make([]uint64, e.ranks)
	for r, in := range all {
		if r == e.rank {
			bases[r] = e.arena
			continue
		}
		if e.onHeap {
			bases[r], err = e.heapAddr(r)
		} else if bases[r], err = e.run.Import(in.Arena); err == nil {
			e.imported = append(e.imported, bases[r])
		}
		if err != nil {
			return fmt.Errorf("device memory of pe %d: %w", r, err)
		}
	}
	// Blocks that wait for each other must all be running, those of PEs on the same
	// device too.
	e.sms = max(1, min(e.opt.SMs, e.run.Multiprocessors()/sharing))
	e.reduceSMs = e.opt.ReduceSMs
	if e.reduceSMs == 0 {
		e.reduceSMs = e.run.Multiprocessors()
	}
	e.bulk = e.run.Bulk() && e.p.RowBytes%16 == 0 && e.p.RowBytes <= 1<<30
	e.stage, e.stages = kernels.Stages(e.p.RowBytes)
	far := make([]uint64, e.ranks)
	for r, in := range all {
		if in.Device != mine.Device || e.opt.far && r != e.rank {
			far[r] = 1
			e.interval = kernels.Interval(e.stage, e.sms, sharing)
			if e.opt.far {
				e.interval = max(e.interval, 1)
			}
		}
	}
	if err := e.pin(); err != nil {
		return err
	}
	owner, ownLocal := make([]int32, e.p.Experts), make([]int32, e.p.Experts)
	for i := range owner {
		first, _ := e.owners.Block(e.owners.Rank(i))
		owner[i], ownLocal[i] = int32(e.owners.Rank(i)), int32(i-first)
	}
	stream, err := e.run.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.run.CloseStream(stream)) }()
	up := &uploader{e: e, stream: stream}
	ownerAt, localAt := up.words32(owner), up.words32(ownLocal)
	slotsAt := e.alloc(int64(unsafe.Sizeof(kernels.Slot{})) * e.layout.Ctx.Slots)
	for i := range e.layout.Ctx.Slots {
		if err := e.makeSlot(i, bases, far, ownerAt, localAt, slotsAt, up); err != nil {
			return err
		}
	}
	if e.opt.Mover == MoverCopyEngine {
		for range e.copyStreams(sharing) {
			s, err := e.run.NewStream()
			if err != nil {
				return err
			}
			e.copies = append(e.copies, s)
		}
	}
	for range 2 + len(e.copies) {
		ev, err := e.run.NewEvent(false)
		if err != nil {
			return err
		}
		e.events = append(e.events, ev)
	}
	return up.finish()
}

// copyStreams is how many streams copy to peers: a device has few queues for
// streams, and PEs that share it share those.
func (e *DeviceEngine) copyStreams(sharing int) int {
	const most = 4
	if sharing > 1 {
		return min(e.ranks-1, 1)
	}
	return min(e.ranks-1, most)
}

// pin makes the words that end waits and count dispatches.
func (e *DeviceEngine) pin() error {
	p, addr, err := e.run.Pinned(64)
	if err != nil {
		return err
	}
	e.pins = append(e.pins, p)
	e.stop, e.stopAt = (*atomic.Uint64)(p), addr
	e.count = (*atomic.Uint64)(unsafe.Add(p, 8))
	return nil
}

func (e *DeviceEngine) makeSlot(i int64, bases, far []uint64, owner, ownLocal, all uint64, up *uploader) error {
	l := &e.layout
	s := &deviceSlot{e: e}
	for _, b := range bases {
		s.peers = append(s.peers, b+uint64(i)*uint64(l.Slot))
	}
	s.base = s.peers[e.rank]
	p, report, err := e.run.Pinned(l.Report)
	if err != nil {
		return err
	}
	e.pins = append(e.pins, p)
	s.report = unsafe.Slice((*uint64)(p), l.Report/8)
	d := kernels.Slot{Ctx: l.Ctx}
	c := &d.Ctx
	copy(d.Peers[:], s.peers)
	copy(d.Far[:], far)
	s.ctx = all + uint64(i)*uint64(unsafe.Sizeof(d))
	c.All, c.State = all, s.ctx+uint64(unsafe.Offsetof(d.State))
	c.Peers, c.Owner, c.OwnLocal = up.words64(slices.Concat(s.peers, far)), owner, ownLocal
	c.Work = e.alloc(l.Work)
	c.Stop, c.Report, c.Limit = e.stopAt, report, uint64(e.opt.Deadline)
	if e.opt.Mover == MoverCopyEngine {
		s.send, s.pulled = e.alloc(l.SendRoom), e.alloc(l.PullRoom)
		c.Send, c.Pulled = s.send, s.pulled
	}
	up.put(s.ctx, slotWords(&d))
	if s.event, err = e.run.NewEvent(false); err != nil {
		return err
	}
	s.routing = &DeviceRouting{e: e, at: e.alloc(l.Routing)}
	e.events = append(e.events, s.event)
	e.slots = append(e.slots, s)
	return nil
}

// uploader puts words into device memory.
type uploader struct {
	e      *DeviceEngine
	stream uintptr
	pins   []unsafe.Pointer
}

func (u *uploader) words64(v []uint64) uint64 {
	at := u.e.alloc(int64(8 * len(v)))
	u.put(at, v)
	return at
}

func slotWords(s *kernels.Slot) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(s)), unsafe.Sizeof(*s)/8)
}

func (u *uploader) put(at uint64, v []uint64) {
	p, addr, err := u.e.run.Pinned(int64(8*len(v)) + 8)
	if err != nil {
		panic(err)
	}
	u.pins = append(u.pins, p)
	copy(unsafe.Slice((*uint64)(p), len(v)), v)
	if err := u.e.run.Enter(); err != nil {
		panic(err)
	}
	defer u.e.run.Leave()
	if err := u.e.run.Copy(at, addr, int64(8*len(v)), u.stream); err != nil {
		panic(err)
	}
}

func (u *uploader) words32(v []int32) uint64 {
	w := make([]uint64, (len(v)+1)/2)
	copy(unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(w))), 2*len(w)), v)
	return u.words64(w)
}

// finish runs every kernel once with nothing to do, so that none is loaded while
// another waits, and waits for the uploads.
func (u *uploader) finish() error {
	r := u.e.run
	ev, err := r.NewEvent(false)
	if err != nil {
		return err
	}
	defer func() { _ = r.CloseEvent(ev) }()
	if err := r.Enter(); err != nil {
		return err
	}
	err = errors.Join(u.e.zero(u.stream), u.e.warm(u.stream), r.Record(ev, u.stream))
	r.Leave()
	if err != nil {
		return err
	}
	for end := time.Now().Add(u.e.opt.Deadline); ; time.Sleep(100 * time.Microsecond) {
		err := r.Query(ev)
		if err == nil {
			break
		}
		if !errors.Is(err, pe.ErrWouldBlock) || time.Now().After(end) {
			return err
		}
	}
	for _, p := range u.pins {
		err = errors.Join(err, r.FreePinned(p))
	}
	return err
}

// zero clears the flags and heads, which is all that has to be zero.
func (e *DeviceEngine) zero(stream uintptr) error {
	for i := range e.layout.Ctx.Slots {
		at := e.arena + uint64(i*e.layout.Slot)
		err := e.run.Launch(kernels.Fill, 1, kernels.Threads, 0, stream, at, uint64(e.layout.Ctx.Source/4), 0)
		if err != nil {
			return err
		}
	}
	return nil
}

// warm launches every kernel with a context that says broken.
func (e *DeviceEngine) warm(stream uintptr) error {
	one := &uploader{e: e, stream: stream}
	broken := kernels.Slot{Ctx: e.layout.Ctx}
	broken.State[kernels.StateBroken] = 1
	ctx := one.words64(slotWords(&broken))
	for k := range kernels.Kernels {
		params := make([]uint64, kernels.MaxParams)
		n := map[kernels.Kernel]int{
			kernels.Dispatch: 17, kernels.Await: 5, kernels.Offer: 9, kernels.Seen: 2, kernels.Combine: 7,
			kernels.Pack: 5, kernels.Sent: 4, kernels.Unpack: 4, kernels.Fill: 3, kernels.ToFP8: 5, kernels.FromFP8: 5,
		}[k]
		if k < kernels.Fill {
			params[0] = ctx
		}
		shared := uint32(kernels.SharedBase)
		if k == kernels.Dispatch {
			shared = kernels.DispatchShared(e.stage, e.stages)
		}
		threads := uint32(kernels.Threads)
		if k == kernels.Await || k == kernels.Seen || k == kernels.Sent {
			threads = kernels.WaitThreads
		}
		if err := e.run.Launch(k, 1, threads, shared, stream, params[:n]...); err != nil {
			return err
		}
	}
	e.pins = append(e.pins, one.pins...)
	// The first use of a stream may wait for the device.
	err := e.run.Record(e.events[0], stream)
	for k, s := range e.copies {
		if err = errors.Join(err, e.run.WaitEvent(s, e.events[0])); err != nil {
			return err
		}
		if err := e.run.Launch(kernels.Sent, 1, kernels.WaitThreads, uint32(kernels.SharedBase), s, ctx, 0, 0, 0); err != nil {
			return err
		}
		if err := errors.Join(e.run.Record(e.events[2+k], s), e.run.WaitEvent(stream, e.events[2+k])); err != nil {
			return err
		}
	}
	return err
}

// Close ends the engine: calls in progress may finish until ctx ends. Collective.
// Handles and addresses are invalid afterwards.
func (e *DeviceEngine) Close(ctx context.Context) error {
	e.mu.Lock()
	again := e.closed
	e.closed = true
	e.mu.Unlock()
	if again {
		return nil
	}
	var all []error
	for _, s := range e.slots {
		if err := e.passed(ctx, s.event); err != nil {
			e.stop.Store(1)
			all = append(all, err)
		}
	}
	// Nobody's memory goes while somebody may still fetch from it.
	if _, err := e.team.Gather(ctx, "moe/device-close", nil); err != nil {
		all = append(all, err)
	}
	return wrap("close", errors.Join(append(all, e.release(ctx))...))
}

func (e *DeviceEngine) release(ctx context.Context) error {
	if e.run == nil {
		return nil
	}
	var all []error
	if e.mem != (heap.Ref{}) {
		all = append(all, e.team.FreeMem(ctx, e.mem))
		e.arena = 0
	}
	for _, s := range e.copies {
		all = append(all, e.run.CloseStream(s))
	}
	for _, ev := range e.events {
		all = append(all, e.run.CloseEvent(ev))
	}
	if e.own != nil {
		for _, a := range e.imported {
			_ = e.run.Forget(a) // memory of this process has no mapping to undo
		}
	}
	for _, a := range e.private {
		all = append(all, e.run.Free(a))
	}
	if e.arena != 0 {
		all = append(all, e.run.Free(e.arena))
	}
	for _, p := range e.pins {
		all = append(all, e.run.FreePinned(p))
	}
	if e.own != nil {
		all = append(all, e.own.Close())
	}
	return errors.Join(all...)
}

// Config is the configuration, as given to NewDevice.
func (e *DeviceEngine) Config() Config { return e.cfg }

// Team is the team of the engine.
func (e *DeviceEngine) Team() *pe.Team { return e.team }

// LocalExperts is the range [first, end) of experts that a rank holds.
func (e *DeviceEngine) LocalExperts(rank int) (first, end int) {
	if rank < 0 || rank >= e.ranks {
		return 0, 0
	}
	return e.owners.Block(rank)
}

// RowBytes is the length of a dispatched row.
func (e *DeviceEngine) RowBytes() int64 { return e.p.RowBytes }

// SMs is how many multiprocessors the mover takes.
func (e *DeviceEngine) SMs() int { return e.sms }

// passed waits for an event.
func (e *DeviceEngine) passed(ctx context.Context, event uintptr) error {
	for turn := 0; ; turn++ {
		err := e.run.Query(event)
		if !errors.Is(err, pe.ErrWouldBlock) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if turn > 1000 {
			time.Sleep(20 * time.Microsecond)
		}
	}
}
