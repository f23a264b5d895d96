package cuda

import (
	"runtime"
	"unsafe"
)

// IpcHandle names a MemAlloc allocation to other processes.
type IpcHandle [64]byte

// IpcGetMemHandle is the handle of the allocation that p begins.
func (l *Lib) IpcGetMemHandle(p Ptr) (IpcHandle, error) {
	var h IpcHandle
	err := l.call(fIpcGetMemHandle, uintptr(unsafe.Pointer(&h)), uintptr(p))
	return h, err
}

// IpcOpenMemHandle maps another process's allocation into the current context.
func (l *Lib) IpcOpenMemHandle(h IpcHandle) (Ptr, error) {
	const lazyPeerAccess = 1
	var p Ptr
	// The handle goes by value: to the machine a struct of eight words, on the
	// stack behind the registers on amd64, by reference on arm64.
	if runtime.GOARCH == "arm64" {
		err := l.call(fIpcOpenMemHandle, uintptr(unsafe.Pointer(&p)), uintptr(unsafe.Pointer(&h)), lazyPeerAccess)
		return p, err
	}
	w := (*[8]uint64)(unsafe.Pointer(&h))
	err := l.call(fIpcOpenMemHandle, uintptr(unsafe.Pointer(&p)), lazyPeerAccess, 0, 0, 0, 0,
		uintptr(w[0]), uintptr(w[1]), uintptr(w[2]), uintptr(w[3]), uintptr(w[4]), uintptr(w[5]), uintptr(w[6]), uintptr(w[7]))
	return p, err
}

// IpcCloseMemHandle unmaps it.
func (l *Lib) IpcCloseMemHandle(p Ptr) error { return l.call(fIpcCloseMemHandle, uintptr(p)) }
