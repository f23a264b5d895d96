package cuda

import "unsafe"

// Mem is physical device memory, to be mapped.
type Mem uint64

const (
	pinned      = 1
	onDevice    = 1
	handlePosix = 1
	readWrite   = 3
)

// allocProp is CUmemAllocationProp.
type allocProp struct {
	kind, handleTypes uint32
	location          location
	win32             uint64
	compression       uint8
	gpuDirectRDMA     uint8
	usage             uint16
	_                 [4]byte
}

func propOf(d Device, rdma bool) *allocProp {
	p := &allocProp{kind: pinned, handleTypes: handlePosix, location: location{onDevice, int32(d)}}
	if rdma {
		p.gpuDirectRDMA = 1
	}
	return p
}

// MemGetAllocationGranularity is what sizes and addresses of a device's physical
// memory are multiples of, for the best speed.
func (l *Lib) MemGetAllocationGranularity(d Device) (uint64, error) {
	const recommended = 1
	var n uint64
	err := l.call(fMemGetAllocationGranularity, uintptr(unsafe.Pointer(&n)), uintptr(unsafe.Pointer(propOf(d, false))), recommended)
	return n, err
}

// MemCreate allocates physical memory that can be exported as a POSIX
// descriptor; rdma: NICs reach it.
func (l *Lib) MemCreate(size uint64, d Device, rdma bool) (Mem, error) {
	var m Mem
	err := l.call(fMemCreate, uintptr(unsafe.Pointer(&m)), uintptr(size), uintptr(unsafe.Pointer(propOf(d, rdma))), 0)
	return m, err
}

// MemRelease gives up a handle; the memory goes with its last mapping.
func (l *Lib) MemRelease(m Mem) error { return l.call(fMemRelease, uintptr(m)) }

// MemAddressReserve reserves addresses.
func (l *Lib) MemAddressReserve(size, align uint64) (Ptr, error) {
	var p Ptr
	err := l.call(fMemAddressReserve, uintptr(unsafe.Pointer(&p)), uintptr(size), uintptr(align), 0, 0)
	return p, err
}

// MemAddressFree gives reserved addresses back.
func (l *Lib) MemAddressFree(p Ptr, size uint64) error {
	return l.call(fMemAddressFree, uintptr(p), uintptr(size))
}

// MemMap maps the first size bytes of m at p, within reserved addresses.
func (l *Lib) MemMap(p Ptr, size uint64, m Mem) error {
	return l.call(fMemMap, uintptr(p), uintptr(size), 0, uintptr(m), 0)
}

// MemUnmap undoes whole MemMaps.
func (l *Lib) MemUnmap(p Ptr, size uint64) error { return l.call(fMemUnmap, uintptr(p), uintptr(size)) }

// MemSetAccess lets devices read and write mapped addresses.
func (l *Lib) MemSetAccess(p Ptr, size uint64, devs []Device) error {
	type desc struct {
		location location
		flags    uint32
	}
	ds := make([]desc, len(devs))
	for i, d := range devs {
		ds[i] = desc{location{onDevice, int32(d)}, readWrite}
	}
	if len(ds) == 0 {
		return nil
	}
	return l.call(fMemSetAccess, uintptr(p), uintptr(size), uintptr(unsafe.Pointer(&ds[0])), uintptr(len(ds)))
}

// MemExport makes a POSIX descriptor of m, the caller's to close.
func (l *Lib) MemExport(m Mem) (fd int, err error) {
	var v int32
	err = l.call(fMemExportToShareableHandle, uintptr(unsafe.Pointer(&v)), uintptr(m), handlePosix, 0)
	return int(v), err
}

// MemImport is the memory behind a descriptor, which stays the caller's.
func (l *Lib) MemImport(fd int) (Mem, error) {
	var m Mem
	err := l.call(fMemImportFromShareableHandle, uintptr(unsafe.Pointer(&m)), uintptr(fd), handlePosix)
	return m, err
}

// MemDMABuf makes a dma-buf descriptor of device memory, the caller's to close.
// pcie asks for a mapping through the PCI window.
func (l *Lib) MemDMABuf(p Ptr, size uint64, pcie bool) (fd int, err error) {
	const dmaBuf = 1
	var v int32
	flags := uintptr(0)
	if pcie {
		flags = 1
	}
	err = l.call(fMemGetHandleForAddressRange, uintptr(unsafe.Pointer(&v)), uintptr(p), uintptr(size), dmaBuf, flags)
	return int(v), err
}
