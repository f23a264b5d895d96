package pe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"goshmem/heap"
	"goshmem/internal/bootstrap"
	"goshmem/internal/errs"
	"goshmem/internal/options"
	"goshmem/nvlink"
	"goshmem/nvlink/device"
	"goshmem/nvlink/device/cudadev"
	"goshmem/nvlink/device/hostdev"
)

// devices is what backs the device heaps that this process reaches.
type devices struct {
	drv    device.Driver
	byRank map[int]device.Device // of this process's PEs
	opened map[int]device.Device // by index
	space  device.Space
	uuid   []string           // of every PE's device; empty: not on this host
	off    bool               // no PE maps another's device memory
	apart  map[[2]string]bool // devices, by UUID, of which one cannot map the other's memory
}

// settleLimit is how long kernels may go on that use a world's device memory when it
// closes.
const settleLimit = 10 * time.Second

// simulatedDevices is how many devices the driver over host memory offers.
const simulatedDevices = 8

func deviceDriver(vals options.Values) (device.Driver, error) {
	if vals.DeviceDriver == "host" {
		return hostdev.New(simulatedDevices), nil
	}
	d, err := cudadev.Load()
	if err != nil {
		return nil, fmt.Errorf("pe: a device heap (GOSHMEM_DEVICE_HEAP): %w", err)
	}
	return d, nil
}

// openDevices opens the devices of this process's PEs, given by their ranks in the
// world and on the host, and reserves addresses for the heaps of all.
func openDevices(vals options.Values, size int, ranks, onHost []int) (d *devices, err error) {
	d = &devices{byRank: map[int]device.Device{}, opened: map[int]device.Device{}, uuid: make([]string, size)}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if d.drv, err = deviceDriver(vals); err != nil {
		return d, err
	}
	all, err := d.drv.Devices()
	if err != nil {
		return d, err
	}
	if len(all) == 0 {
		return d, fmt.Errorf("pe: a device heap (GOSHMEM_DEVICE_HEAP), and no %s device: %w", d.drv.Name(), errs.ErrUnsupported)
	}
	d.off = vals.DeviceMap == mapOff
	if d.apart, err = apart(d.drv, all); err != nil {
		return d, err
	}
	var distinct []device.Device
	for i, rank := range ranks {
		index := onHost[i] % len(all)
		if vals.Device != "" {
			if index, err = strconv.Atoi(vals.Device); err != nil || index < 0 || index >= len(all) {
				return d, fmt.Errorf("pe: device %q (GOSHMEM_DEVICE), there are %d: %w", vals.Device, len(all), errs.ErrConfig)
			}
		}
		if d.opened[index] == nil {
			dev, err := d.drv.Open(index)
			if err != nil {
				return d, err
			}
			d.opened[index] = dev
			distinct = append(distinct, dev)
		}
		d.byRank[rank] = d.opened[index]
		d.uuid[rank] = d.opened[index].Info().UUID
	}
	d.space, err = d.drv.NewSpace(distinct, size, uint64(vals.DeviceHeap), device.Share(vals.DeviceShare))
	return d, err
}

// busesOf are the places on the PCI bus of the devices that openDevices deals to the PEs of
// this host, as this process sees them; nil where it takes none, or they have no such place.
func busesOf(vals options.Values) (buses []string) {
	if vals.DeviceHeap == 0 {
		return nil
	}
	drv, err := deviceDriver(vals)
	if err != nil {
		return nil // told when they are opened
	}
	all, err := drv.Devices()
	if err != nil {
		return nil
	}
	if i, err := strconv.Atoi(vals.Device); vals.Device != "" && err == nil && i >= 0 && i < len(all) {
		all = all[i : i+1]
	}
	for _, d := range all {
		if d.Bus == "" {
			return nil
		}
		buses = append(buses, d.Bus)
	}
	return buses
}

// mapOff is the choice that no PE maps another's device memory.
const mapOff = "off"

// apart lists the pairs of devices of which one cannot map the other's memory.
func apart(drv device.Driver, all []device.Info) (map[[2]string]bool, error) {
	pairs := map[[2]string]bool{}
	for _, a := range all {
		for _, b := range all {
			p, err := drv.Pair(a.Index, b.Index)
			if err != nil {
				return nil, err
			}
			if !p.Access {
				pairs[[2]string{a.UUID, b.UUID}], pairs[[2]string{b.UUID, a.UUID}] = true, true
			}
		}
	}
	return pairs, nil
}

// staged reports whether what a PE puts into a peer's device memory passes through
// host memory.
func (d *devices) staged(owner, peer int) bool {
	a, b := d.uuid[owner], d.uuid[peer]
	return owner != peer && a != "" && b != "" && (d.off || d.apart[[2]string{a, b}])
}

// stageBytes is the memory that a segment has for that, for each source PE.
func stageBytes(vals options.Values) int64 {
	if vals.DeviceHeap == 0 {
		return 0
	}
	if vals.DeviceMap == mapOff {
		return nvlink.PipeSize
	}
	drv, err := deviceDriver(vals)
	if err != nil {
		return 0 // openDevices will say so
	}
	all, err := drv.Devices()
	if err != nil {
		return 0
	}
	if pairs, err := apart(drv, all); err != nil || len(pairs) == 0 {
		return 0
	}
	return nvlink.PipeSize
}

// pin makes a mapped segment reachable by the devices; the addresses go into the
// table.
func (d *devices) pin(t *heap.Table, pe int, l heap.Layout) error {
	rt, hp := t.Region(pe, heap.RegionRuntime), t.Region(pe, heap.RegionHeap)
	for _, dev := range d.opened {
		addr, err := dev.Register(rt.Base, uint64(l.Total()))
		if err != nil {
			return fmt.Errorf("segment of pe %d: %w", pe, err)
		}
		rt.Addr, hp.Addr = addr, addr+uint64(l.HeapOffset())
	}
	t.Set(pe, heap.RegionRuntime, rt)
	t.Set(pe, heap.RegionHeap, hp)
	return nil
}

// enter puts a PE's device heap into the table; addr 0: not reachable from here.
func (d *devices) enter(t *heap.Table, pe int, size int64) {
	t.Set(pe, heap.RegionDevice, heap.Memory{Addr: d.space.Addr(pe), Size: uint64(size), Kind: heap.KindCUDA})
}

func (d *devices) close() error {
	if d == nil {
		return nil
	}
	var all []error
	for _, dev := range d.opened { // kernels that wait were told to stop
		if err := dev.Settle(settleLimit); errors.Is(err, errs.ErrTimeout) {
			return fmt.Errorf("pe: device memory is kept: %w", err)
		}
	}
	if d.space != nil {
		all = append(all, d.space.Close())
	}
	for _, dev := range d.opened {
		all = append(all, dev.Close())
	}
	d.opened = nil
	return errors.Join(all...)
}

// localDevices makes the device heaps of a world in this process.
func (m *memory) localDevices(w *World) error {
	if w.vals.DeviceHeap == 0 {
		return nil
	}
	d, err := openDevices(w.vals, w.size, ranks(w.size), ranks(w.size))
	if err != nil {
		return err
	}
	m.dev = d
	for pe := range w.size {
		if _, err := d.space.Create(pe, d.byRank[pe], false); err != nil {
			return err
		}
		if err := d.pin(w.table, pe, w.layout); err != nil {
			return err
		}
		d.enter(w.table, pe, w.vals.DeviceHeap)
	}
	return nil
}

// deviceOffer is how a PE's device heap is reached by its host's others.
type deviceOffer struct {
	FD    string `json:"fd,omitempty"`
	Data  []byte `json:"data,omitempty"`
	Share string `json:"share"`
	UUID  string `json:"uuid"`
	Err   string `json:"err,omitempty"`
}

// mapDevices makes this PE's device heap, gives it to the PEs of the host and maps
// theirs.
func (m *memory) mapDevices(ctx context.Context, w *World, member bootstrap.Member, secret []byte, rank int, node []int) error {
	if w.vals.DeviceHeap == 0 {
		return nil
	}
	var o deviceOffer
	stop := func() error { return nil }
	d, err := openDevices(w.vals, w.size, []int{rank}, []int{slices.Index(node, rank)})
	if err == nil {
		m.dev = d
		o, stop, err = d.offer(secret, rank, len(node) > 1)
	}
	defer func() { _ = stop() }()
	for i := 0; i < len(node) && err == nil; i++ {
		err = d.pin(w.table, node[i], w.layout)
	}
	if err != nil {
		o.Err = err.Error()
	}
	offers, gerr := exchangeJSON(ctx, member, "device", node, o)
	if err = errors.Join(err, gerr); err != nil {
		return err
	}
	for i, pe := range node {
		if offers[i].Err != "" {
			return fmt.Errorf("pe %d could not make its device heap: %s: %w", pe, offers[i].Err, errs.ErrUnsupported)
		}
		d.uuid[pe] = offers[i].UUID
		if pe != rank && err == nil && !d.staged(rank, pe) {
			err = d.fetch(ctx, offers[i], secret, pe, rank, uint64(w.vals.DeviceHeap))
		}
	}
	// Nobody stops serving before everybody has fetched; a failure is everybody's.
	done := deviceOffer{}
	if err != nil {
		done.Err = err.Error()
	}
	offers, gerr = exchangeJSON(ctx, member, "device mapped", node, done)
	if err = errors.Join(err, gerr); err != nil {
		return err
	}
	for i, pe := range node {
		if offers[i].Err != "" {
			return fmt.Errorf("pe %d could not map its host's device heaps: %s: %w", pe, offers[i].Err, errs.ErrUnsupported)
		}
	}
	for pe := range w.size {
		d.enter(w.table, pe, w.vals.DeviceHeap)
	}
	return nil
}

// offer creates the own heap and serves it.
func (d *devices) offer(secret []byte, rank int, export bool) (o deviceOffer, stop func() error, err error) {
	stop = func() error { return nil }
	h, err := d.space.Create(rank, d.byRank[rank], export)
	if err != nil {
		return o, stop, err
	}
	o = deviceOffer{Data: h.Data, Share: string(h.Share), UUID: d.uuid[rank]}
	if h.FD >= 0 {
		o.FD, stop, err = bootstrap.ServeFD(secret, h.FD)
		_ = unix.Close(h.FD) // what is served is a duplicate
	}
	return o, stop, err
}

func (d *devices) fetch(ctx context.Context, o deviceOffer, secret []byte, pe, rank int, size uint64) error {
	h := device.Handle{Share: device.Share(o.Share), FD: -1, Data: o.Data, Size: size}
	if o.FD != "" {
		fd, err := bootstrap.FetchFD(ctx, o.FD, secret)
		if err != nil {
			return fmt.Errorf("device heap of pe %d: %w", pe, err)
		}
		defer closeFD(fd)
		h.FD = fd
	}
	if err := d.space.Import(pe, d.byRank[rank], h); err != nil {
		return fmt.Errorf("device heap of pe %d: %w", pe, err)
	}
	return nil
}

// newTransport is the same-host transport: over devices where there are any.
func (w *World) newTransport() error {
	d := w.mem.dev
	if d == nil {
		w.host = nvlink.NewHost(w.table, w.size)
		return nil
	}
	g, err := nvlink.NewGPU(nvlink.GPUConfig{
		Table: w.table, PEs: w.size, Devices: d.byRank, UUID: d.uuid,
		Streams: w.vals.DeviceStreams, Engine: w.vals.DeviceEngine,
		Staged: d.staged, Pipe: w.layout.Stage, Knock: func(pe int) { w.bells[pe].Check() }, Share: d.space.Share(),
	})
	if err != nil {
		return err
	}
	w.host, w.gpu = g, g
	if g.Stages() {
		w.proxy.AddHook(g.Serve).Arm()
	}
	return nil
}

// Device is the device whose memory is this PE's device heap; nil: it has none.
func (p *PE) Device() device.Device {
	if d := p.world.mem.dev; d != nil {
		return d.byRank[p.rank]
	}
	return nil
}

// DeviceAddr is the address, for this process's device, of n bytes of a symmetric
// object on a PE of the world: the CUdeviceptr that kernels and other libraries take.
// Device memory that is not mapped here is ErrUnsupported.
func (p *PE) DeviceAddr(ref heap.Ref, n uint64, pe int) (uint64, error) {
	const op = "pe: device address"
	fail := func(err error) (uint64, error) {
		return 0, &errs.OpError{Op: op, PE: pe, Size: int64(n), At: ref.String(), Err: err}
	}
	if pe < 0 || pe >= p.world.size {
		return fail(errs.ErrPeer)
	}
	if err := p.world.table.Check(pe, ref, n); err != nil {
		return fail(err)
	}
	if p.closed.Load() {
		return fail(&errs.ClosedError{PE: p.rank})
	}
	m := p.world.table.Region(pe, ref.Region())
	if p.Device() == nil || m.Addr == 0 || ref.Region() == heap.RegionDevice && p.world.gpu.Staged(p.rank, pe) {
		return fail(errs.ErrUnsupported)
	}
	return m.Addr + ref.Offset(), nil
}

// fillDevice clears a part of this PE's device heap and waits until it is clear.
func (p *PE) fillDevice(off, size uint64) error {
	return p.onDevice("zeroed device memory", func(s device.Stream) error {
		return s.Fill(p.world.table.Region(p.rank, heap.RegionDevice).Addr+off, 0, size)
	})
}

// copyDevice copies between addresses of the device and waits.
func (p *PE) copyDevice(dst, src, n uint64) error {
	return p.onDevice("a copy to device memory", func(s device.Stream) error { return s.Copy(dst, src, n) })
}

// onDevice lets this PE's device work and waits until it is done.
func (p *PE) onDevice(what string, work func(device.Stream) error) error {
	dev := p.Device()
	if err := dev.Enter(); err != nil {
		return err
	}
	defer dev.Leave()
	s, err := dev.NewStream()
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if err := work(s); err != nil {
		return err
	}
	for end := time.Now().Add(p.world.vals.Timeout); ; time.Sleep(20 * time.Microsecond) {
		if err := s.Poll(); !errors.Is(err, errs.ErrWouldBlock) {
			return err
		}
		if time.Now().After(end) {
			return &errs.TimeoutError{What: what, PE: p.rank}
		}
	}
}

// deviceWaitsEnd reports whether waits of kernels and streams are hopeless: the
// world ended, a PE of this process closed, or a loss is not acknowledged.
func (w *World) deviceWaitsEnd() bool {
	if w.failed.Load() != nil {
		return true
	}
	for _, p := range w.locals() {
		if p.closed.Load() || w.firstLost(ranks(w.size), p.hasAcked) != nil {
			return true
		}
	}
	return false
}

// OnDevice is what on-stream operations need of the same-host transport; nil where
// the PE has no device.
func (c *Context) OnDevice() *nvlink.GPU { return c.pe.world.gpu }

// Timeout is the deadline of a wait that has none of its own.
func (c *Context) Timeout() time.Duration { return c.pe.world.vals.Timeout }
