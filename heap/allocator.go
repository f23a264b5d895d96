package heap

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"goshmem/internal/errs"
)

// Limits of the allocator.
const (
	MinAlign = 64      // every block starts on a cache line
	MaxAlign = 1 << 30 // 1 GiB
)

// NoMemoryError is ErrNoMemory with what was asked for and what there is. Bytes.
type NoMemoryError struct {
	Asked   int64 // as the caller gave it
	Align   int64
	Free    int64 // in all blocks together
	Largest int64 // in the largest free block
}

func (e *NoMemoryError) Error() string {
	return fmt.Sprintf("out of symmetric memory: asked %d B aligned to %d, %d B free, largest block %d B",
		e.Asked, e.Align, e.Free, e.Largest)
}

// Is matches ErrNoMemory.
func (e *NoMemoryError) Is(t error) bool { return t == errs.ErrNoMemory }

// Allocator hands out parts of [0, size): offsets, never memory. It is a pure
// function of the calls made so far, so that PEs that make the same calls in the
// same order get the same offsets. Best fit: of the free blocks that can hold
// the part, the smallest, and of equals the first; in it the lowest aligned
// offset. Neighbouring free blocks are merged at once.
//
// Alignment is that of the offset; an address is as aligned as that only where
// the region's base is.
//
// Not safe for concurrent use.
type Allocator struct {
	byOff  []span           // free blocks in order of offset, never adjacent
	bySize []span           // the same blocks in order of (size, offset)
	used   map[uint64]int64 // allocated: offset to size
	size   int64
	inUse  int64
}

// span is one block.
type span struct {
	off  uint64
	size int64
}

func (s span) end() uint64 { return s.off + uint64(s.size) }

func cmpOff(a, b span) int { return cmp.Compare(a.off, b.off) }

func cmpSize(a, b span) int {
	return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.off, b.off))
}

// NewAllocator starts with all of [0, size) free. The size is rounded down to
// MinAlign; less than that is ErrConfig.
func NewAllocator(size int64) (*Allocator, error) { return newAllocator(0, size) }

// newAllocator starts with [base, base+size) free; base is a multiple of MinAlign.
func newAllocator(base uint64, size int64) (*Allocator, error) {
	if size < MinAlign {
		return nil, fmt.Errorf("heap: %d B to allocate from: want %d or more: %w", size, MinAlign, errs.ErrConfig)
	}
	if base > maxOffset-uint64(size) {
		return nil, fmt.Errorf("heap: %d B at %#x to allocate from: end exceeds 2^63: %w", size, base, errs.ErrRange)
	}
	all := span{base, size &^ (MinAlign - 1)}
	return &Allocator{
		byOff:  []span{all},
		bySize: []span{all},
		used:   map[uint64]int64{},
		size:   all.size,
	}, nil
}

// Alloc takes size bytes at a multiple of align, a power of two up to MaxAlign;
// less than MinAlign, 0 included, means MinAlign. A size of 0 takes a block too,
// so that two allocations never have one offset. A negative size is ErrRange, a
// wrong alignment ErrAlign, and no room a *NoMemoryError.
func (a *Allocator) Alloc(size, align int64) (uint64, error) {
	from, part, err := a.find(size, align)
	if err != nil {
		return 0, err
	}
	a.take(from, part)
	return part.off, nil
}

// take allocates a part of a free block.
func (a *Allocator) take(from, part span) {
	a.remove(from)
	if front := int64(part.off - from.off); front > 0 {
		a.insert(span{from.off, front})
	}
	if back := int64(from.end() - part.end()); back > 0 {
		a.insert(span{part.end(), back})
	}
	a.used[part.off] = part.size
	a.inUse += part.size
}

// Peek is what Alloc would return, without taking anything.
func (a *Allocator) Peek(size, align int64) (uint64, error) {
	_, part, err := a.find(size, align)
	return part.off, err
}

// Free gives back what Alloc returned. Any other offset, one freed already
// included, is ErrBadRef.
func (a *Allocator) Free(off uint64) error {
	size, ok := a.used[off]
	if !ok {
		return fmt.Errorf("heap: free at %#x: not allocated, or freed already: %w", off, errs.ErrBadRef)
	}
	delete(a.used, off)
	a.inUse -= size

	s := span{off, size}
	i, _ := slices.BinarySearchFunc(a.byOff, s, cmpOff)
	if i < len(a.byOff) && a.byOff[i].off == s.end() {
		next := a.byOff[i]
		s.size += next.size
		a.remove(next)
	}
	if i > 0 && a.byOff[i-1].end() == s.off {
		prev := a.byOff[i-1]
		s = span{prev.off, prev.size + s.size}
		a.remove(prev)
	}
	a.insert(s)
	return nil
}

// Size is the number of bytes there are, used or free.
func (a *Allocator) Size() int64 { return a.size }

// InUse is the number of bytes allocated, as rounded up to MinAlign.
func (a *Allocator) InUse() int64 { return a.inUse }

// LargestFree is the size of the largest free block.
func (a *Allocator) LargestFree() int64 {
	if len(a.bySize) == 0 {
		return 0
	}
	return a.bySize[len(a.bySize)-1].size
}

// SizeOf is the size of the block allocated at off, as rounded up to MinAlign;
// false if off is not what Alloc returned.
func (a *Allocator) SizeOf(off uint64) (int64, bool) {
	size, ok := a.used[off]
	return size, ok
}

// find picks the free block and the part of it that an allocation takes.
func (a *Allocator) find(size, align int64) (from, part span, err error) {
	if size < 0 {
		return span{}, span{}, fmt.Errorf("heap: alloc of %d B: negative size: %w", size, errs.ErrRange)
	}
	if align < 0 || align > MaxAlign || bits.OnesCount64(uint64(align)) > 1 {
		return span{}, span{}, fmt.Errorf("heap: alloc aligned to %d: want a power of two up to %d: %w", align, MaxAlign, errs.ErrAlign)
	}
	mask := uint64(max(align, MinAlign) - 1)
	if size <= a.LargestFree() { // so rounding up cannot overflow
		need := BlockSize(size)
		i, _ := slices.BinarySearchFunc(a.bySize, span{0, need}, cmpSize)
		for _, s := range a.bySize[i:] {
			off := (s.off + mask) &^ mask
			if off-s.off <= uint64(s.size-need) {
				return s, span{off, need}, nil
			}
		}
	}
	return span{}, span{}, fmt.Errorf("heap: %w", &NoMemoryError{
		Asked: size, Align: align, Free: a.size - a.inUse, Largest: a.LargestFree(),
	})
}

func (a *Allocator) insert(s span) {
	i, _ := slices.BinarySearchFunc(a.byOff, s, cmpOff)
	a.byOff = slices.Insert(a.byOff, i, s)
	i, _ = slices.BinarySearchFunc(a.bySize, s, cmpSize)
	a.bySize = slices.Insert(a.bySize, i, s)
}

func (a *Allocator) remove(s span) {
	i, _ := slices.BinarySearchFunc(a.byOff, s, cmpOff)
	a.byOff = slices.Delete(a.byOff, i, i+1)
	i, _ = slices.BinarySearchFunc(a.bySize, s, cmpSize)
	a.bySize = slices.Delete(a.bySize, i, i+1)
}
