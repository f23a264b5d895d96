package shm

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

// Range is a reserved stretch of addresses. Its methods may be called
// concurrently with each other; that nobody touches mapped memory during or
// after [Range.Unmap] is up to the caller.
type Range struct {
	size int64 // a multiple of the page size

	mu   sync.Mutex
	base unsafe.Pointer // nil once unmapped
}

// Reserve takes size bytes (rounded up to whole pages) of address space. No
// byte of it may be touched until something is mapped there, and it costs no
// memory.
func Reserve(size int64) (*Range, error) {
	if size <= 0 {
		return nil, fmt.Errorf("shm: reserve %d B: size must be positive: %w", size, errs.ErrConfig)
	}
	page := int64(os.Getpagesize())
	if size > maxSize-page {
		return nil, fmt.Errorf("shm: reserve %d B: over %d B: %w", size, int64(maxSize), errs.ErrNoMemory)
	}
	size = (size + page - 1) &^ (page - 1)
	base, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("shm: reserve %d B: %w", size, noMemory(err))
	}
	return &Range{size: size, base: base}, nil
}

// Map maps size bytes of fd from offset fileOff, shared and writable, at the
// offset at of the range, over whatever was mapped there, and returns the
// address. fileOff, at and size are multiples of the page size. The mapping
// does not need fd any longer. That the file is as long is up to the caller:
// touching pages past its end raises SIGBUS.
func (r *Range) Map(fd int, fileOff, at, size int64) (unsafe.Pointer, error) {
	fail := func(err error) (unsafe.Pointer, error) {
		return nil, fmt.Errorf("shm: map %d B of fd %d+%#x at range+%#x of %d B: %w", size, fd, fileOff, at, r.size, err)
	}
	if size <= 0 || at < 0 || fileOff < 0 || at > r.size || size > r.size-at {
		return fail(errs.ErrRange)
	}
	if (fileOff|at|size)&int64(os.Getpagesize()-1) != 0 {
		return fail(errs.ErrAlign)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.base == nil {
		return fail(errs.ErrClosed)
	}
	p, err := unix.MmapPtr(fd, fileOff, unsafe.Add(r.base, at), uintptr(size),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		return fail(noMemory(err))
	}
	return p, nil
}

// Base is the first address; nil once unmapped.
func (r *Range) Base() unsafe.Pointer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.base
}

// Unmap removes the range with all that is mapped in it. Doing so again does
// nothing.
func (r *Range) Unmap() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.base == nil {
		return nil
	}
	if err := unix.MunmapPtr(r.base, uintptr(r.size)); err != nil {
		return fmt.Errorf("shm: unmap %d B: %w", r.size, err)
	}
	r.base = nil
	return nil
}
