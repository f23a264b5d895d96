package pe

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"goshmem/channel"
	"goshmem/internal/errs"
)

// Buffer is memory of this PE alone, off the Go heap: the local side of large
// transfers. An RDMA device registers it when it is first used and then reads and
// writes it in place, where other memory is copied through registered slots; on other
// paths it is as any slice. It is valid until Free, or the world's end.
type Buffer struct {
	pe  *PE
	mem []byte
}

// NewBuffer makes a zeroed buffer of size bytes, at a page. Not collective.
func (p *PE) NewBuffer(size int) (*Buffer, error) {
	const op = "pe: new buffer"
	if size <= 0 {
		return nil, &errs.OpError{Op: op, PE: -1, Size: -1, Err: fmt.Errorf("%d B: %w", size, errs.ErrRange)}
	}
	if p.closed.Load() {
		return nil, &errs.OpError{Op: op, PE: -1, Size: int64(size), Err: &errs.ClosedError{PE: p.rank}}
	}
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, &errs.OpError{Op: op, PE: -1, Size: int64(size), Err: fmt.Errorf("%w: %w", errs.ErrNoMemory, err)}
	}
	if !p.world.mem.buffers.add(mem) {
		_ = unix.Munmap(mem) // just mapped
		return nil, &errs.OpError{Op: op, PE: -1, Size: int64(size), Err: &errs.ClosedError{PE: p.rank}}
	}
	return &Buffer{p, mem}, nil
}

// Bytes is the buffer's memory.
func (b *Buffer) Bytes() []byte { return b.mem }

// Free quiets this PE's contexts, takes the buffer from the devices and gives the
// memory back; the slices of Bytes are not to be used any more. If that fails the
// buffer stays. A second Free is ErrBadRef.
func (b *Buffer) Free(ctx context.Context) error {
	p := b.pe
	fail := func(err error) error {
		return &errs.OpError{Op: "pe: free buffer", PE: -1, Size: int64(len(b.mem)), Err: err}
	}
	if err := p.quietAll(ctx); err != nil {
		return fail(err)
	}
	if !p.world.mem.buffers.remove(b.mem) {
		return fail(errs.ErrBadRef)
	}
	var err error
	p.world.proxy.With(func() {
		for _, r := range p.world.remotes {
			if f, ok := r.Transport.(channel.Forgetter); ok && err == nil {
				err = f.Forget(unsafe.Pointer(unsafe.SliceData(b.mem)))
			}
		}
	})
	if err == nil {
		err = unix.Munmap(b.mem)
	}
	if err != nil {
		return fail(err) // the memory stays for good: a device may still write there
	}
	return nil
}

// buffers are a world's, by address.
type buffers struct {
	mu   sync.Mutex
	over bool
	all  atomic.Pointer[[][]byte]
}

func start(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

// at is where a buffer is, or would be, in the list, which never changes.
func (b *buffers) at(addr uintptr) (all [][]byte, i int, found bool) {
	if p := b.all.Load(); p != nil {
		all = *p
	}
	i, found = slices.BinarySearchFunc(all, addr, func(m []byte, a uintptr) int {
		switch {
		case start(m)+uintptr(len(m)) <= a:
			return -1
		case start(m) > a:
			return 1
		}
		return 0
	})
	return all, i, found
}

// find is the buffer that an address is in.
func (b *buffers) find(addr uintptr) (base unsafe.Pointer, size uint64) {
	if all, i, found := b.at(addr); found {
		return unsafe.Pointer(unsafe.SliceData(all[i])), uint64(len(all[i]))
	}
	return nil, 0
}

func (b *buffers) add(mem []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return false
	}
	all, i, _ := b.at(start(mem))
	now := slices.Insert(slices.Clone(all), i, mem)
	b.all.Store(&now)
	return true
}

// remove reports whether the buffer was there.
func (b *buffers) remove(mem []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, i, found := b.at(start(mem))
	if !found || b.over {
		return false
	}
	now := slices.Delete(slices.Clone(all), i, i+1)
	b.all.Store(&now)
	return true
}

// release unmaps what is left, when no device is left.
func (b *buffers) release() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, _, _ := b.at(0)
	b.over = true
	b.all.Store(nil)
	for _, mem := range all {
		if err := unix.Munmap(mem); err != nil {
			return fmt.Errorf("pe: unmap a buffer: %w", err)
		}
	}
	return nil
}
