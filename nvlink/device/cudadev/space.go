package cudadev

import (
	"errors"
	"fmt"

	"goshmem/internal/cuda"
	"goshmem/internal/errs"
	"goshmem/nvlink/device"
)

// Space is memory of PEs. With ShareVMM all slots lie in one reserved range.
type Space struct {
	drv   *Driver
	share device.Share
	size  uint64 // of a slot
	step  uint64 // between slots: size in whole granules
	devs  []*Device
	ids   []cuda.Device
	base  cuda.Ptr // ShareVMM
	total uint64
	slots []slot
}

type slot struct {
	addr cuda.Ptr
	mem  cuda.Mem // ShareVMM
	dev  *Device
	own  bool
}

var _ device.Space = (*Space)(nil)

// NewSpace reserves room for slots of size bytes.
func (d *Driver) NewSpace(devs []device.Device, slots int, size uint64, share device.Share) (device.Space, error) {
	if slots < 1 || size < 1 || size > 1<<46/uint64(slots) || len(devs) == 0 {
		return nil, fmt.Errorf("cudadev: %d slots of %d B for %d devices: %w", slots, size, len(devs), errs.ErrConfig)
	}
	s := &Space{drv: d, share: share, size: size, slots: make([]slot, slots)}
	vmm, granule := true, uint64(1)
	for _, dev := range devs {
		g, err := of(dev)
		if err != nil {
			return nil, err
		}
		s.devs = append(s.devs, g)
		s.ids = append(s.ids, g.dev)
		for _, a := range [...]cuda.Attribute{cuda.VirtualMemoryManagement, cuda.HandleTypePosixFD} {
			v, err := d.lib.DeviceAttribute(g.dev, a)
			if err != nil {
				return nil, err
			}
			vmm = vmm && v != 0
		}
	}
	switch {
	case share == device.ShareAuto && vmm:
		s.share = device.ShareVMM
	case share == device.ShareAuto:
		s.share = device.ShareIPC
	case share == device.ShareVMM && !vmm:
		return nil, fmt.Errorf("cudadev: memory shared by descriptors: the device has none: %w", errs.ErrUnsupported)
	}
	if s.share == device.ShareIPC {
		return s, nil
	}
	for _, g := range s.devs {
		n, err := d.lib.MemGetAllocationGranularity(g.dev)
		if err != nil {
			return nil, err
		}
		granule = max(granule, n)
	}
	s.step = (size + granule - 1) / granule * granule
	s.total = s.step * uint64(slots)
	var err error
	if s.base, err = d.lib.MemAddressReserve(s.total, granule); err != nil {
		return nil, fmt.Errorf("cudadev: reserve %d B of addresses: %w", s.total, err)
	}
	return s, nil
}

// Share is what was chosen.
func (s *Space) Share() device.Share { return s.share }

// Addr is a slot's address.
func (s *Space) Addr(i int) uint64 { return uint64(s.slots[i].addr) }

// Create allocates a slot.
func (s *Space) Create(i int, dev device.Device, export bool) (device.Handle, error) {
	h := device.Handle{Share: s.share, FD: -1, Size: s.size}
	g, err := of(dev)
	if err != nil {
		return h, err
	}
	if err := g.Enter(); err != nil {
		return h, err
	}
	defer g.Leave()
	lib := s.drv.lib
	fail := func(err error) (device.Handle, error) {
		return h, fmt.Errorf("cudadev: %d B of symmetric device memory on GPU %d: %w", s.size, g.info.Index, err)
	}
	if s.share == device.ShareIPC {
		p, err := lib.MemAlloc(s.size)
		if err != nil {
			return fail(err)
		}
		s.slots[i] = slot{addr: p, dev: g, own: true}
		if err := s.enablePeers(g); err != nil {
			return fail(err)
		}
		if export {
			ipc, err := lib.IpcGetMemHandle(p)
			if err != nil {
				return fail(err)
			}
			h.Data = ipc[:]
		}
		return h, nil
	}
	rdma, _ := lib.DeviceAttribute(g.dev, cuda.GPUDirectRDMAWithVMM)
	m, err := lib.MemCreate(s.step, g.dev, rdma != 0)
	if err != nil && rdma != 0 && !errors.Is(err, errs.ErrNoMemory) {
		m, err = lib.MemCreate(s.step, g.dev, false)
	}
	if err != nil {
		return fail(err)
	}
	if err := s.place(i, g, m, true); err != nil {
		return fail(err)
	}
	if export {
		if h.FD, err = lib.MemExport(m); err != nil {
			return fail(err)
		}
	}
	return h, nil
}

// place maps physical memory into its slot, for all devices of this process that can
// reach g, whose memory it is, or who maps another process's.
func (s *Space) place(i int, g *Device, m cuda.Mem, own bool) error {
	at := s.base + cuda.Ptr(uint64(i)*s.step)
	if err := s.drv.lib.MemMap(at, s.step, m); err != nil {
		return errors.Join(err, s.drv.lib.MemRelease(m))
	}
	s.slots[i] = slot{addr: at, mem: m, dev: g, own: own}
	var ids []cuda.Device
	for _, id := range s.ids {
		can := id == g.dev
		if !can {
			var err error
			if can, err = s.drv.lib.DeviceCanAccessPeer(id, g.dev); err != nil {
				return err
			}
		}
		if can {
			ids = append(ids, id)
		}
	}
	return s.drv.lib.MemSetAccess(at, s.step, ids)
}

// enablePeers lets the other devices of this process reach g's allocations.
func (s *Space) enablePeers(g *Device) error {
	for _, other := range s.devs {
		if other.dev == g.dev {
			continue
		}
		if err := other.Enter(); err != nil {
			return err
		}
		err := s.drv.lib.CtxEnablePeerAccess(g.ctx)
		other.Leave()
		if err != nil && cuda.Code(err) != cuda.PeerAlreadyEnabled {
			return err
		}
	}
	return s.drv.lib.CtxSetCurrent(g.ctx)
}

// Import maps a slot of another process.
func (s *Space) Import(i int, dev device.Device, h device.Handle) error {
	g, err := of(dev)
	if err != nil {
		return err
	}
	fail := func(err error) error { return fmt.Errorf("cudadev: map another process's device memory: %w", err) }
	if h.Share != s.share || h.Size != s.size {
		return fail(fmt.Errorf("%s of %d B, here %s of %d B: %w", h.Share, h.Size, s.share, s.size, errs.ErrMismatch))
	}
	if err := g.Enter(); err != nil {
		return err
	}
	defer g.Leave()
	if s.share == device.ShareIPC {
		if len(h.Data) != len(cuda.IpcHandle{}) {
			return fail(fmt.Errorf("a handle of %d B: %w", len(h.Data), errs.ErrMismatch))
		}
		p, err := s.drv.lib.IpcOpenMemHandle(cuda.IpcHandle(h.Data))
		if err != nil {
			return fail(err)
		}
		s.slots[i] = slot{addr: p, dev: g}
		return nil
	}
	m, err := s.drv.lib.MemImport(h.FD)
	if err != nil {
		return fail(err)
	}
	if err := s.place(i, g, m, false); err != nil {
		return fail(err)
	}
	return nil
}

// Close unmaps and frees everything.
func (s *Space) Close() error {
	lib := s.drv.lib
	var all []error
	for i := range s.slots {
		x := &s.slots[i]
		if x.addr == 0 {
			continue
		}
		if err := x.dev.Enter(); err != nil {
			all = append(all, err)
			continue
		}
		switch {
		case s.share == device.ShareVMM:
			all = append(all, lib.MemUnmap(x.addr, s.step), lib.MemRelease(x.mem))
		case x.own:
			all = append(all, lib.MemFree(x.addr))
		default:
			all = append(all, lib.IpcCloseMemHandle(x.addr))
		}
		x.dev.Leave()
		*x = slot{}
	}
	if s.base != 0 {
		all = append(all, lib.MemAddressFree(s.base, s.total))
		s.base = 0
	}
	return errors.Join(all...)
}
