package cudadev

import (
	"fmt"

	"goshmem/internal/cuda"
	"goshmem/nvlink/device"
)

// Kernel is a kernel of the user's. It is used by one goroutine at a time.
type Kernel struct {
	g    *Device
	f    cuda.Function
	room cuda.Params
}

// Kernel loads PTX or machine code and finds a kernel in it. Before other kernels
// run that wait for each other: loading may wait for those. The code stays loaded
// until the process ends.
func (g *Device) Kernel(image []byte, name string) (*Kernel, error) {
	if err := g.Enter(); err != nil {
		return nil, err
	}
	defer g.Leave()
	m, err := g.drv.lib.ModuleLoad(image)
	if err != nil {
		return nil, fmt.Errorf("cudadev: load the code of %s: %w", name, err)
	}
	f, err := g.drv.lib.ModuleFunction(m, name)
	if err != nil {
		return nil, fmt.Errorf("cudadev: kernel %s: %w", name, err)
	}
	return &Kernel{g: g, f: f}, nil
}

// Launch enqueues the kernel on a stream of its device. Parameters are integers and
// addresses, each in 8 bytes, little-endian.
func (k *Kernel) Launch(s device.Stream, blocks, threads uint32, params ...uint64) error {
	if err := k.g.Enter(); err != nil {
		return err
	}
	defer k.g.Leave()
	return k.g.drv.lib.Launch(k.f, blocks, threads, cuda.Stream(s.Handle()), &k.room, params...)
}
