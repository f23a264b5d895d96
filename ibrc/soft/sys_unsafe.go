package soft

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of the data path, on sockets that never block: raw, since the
// scheduler need not know of them.

func sysWrite(fd int, v *unix.Iovec) (uintptr, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(v.Base)), uintptr(v.Len))
	runtime.KeepAlive(v)
	return n, e
}

func sysWritev(fd int, v []unix.Iovec) (uintptr, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(v))), uintptr(len(v)))
	runtime.KeepAlive(v)
	return n, e
}

func sysRead(fd int, p unsafe.Pointer, size int) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(p), uintptr(size))
	runtime.KeepAlive(p)
	return int(n), e
}

func sysReadv(fd int, v []unix.Iovec) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(v))), uintptr(len(v)))
	runtime.KeepAlive(v)
	return int(n), e
}
