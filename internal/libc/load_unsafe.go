//go:build linux && (amd64 || arm64) && !nopurego

package libc

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"

	"goshmem/internal/errs"
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
	const name = "libc.so.6"
	handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("libc: open %s: %w: %w", name, errs.ErrUnsupported, err)
	}
	memcpy, err := purego.Dlsym(handle, "memcpy")
	if err != nil {
		return nil, fmt.Errorf("libc: find memcpy in %s: %w: %w", name, errs.ErrUnsupported, err)
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
	// The arguments are uintptrs from here on. SyscallN makes what they were
	// converted from escape, so none of it lies on a stack that could move.
	_, _, _ = purego.SyscallN(loopAddress, l.memcpy, uintptr(dst), uintptr(src), n, uintptr(iters))
}
