package moe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"goshmem/heap"
	"goshmem/moe/internal/cudarun"
	"goshmem/moe/internal/kernels"
	"goshmem/moe/internal/plan"
	"goshmem/pe"
)

// DeviceEngine carries out dispatches and combines on the memory of GPUs: Engine's
// semantics and results, bit for bit, with device addresses and on streams.
//
// Calls enqueue work on the caller's stream, a CUstream of any framework, and
// return. They are collective and in the same order on every rank, as Engine's; a
// rank's calls must follow each other on the device as they were made (one stream,
// or streams that wait for each other). What a call found wrong is what
// DeviceDispatched.Wait returns.
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
	nodes  *plan.Nodes
	spans  bool    // ranks are of several nodes
	staged *staged // then

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
	copied   []uintptr // events of them
	packed   uintptr   // event: rows may be copied
	seen     uintptr   // event: results may be copied
	events   []uintptr // all, to be closed

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
	staged   *stagedSlot
	event    uintptr
}

// NewDevice makes an engine on a GPU. Collective over the team. ErrUnsupported where
// there is no GPU that can. In a world with device heaps (GOSHMEM_DEVICE_HEAP) it
// takes DeviceBytes of them, on the device of the PE; else device memory of its own.
// Config.Memory must not be given.
//
// Where the team's ranks are of several nodes, what goes to another node goes by way of
// pinned host memory: the engine takes StagedBytes of the symmetric heap, and device
// memory of its own. All else is the same.
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
