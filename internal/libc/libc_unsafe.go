package libc

import (
	"fmt"
	"unsafe"

	"goshmem/internal/dl"
)

// loopAddress is the address of the assembly routine memcpyLoop, which follows
// the C calling convention. Filled by the linker, never written.
var loopAddress uintptr

// Lib is the loaded library. It may be used by any number of goroutines and
// needs no closing: a dynamic program has libc loaded for good.
type Lib struct {
	memcpy uintptr
}

// Load opens the C library.
func Load() (*Lib, error) {
	lib, err := dl.Open("libc.so.6")
	if err != nil {
		return nil, fmt.Errorf("libc: %w", err)
	}
	memcpy, err := lib.Sym("memcpy")
	if err != nil {
		return nil, fmt.Errorf("libc: %w", err)
	}
	return &Lib{memcpy: memcpy}, nil
}

// MemcpyN copies iters times over (n bytes from src to dst, the same ones; they must
// not overlap, and may be of the Go heap as long as they hold no pointers)
// within one crossing. iters <= 0 does nothing. It is not preempted meanwhile,
// but a garbage collection does not wait for it: to the scheduler it is in a
// system call.
func (l *Lib) MemcpyN(dst, src unsafe.Pointer, n uintptr, iters int) {
	if iters <= 0 {
		return
	}
	// The arguments are uintptrs from here on. The call makes what they were
	// converted from escape, so none of it lies on a stack that could move.
	dl.CallNoErrno(loopAddress, l.memcpy, uintptr(dst), uintptr(src), n, uintptr(iters))
}
