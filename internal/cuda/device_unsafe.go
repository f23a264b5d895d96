package cuda

import (
	"bytes"
	"unsafe"
)

// Device is the ordinal of a GPU, as the driver hands it out.
type Device int32

// Ctx is a context.
type Ctx uintptr

// Attribute is a property of a device.
type Attribute int32

// Attributes in use here.
const (
	MultiprocessorCount     Attribute = 16
	ClockRate               Attribute = 13
	MaxPitch                Attribute = 11
	CanMapHostMemory        Attribute = 19
	PCIBusID                Attribute = 33
	AsyncEngineCount        Attribute = 40
	UnifiedAddressing       Attribute = 41
	ComputeMajor            Attribute = 75
	ComputeMinor            Attribute = 76
	HostNativeAtomics       Attribute = 86
	HostPointerIsDevice     Attribute = 91
	VirtualMemoryManagement Attribute = 102
	HandleTypePosixFD       Attribute = 103
	GPUDirectRDMAWithVMM    Attribute = 110
	StreamMemOps64          Attribute = 122
	DMABufSupported         Attribute = 124
)

// P2PAttribute is a property of a pair of devices.
type P2PAttribute int32

// The properties of pairs.
const (
	P2PPerformanceRank P2PAttribute = 1
	P2PAccess          P2PAttribute = 2
	P2PNativeAtomics   P2PAttribute = 3
)

// DriverVersion is the CUDA version of the driver, 1000 x major + 10 x minor.
func (l *Lib) DriverVersion() (int, error) {
	var v int32
	err := l.call(fDriverGetVersion, uintptr(unsafe.Pointer(&v)))
	return int(v), err
}

// DeviceCount is the number of GPUs.
func (l *Lib) DeviceCount() (int, error) {
	var n int32
	err := l.call(fDeviceGetCount, uintptr(unsafe.Pointer(&n)))
	return int(n), err
}

// DeviceGet is GPU number i.
func (l *Lib) DeviceGet(i int) (Device, error) {
	var d Device
	err := l.call(fDeviceGet, uintptr(unsafe.Pointer(&d)), uintptr(i))
	return d, err
}

// DeviceName is the name of the model.
func (l *Lib) DeviceName(d Device) (string, error) {
	var b [128]byte
	err := l.call(fDeviceGetName, uintptr(unsafe.Pointer(&b)), uintptr(len(b)), uintptr(d))
	return cString(b[:]), err
}

// DeviceUUID identifies a GPU in every process and container.
func (l *Lib) DeviceUUID(d Device) ([16]byte, error) {
	var b [16]byte
	err := l.call(fDeviceGetUUID, uintptr(unsafe.Pointer(&b)), uintptr(d))
	return b, err
}

// DevicePCIBusID is its place on the bus, as "0000:17:00.0".
func (l *Lib) DevicePCIBusID(d Device) (string, error) {
	var b [32]byte
	err := l.call(fDeviceGetPCIBusID, uintptr(unsafe.Pointer(&b)), uintptr(len(b)), uintptr(d))
	return cString(b[:]), err
}

// DeviceTotalMem is its memory in bytes.
func (l *Lib) DeviceTotalMem(d Device) (uint64, error) {
	var n uint64
	err := l.call(fDeviceTotalMem, uintptr(unsafe.Pointer(&n)), uintptr(d))
	return n, err
}

// DeviceAttribute is one of its properties.
func (l *Lib) DeviceAttribute(d Device, a Attribute) (int, error) {
	var v int32
	err := l.call(fDeviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), uintptr(d))
	return int(v), err
}

// DeviceCanAccessPeer reports whether d can reach the memory of peer.
func (l *Lib) DeviceCanAccessPeer(d, peer Device) (bool, error) {
	var v int32
	err := l.call(fDeviceCanAccessPeer, uintptr(unsafe.Pointer(&v)), uintptr(d), uintptr(peer))
	return v != 0, err
}

// DeviceP2PAttribute is a property of the way from src to dst.
func (l *Lib) DeviceP2PAttribute(a P2PAttribute, src, dst Device) (int, error) {
	var v int32
	err := l.call(fDeviceGetP2PAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), uintptr(src), uintptr(dst))
	return int(v), err
}

// PrimaryCtxRetain is the context that all users of a device in this process
// share; each retain needs a release.
func (l *Lib) PrimaryCtxRetain(d Device) (Ctx, error) {
	var c Ctx
	err := l.call(fPrimaryCtxRetain, uintptr(unsafe.Pointer(&c)), uintptr(d))
	return c, err
}

// PrimaryCtxRelease ends one retain.
func (l *Lib) PrimaryCtxRelease(d Device) error { return l.call(fPrimaryCtxRelease, uintptr(d)) }

// CtxSetCurrent makes c current on this OS thread; 0: none.
func (l *Lib) CtxSetCurrent(c Ctx) error { return l.call(fCtxSetCurrent, uintptr(c)) }

// CtxGetCurrent is the context of this OS thread; 0: none.
func (l *Lib) CtxGetCurrent() (Ctx, error) {
	var c Ctx
	err := l.call(fCtxGetCurrent, uintptr(unsafe.Pointer(&c)))
	return c, err
}

// CtxSynchronize waits for everything of the current context, kernels included.
func (l *Lib) CtxSynchronize() error { return l.call(fCtxSynchronize) }

// CtxEnablePeerAccess lets the current context reach the memory of peer's.
func (l *Lib) CtxEnablePeerAccess(peer Ctx) error {
	return l.call(fCtxEnablePeerAccess, uintptr(peer), 0)
}

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
