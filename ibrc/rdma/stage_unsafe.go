package rdma

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
	"goshmem/internal/verbs"
)

// A slot class is registered memory cut into slots of one size, made when it is
// first needed.
type slotClass struct {
	size, count int
	mem         []byte
	mr          *verbs.MR
	free        []int32
}

// The classes: many small slots, and a few for the largest message.
const (
	smallSlot, smallSlots = 16 << 10, 64
	largeSlot, largeSlots = 1 << 20, 4
)

// slot is a piece of registered memory in use.
type slot struct {
	class *slotClass
	index int32
}

func (s slot) at() unsafe.Pointer { return unsafe.Pointer(&s.class.mem[int(s.index)*s.class.size]) }

func (s slot) release() { s.class.free = append(s.class.free, s.index) }

// take takes a slot of at least n bytes. ok is false if all are in use: some will be
// free when requests complete.
func (p *Provider) take(n uint32) (s slot, ok bool, err error) {
	c := &p.slots[0]
	if int(n) > c.size {
		c = &p.slots[1]
	}
	if int(n) > c.size {
		return s, false, fmt.Errorf("rdma: %d B of memory that is not registered: %w", n, errs.ErrCapacity)
	}
	if c.mr == nil {
		if err := c.open(p.pd); err != nil {
			return s, false, err
		}
	}
	last := len(c.free) - 1
	if last < 0 {
		return s, false, nil
	}
	s = slot{c, c.free[last]}
	c.free = c.free[:last]
	return s, true, nil
}

func (c *slotClass) open(pd *verbs.PD) error {
	mem, mr, err := registered(pd, c.size*c.count)
	if err != nil {
		return err
	}
	c.mem, c.mr, c.free = mem, mr, make([]int32, c.count)
	for i := range c.free {
		c.free[i] = int32(i)
	}
	return nil
}

func (c *slotClass) close() error {
	if c.mr == nil {
		return nil
	}
	err := c.mr.Close()
	_ = unix.Munmap(c.mem)
	c.mr, c.mem, c.free = nil, nil, nil
	return err
}

// registered makes n bytes of registered memory for this process's own use.
func registered(pd *verbs.PD, n int) ([]byte, *verbs.MR, error) {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, nil, fmt.Errorf("rdma: %d B to register: %w: %w", n, errs.ErrNoMemory, err)
	}
	at := unsafe.Pointer(unsafe.SliceData(mem))
	mr, err := pd.RegMR(at, uintptr(n), uint64(uintptr(at)), verbs.AccessLocalWrite)
	if err != nil {
		_ = unix.Munmap(mem)
		return nil, nil, err
	}
	return mem, mr, nil
}
