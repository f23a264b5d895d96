package hostdev

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
	"goshmem/internal/shm"
	"goshmem/nvlink/device"
)

// Driver offers some devices, all alike.
type Driver struct{ n int }

var _ device.Driver = (*Driver)(nil)

// New makes a driver of n devices.
func New(n int) *Driver { return &Driver{n: n} }

// Name is "host".
func (d *Driver) Name() string { return "host" }

// Devices lists them.
func (d *Driver) Devices() ([]device.Info, error) {
	all := make([]device.Info, d.n)
	for i := range all {
		all[i] = info(i)
	}
	return all, nil
}

func info(i int) device.Info {
	return device.Info{
		Index: i, Name: "host memory", UUID: fmt.Sprintf("host-%d", i), Memory: 1 << 40,
		CopyWriteMax: 4 << 10, CopiesWriteMax: 32 << 10, WriteMax: 64,
	}
}

// Open makes device i usable.
func (d *Driver) Open(i int) (device.Device, error) {
	if uint(i) >= uint(d.n) {
		return nil, fmt.Errorf("hostdev: device %d of %d: %w", i, d.n, errs.ErrUnsupported)
	}
	return &Device{info: info(i), streams: map[uintptr]*Stream{}}, nil
}

// Pair says that all reach each other.
func (d *Driver) Pair(a, b int) (device.Pair, error) {
	if uint(a) >= uint(d.n) || uint(b) >= uint(d.n) {
		return device.Pair{}, fmt.Errorf("hostdev: devices %d and %d of %d: %w", a, b, d.n, errs.ErrUnsupported)
	}
	return device.Pair{Access: true, Atomics: true}, nil
}

// NewSpace reserves addresses; every way of sharing is by descriptor.
func (d *Driver) NewSpace(_ []device.Device, slots int, size uint64, share device.Share) (device.Space, error) {
	const page = 4096
	if slots < 1 || size < 1 || size > 1<<46/uint64(slots) {
		return nil, fmt.Errorf("hostdev: %d slots of %d B: %w", slots, size, errs.ErrConfig)
	}
	if share == device.ShareAuto {
		share = device.ShareVMM
	}
	s := &Space{share: share, size: size, step: (size + page - 1) / page * page, slots: make([]slot, slots)}
	r, err := shm.Reserve(int64(s.step) * int64(slots))
	if err != nil {
		return nil, err
	}
	s.rng = r
	return s, nil
}

// Space is files in memory, mapped.
type Space struct {
	share      device.Share
	size, step uint64
	rng        *shm.Range
	slots      []slot
}

type slot struct {
	base unsafe.Pointer
	seg  *shm.Segment
}

// Share is what was asked for.
func (s *Space) Share() device.Share { return s.share }

// Addr is a slot's address.
func (s *Space) Addr(i int) uint64 { return uint64(uintptr(s.slots[i].base)) }

// Create allocates a slot.
func (s *Space) Create(i int, _ device.Device, export bool) (device.Handle, error) {
	h := device.Handle{Share: s.share, FD: -1, Size: s.size}
	seg, err := shm.Create(fmt.Sprintf("goshmem-device-%d", i), int64(s.step), true)
	if err != nil {
		return h, err
	}
	s.slots[i].seg = seg
	if s.slots[i].base, err = s.rng.Map(seg.FD(), 0, int64(uint64(i)*s.step), int64(s.step)); err != nil {
		return h, err
	}
	if export {
		h.FD, err = unix.FcntlInt(uintptr(seg.FD()), unix.F_DUPFD_CLOEXEC, 0)
	}
	return h, err
}

// Import maps another process's slot.
func (s *Space) Import(i int, _ device.Device, h device.Handle) error {
	if h.Share != s.share || h.Size != s.size {
		return fmt.Errorf("hostdev: %s of %d B, here %s of %d B: %w", h.Share, h.Size, s.share, s.size, errs.ErrMismatch)
	}
	base, err := s.rng.Map(h.FD, 0, int64(uint64(i)*s.step), int64(s.step))
	s.slots[i].base = base
	return err
}

// Close unmaps everything.
func (s *Space) Close() error {
	err := s.rng.Unmap()
	for i := range s.slots {
		if seg := s.slots[i].seg; seg != nil {
			err = errors.Join(err, seg.Close())
		}
		s.slots[i] = slot{}
	}
	return err
}

// Device is some memory and streams of this process.
type Device struct {
	info device.Info

	mu      sync.Mutex
	closed  bool
	streams map[uintptr]*Stream
	next    uintptr
	maps    [][]byte
}

var _ device.Device = (*Device)(nil)

// Info describes it.
func (d *Device) Info() device.Info { return d.info }

// Enter has nothing to do.
func (d *Device) Enter() error { return nil }

// Leave has nothing to undo.
func (d *Device) Leave() {}

// Register gives the address that the memory has anyway.
func (d *Device) Register(base unsafe.Pointer, _ uint64) (uint64, error) {
	return uint64(uintptr(base)), nil
}

// Unregister has nothing to undo.
func (d *Device) Unregister(unsafe.Pointer) error { return nil }

// Pinned is zeroed memory outside the Go heap.
func (d *Device) Pinned(size uint64) (unsafe.Pointer, uint64, error) {
	b, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, 0, fmt.Errorf("hostdev: %d B of memory: %w: %w", size, errs.ErrNoMemory, err)
	}
	d.mu.Lock()
	d.maps = append(d.maps, b)
	d.mu.Unlock()
	return unsafe.Pointer(&b[0]), uint64(uintptr(unsafe.Pointer(&b[0]))), nil
}

// Alloc is as Pinned.
func (d *Device) Alloc(size uint64) (uint64, error) {
	_, addr, err := d.Pinned(size)
	return addr, err
}

// Settle waits until all streams are done.
func (d *Device) Settle(limit time.Duration) error {
	d.mu.Lock()
	all := slices.Collect(maps.Values(d.streams))
	d.mu.Unlock()
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Microsecond) {
		busy := slices.ContainsFunc(all, func(s *Stream) bool { return s.Poll() != nil })
		if !busy {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("hostdev: %w", &errs.TimeoutError{What: "streams", PE: -1})
		}
	}
}

// Close ends all streams and gives everything up.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	all := d.streams
	d.streams = nil
	d.mu.Unlock()
	for _, s := range all {
		s.end()
		<-s.done
	}
	var err error
	for _, b := range d.maps {
		err = errors.Join(err, unix.Munmap(b))
	}
	d.maps = nil
	return err
}
