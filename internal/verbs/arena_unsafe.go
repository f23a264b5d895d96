package verbs

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

// arena is memory that is not Go's, for what C reads and writes.
type arena struct {
	mem  []byte
	used uintptr
}

func newArena(size uintptr) (*arena, error) {
	mem, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("verbs: %d B for work requests: %w: %w", size, errs.ErrNoMemory, err)
	}
	return &arena{mem: mem}, nil
}

// take is n zeroed objects, each array on a cache line of its own.
func take[T any](a *arena, n int) []T {
	p := unsafe.Pointer(&a.mem[a.used])
	a.used += room[T](n)
	return unsafe.Slice((*T)(p), n)
}

// room is what take of n objects uses.
func room[T any](n int) uintptr {
	var t T
	return (unsafe.Sizeof(t)*uintptr(max(n, 1)) + 63) &^ 63
}

func (a *arena) free() {
	if a != nil && a.mem != nil {
		_ = unix.Munmap(a.mem)
		a.mem = nil
	}
}
