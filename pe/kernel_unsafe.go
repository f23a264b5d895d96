package pe

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/nvlink"
)

// Kernel is the way on which kernels of this PE's device issue operations of a
// context (goshmem.cuh): a ring of requests that the proxy serves beside the host's,
// and the addresses that are mapped here.
type Kernel struct {
	c    *Context
	g    *nvlink.GPU
	ring *channel.WordRing
	hook *channel.Hook
	addr uint64

	acked    *atomic.Uint64
	count    atomic.Uint64
	waiting  []channel.Ticket // of requests taken and not complete, in the ring's order
	mu       sync.Mutex
	failures error
}

// KernelConfig says how a kernel's requests travel.
type KernelConfig struct {
	Slots int // of the ring, a power of two; 0: 4096
	// Unmapped makes the kernel's puts to other PEs requests even where their memory
	// is mapped: for tests, and for kernels that must not store across a link.
	Unmapped bool
}

// kernelView is goshmem_t.
type kernelView struct {
	ring, reserved, limit, acked, stop, data, host, mask uint64
	shift, pe, npes, ctx                                 uint32
}

// NewKernel makes a context usable by kernels of this PE's device. Not collective.
// Until Close the proxy looks for requests whenever it runs.
func (c *Context) NewKernel(cfg KernelConfig) (*Kernel, error) {
	const op = "pe: new kernel"
	fail := func(err error) (*Kernel, error) {
		return nil, &errs.OpError{Op: op, PE: -1, Size: -1, Err: err}
	}
	p := c.pe
	dev, g := p.Device(), p.world.gpu
	if g == nil {
		return fail(fmt.Errorf("no device heap (GOSHMEM_DEVICE_HEAP): %w", errs.ErrUnsupported))
	}
	if cfg.Slots == 0 {
		cfg.Slots = 4096
	}
	if cfg.Slots < 1 || cfg.Slots > channel.MaxRing || bits.OnesCount(uint(cfg.Slots)) != 1 {
		return fail(fmt.Errorf("%d slots, not a power of two up to %d: %w", cfg.Slots, channel.MaxRing, errs.ErrConfig))
	}
	n := c.Size()
	words := channel.WordRingSlots + cfg.Slots*channel.SlotWords
	tables := 2*n + int(unsafe.Sizeof(kernelView{})/8)
	base, at, err := dev.Pinned(uint64(8 * (words + tables)))
	if err != nil {
		return fail(err)
	}
	mem := unsafe.Slice((*uint64)(base), words+tables)
	k := &Kernel{c: c, g: g}
	if k.ring, err = channel.NewWordRing(mem[:words:words]); err != nil {
		return fail(err)
	}
	var ackedAt uint64
	if k.acked, ackedAt, err = g.HostWord(p.rank); err != nil {
		return fail(err)
	}
	// What a kernel reads again and again lies in its device's memory.
	block, err := dev.Alloc(uint64(8*tables + 256))
	if err != nil {
		return fail(err)
	}
	view, list := block+256, block+256+uint64(unsafe.Sizeof(kernelView{}))
	v := (*kernelView)(unsafe.Pointer(&mem[words]))
	*v = kernelView{
		ring: at, reserved: block, limit: block + 128, acked: ackedAt, stop: g.StopWord(p.rank),
		data: list, host: list + uint64(8*n), mask: uint64(cfg.Slots - 1), shift: uint32(bits.TrailingZeros(uint(cfg.Slots))),
		pe: uint32(c.team.rank), npes: uint32(n), ctx: c.id,
	}
	lists := mem[words+tables-2*n:]
	for i, world := range c.team.members {
		if world == p.rank || !cfg.Unmapped && !g.Staged(p.rank, world) {
			lists[i] = p.world.table.Region(world, heap.RegionDevice).Addr
		}
		lists[n+i] = p.world.table.Region(world, heap.RegionHeap).Addr
	}
	if err := p.copyDevice(view, at+uint64(8*words), uint64(8*tables)); err != nil {
		return fail(err)
	}
	k.addr = view
	for i := range n { // a hook cannot make a lane
		if _, err := c.LaneTo(i); err != nil {
			return fail(err)
		}
	}
	k.hook = p.world.proxy.AddHook(k.step)
	k.hook.Arm()
	return k, nil
}

// Addr is the address of the goshmem_t that kernels take.
func (k *Kernel) Addr() uint64 { return k.addr }

// Requests is how many requests of kernels were taken so far.
func (k *Kernel) Requests() uint64 { return k.count.Load() }

// Err is what went wrong with requests so far: ones that made no sense were dropped,
// ones that failed have their own error.
func (k *Kernel) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failures
}

func (k *Kernel) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failures == nil {
		k.failures = &errs.OpError{Op: "pe: request of a kernel", PE: -1, Size: -1, Err: err}
	}
}

// step takes requests and tells of complete ones. Under the proxy's role.
func (k *Kernel) step() bool {
	const most = 512
	taken := 0
	for ; taken < most; taken++ {
		d, ok, err := k.ring.Front()
		if !ok {
			break
		}
		var t channel.Ticket
		if err == nil {
			t, err = k.submit(&d)
		}
		if err == errs.ErrWouldBlock {
			break
		}
		if err != nil {
			k.fail(err)
		}
		k.ring.Advance()
		if len(k.waiting) > 0 || !t.Done() {
			k.waiting = append(k.waiting, t)
		}
	}
	if taken > 0 {
		k.ring.Release()
		k.count.Add(uint64(taken))
	}
	done := 0
	for done < len(k.waiting) && k.waiting[done].Done() {
		if err := k.waiting[done].Err(); err != nil {
			k.fail(err)
		}
		done++
	}
	if done > 0 {
		k.waiting = append(k.waiting[:0], k.waiting[done:]...)
	}
	if taken > 0 || done > 0 {
		k.acked.Store(k.ring.Consumed() - uint64(len(k.waiting)))
	}
	return taken > 0 || done > 0
}

// submit carries a request out, or queues it. It is from a device: nothing of it is
// believed.
func (k *Kernel) submit(d *channel.Desc) (channel.Ticket, error) {
	c := k.c
	if d.Ctx != c.id || d.Op != channel.OpPut && d.Op != channel.OpSignal {
		return channel.Ticket{}, fmt.Errorf("%v: %w", d, errs.ErrUnsupported)
	}
	if int64(d.PE) >= int64(c.Size()) {
		return channel.Ticket{}, fmt.Errorf("%v: %w", d, errs.ErrPeer)
	}
	l := c.Lane(int(d.PE))
	t := l.Config().Table
	if d.Op == channel.OpPut {
		if err := l.Check(heap.MakeRef(t.World, d.DstRegion, d.DstOff), d.Size); err != nil {
			return channel.Ticket{}, fmt.Errorf("%v: %w", d, err)
		}
		if err := t.Check(l.Config().Owner, heap.MakeRef(t.World, d.SrcRegion, d.SrcOff), d.Size); err != nil {
			return channel.Ticket{}, fmt.Errorf("%v: source: %w", d, err)
		}
		if d.DstRegion == heap.RegionRuntime || d.SrcRegion == heap.RegionRuntime {
			return channel.Ticket{}, fmt.Errorf("%v: %w", d, errs.ErrBadRef)
		}
	}
	if d.SigOp != channel.SigNone {
		sig := heap.MakeRef(t.World, heap.RegionHeap, d.SigOff)
		if d.Flags&channel.FlagSigRuntime != 0 {
			return channel.Ticket{}, fmt.Errorf("%v: %w", d, errs.ErrBadRef)
		}
		if err := l.Check(sig, heap.SignalSize); err != nil {
			return channel.Ticket{}, fmt.Errorf("%v: signal: %w", d, err)
		}
		if d.Op == channel.OpSignal && l.Enter() {
			channel.ApplySignal(l.Mapped(sig), d.SigOp, d.SigVal)
			l.Knock()
			l.Leave()
			return channel.Ticket{}, nil
		}
	}
	return c.TrySubmit(l, d, nil)
}

// Close ends the use; no kernel may be using it.
func (k *Kernel) Close(ctx context.Context) error {
	err := k.c.Wait(ctx, false, []int{}, func() bool { return k.count.Load() == k.acked.Load() })
	k.hook.Remove()
	return err
}
