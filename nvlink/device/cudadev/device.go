package cudadev

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"goshmem/internal/cuda"
	"goshmem/internal/errs"
	"goshmem/nvlink/device"
)

// Device is one GPU through its primary context.
type Device struct {
	drv  *Driver
	info device.Info
	dev  cuda.Device
	ctx  cuda.Ctx

	module, exchangeM                                  cuda.Module
	exchangeF, exchangeFewF                            cuda.Function
	early                                              bool // launches of exchangeF may be set up early
	copyF, copy1F, copyAddF, serveF, amoF, addF, waitF cuda.Function

	mu     sync.Mutex
	closed bool
	hosts  []unsafe.Pointer
	pinned []unsafe.Pointer
	allocs []cuda.Ptr
}

var _ device.Device = (*Device)(nil)

// Open makes GPU i usable.
func (d *Driver) Open(i int) (device.Device, error) {
	info, err := d.info(i)
	if err != nil {
		return nil, err
	}
	dev, err := d.lib.DeviceGet(i)
	if err != nil {
		return nil, err
	}
	ctx, err := d.lib.PrimaryCtxRetain(dev)
	if err != nil {
		return nil, fmt.Errorf("cudadev: GPU %d (%s): %w", i, info.Name, err)
	}
	g := &Device{drv: d, info: info, dev: dev, ctx: ctx}
	if err := g.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("cudadev: GPU %d (%s): the runtime's kernels: %w", i, info.Name, err), g.Close())
	}
	return g, nil
}

func (g *Device) load() error {
	if err := g.Enter(); err != nil {
		return err
	}
	defer g.Leave()
	var err error
	if g.module, err = g.drv.lib.ModuleLoad(g.drv.image); err != nil {
		return err
	}
	for name, f := range map[string]*cuda.Function{
		"goshmem_copy": &g.copyF, "goshmem_copy1": &g.copy1F, "goshmem_copy_add": &g.copyAddF, "goshmem_serve": &g.serveF,
		"goshmem_amo": &g.amoF, "goshmem_add": &g.addF, "goshmem_wait": &g.waitF,
	} {
		if *f, err = g.drv.lib.ModuleFunction(g.module, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	major, err := g.drv.lib.DeviceAttribute(g.dev, cuda.ComputeMajor)
	if err != nil {
		return err
	}
	image := exchangeImage
	if g.early = major >= 9 && g.drv.lib.HasEarly(); g.early {
		image = exchange90Image
	}
	if g.exchangeM, err = g.drv.lib.ModuleLoad(image); err != nil {
		return err
	}
	if g.exchangeF, err = g.drv.lib.ModuleFunction(g.exchangeM, "goshmem_exchange"); err != nil {
		return err
	}
	g.exchangeFewF, err = g.drv.lib.ModuleFunction(g.exchangeM, "goshmem_exchange_few")
	return err
}

// Info describes the GPU.
func (g *Device) Info() device.Info { return g.info }

// Driver is the driver it was opened with.
func (g *Device) Driver() *Driver { return g.drv }

// Enter makes the context current on this goroutine's thread, until Leave.
func (g *Device) Enter() error {
	runtime.LockOSThread()
	old, err := g.drv.lib.CtxGetCurrent()
	if err == nil && old != g.ctx {
		err = g.drv.lib.CtxSetCurrent(g.ctx)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	return nil
}

// Leave lets the thread go. The context stays current there, which harms nobody
// who, like every call here, sets the one it needs.
func (g *Device) Leave() { runtime.UnlockOSThread() }

// Register pins host memory.
func (g *Device) Register(base unsafe.Pointer, size uint64) (uint64, error) {
	if err := g.Enter(); err != nil {
		return 0, err
	}
	defer g.Leave()
	err := g.drv.lib.MemHostRegister(base, size)
	mine := err == nil
	if err != nil && cuda.Code(err) != cuda.AlreadyRegistered {
		return 0, fmt.Errorf("cudadev: pin %d B: %w", size, err)
	}
	p, err := g.drv.lib.MemHostGetDevicePointer(base)
	if err != nil {
		return 0, fmt.Errorf("cudadev: pin %d B: %w", size, err)
	}
	if mine {
		g.mu.Lock()
		g.hosts = append(g.hosts, base)
		g.mu.Unlock()
	}
	return uint64(p), nil
}

// Unregister unpins memory that this device pinned; it may wait for kernels.
func (g *Device) Unregister(base unsafe.Pointer) error {
	g.mu.Lock()
	mine := false
	for i, h := range g.hosts {
		if h == base {
			mine = true
			g.hosts = append(g.hosts[:i], g.hosts[i+1:]...)
			break
		}
	}
	g.mu.Unlock()
	if !mine {
		return nil
	}
	if err := g.Enter(); err != nil {
		return err
	}
	defer g.Leave()
	return g.drv.lib.MemHostUnregister(base)
}

// Pinned is zeroed pinned host memory.
func (g *Device) Pinned(size uint64) (unsafe.Pointer, uint64, error) {
	if err := g.Enter(); err != nil {
		return nil, 0, err
	}
	defer g.Leave()
	h, err := g.drv.lib.MemHostAlloc(size)
	if err != nil {
		return nil, 0, fmt.Errorf("cudadev: %d B of pinned memory: %w", size, err)
	}
	g.mu.Lock()
	g.pinned = append(g.pinned, h)
	g.mu.Unlock()
	clear(unsafe.Slice((*byte)(h), size))
	p, err := g.drv.lib.MemHostGetDevicePointer(h)
	return h, uint64(p), err
}

// Alloc is zeroed memory of the GPU.
func (g *Device) Alloc(size uint64) (uint64, error) {
	s, err := g.newStream()
	if err != nil {
		return 0, err
	}
	if err := g.Enter(); err != nil {
		return 0, err
	}
	defer g.Leave()
	p, err := g.drv.lib.MemAlloc(size)
	if err != nil {
		return 0, fmt.Errorf("cudadev: %d B of device memory: %w", size, err)
	}
	g.mu.Lock()
	g.allocs = append(g.allocs, p)
	g.mu.Unlock()
	return uint64(p), errors.Join(s.Fill(uint64(p), 0, size), g.drv.lib.StreamSynchronize(s.s), s.Close())
}

// Settle waits for kernels and copies of this process. One that does not end keeps a
// thread waiting, and what it uses must stay.
func (g *Device) Settle(limit time.Duration) error {
	done := make(chan error, 1)
	go func() {
		if err := g.Enter(); err != nil {
			done <- err
			return
		}
		defer g.Leave()
		done <- g.drv.lib.CtxSynchronize()
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return fmt.Errorf("cudadev: GPU %d (%s): %w", g.info.Index, g.info.Name, &errs.TimeoutError{What: "running kernels", PE: -1})
	}
}

// Close gives everything up. Memory in use by a kernel is waited for.
func (g *Device) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	lib := g.drv.lib
	var all []error
	if err := g.Enter(); err == nil {
		for _, p := range g.allocs {
			all = append(all, lib.MemFree(p))
		}
		for _, p := range g.pinned {
			all = append(all, lib.MemFreeHost(p))
		}
		for _, p := range g.hosts {
			all = append(all, lib.MemHostUnregister(p))
		}
		if g.module != 0 {
			all = append(all, lib.ModuleUnload(g.module))
		}
		if g.exchangeM != 0 {
			all = append(all, lib.ModuleUnload(g.exchangeM))
		}
		all = append(all, lib.CtxSetCurrent(0))
		g.Leave()
	}
	return errors.Join(append(all, lib.PrimaryCtxRelease(g.dev))...)
}

// of is a device of this driver.
func of(d device.Device) (*Device, error) {
	g, ok := d.(*Device)
	if !ok {
		return nil, fmt.Errorf("cudadev: device %s of another driver: %w", d.Info().Name, errs.ErrConfig)
	}
	return g, nil
}
