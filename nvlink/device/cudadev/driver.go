package cudadev

import (
	_ "embed"
	"fmt"

	"goshmem/internal/cuda"
	"goshmem/internal/errs"
	"goshmem/nvlink/device"
)

// kernels is kernels.cu, compiled.
//
//go:embed kernels.ptx
var kernels []byte

// Driver is the CUDA driver.
type Driver struct {
	lib   *cuda.Lib
	image []byte
}

var _ device.Driver = (*Driver)(nil)

// Load loads the driver. ErrUnsupported where there is none, or no GPU.
func Load() (*Driver, error) {
	lib, err := cuda.Load()
	if err != nil {
		return nil, err
	}
	return &Driver{lib: lib, image: kernels}, nil
}

// Name is "cuda".
func (d *Driver) Name() string { return "cuda" }

// Lib is the binding, for programs that launch kernels of their own.
func (d *Driver) Lib() *cuda.Lib { return d.lib }

// Devices lists the GPUs.
func (d *Driver) Devices() ([]device.Info, error) {
	n, err := d.lib.DeviceCount()
	if err != nil {
		return nil, err
	}
	all := make([]device.Info, n)
	for i := range all {
		if all[i], err = d.info(i); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Measured on an H200 (docs/perf/gpu.md): up to here one kernel is faster than a copy
// within the device and a store behind it, and stores of the stream are faster than a
// copy for a payload from the host.
const (
	copyWriteMax   = 64 << 10
	copiesWriteMax = 4 << 20
	writeMax       = 16
)

func (d *Driver) info(i int) (device.Info, error) {
	dev, err := d.lib.DeviceGet(i)
	if err != nil {
		return device.Info{}, err
	}
	info := device.Info{Index: i, CopyWriteMax: copyWriteMax, CopiesWriteMax: copiesWriteMax, WriteMax: writeMax}
	id, err := d.lib.DeviceUUID(dev)
	if err != nil {
		return info, err
	}
	info.UUID = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	if info.Name, err = d.lib.DeviceName(dev); err != nil {
		return info, err
	}
	if info.Bus, err = d.lib.DevicePCIBusID(dev); err != nil {
		return info, err
	}
	if info.Memory, err = d.lib.DeviceTotalMem(dev); err != nil {
		return info, err
	}
	for _, a := range facts {
		v, err := d.lib.DeviceAttribute(dev, a.code)
		if err != nil {
			return info, err
		}
		info.Facts = append(info.Facts, device.Fact{Name: a.name, Value: fmt.Sprint(v)})
	}
	ops, err := d.lib.DeviceAttribute(dev, cuda.StreamMemOps64)
	if err == nil && ops == 0 {
		err = fmt.Errorf("cudadev: GPU %d (%s) has no 64-bit stream stores: %w", i, info.Name, errs.ErrUnsupported)
	}
	return info, err
}

var facts = [...]struct {
	name string
	code cuda.Attribute
}{
	{"compute major", cuda.ComputeMajor},
	{"compute minor", cuda.ComputeMinor},
	{"multiprocessors", cuda.MultiprocessorCount},
	{"copy engines", cuda.AsyncEngineCount},
	{"memory handles as descriptors", cuda.HandleTypePosixFD},
	{"GPUDirect RDMA of mapped memory", cuda.GPUDirectRDMAWithVMM},
	{"dma-buf", cuda.DMABufSupported},
	{"atomics on host memory", cuda.HostNativeAtomics},
}

// Pair is the way from GPU a to the memory of GPU b.
func (d *Driver) Pair(a, b int) (device.Pair, error) {
	if a == b {
		return device.Pair{Access: true, Atomics: true}, nil
	}
	x, err := d.lib.DeviceGet(a)
	if err != nil {
		return device.Pair{}, err
	}
	y, err := d.lib.DeviceGet(b)
	if err != nil {
		return device.Pair{}, err
	}
	var p device.Pair
	if p.Access, err = d.lib.DeviceCanAccessPeer(x, y); err != nil || !p.Access {
		return p, err
	}
	n, err := d.lib.DeviceP2PAttribute(cuda.P2PNativeAtomics, x, y)
	if err != nil {
		return p, err
	}
	p.Atomics = n != 0
	p.Rank, err = d.lib.DeviceP2PAttribute(cuda.P2PPerformanceRank, x, y)
	return p, err
}
