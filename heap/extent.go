package heap

import (
	"fmt"
	"hash/fnv"
	"slices"

	"goshmem/internal/errs"
)

// Extent is a part of a region: bytes [Off, Off+Size).
type Extent struct {
	Off  uint64
	Size int64
}

// FreeExtents are the free blocks, in order of offset, never adjacent.
func (a *Allocator) FreeExtents() []Extent {
	out := make([]Extent, len(a.byOff))
	for i, s := range a.byOff {
		out[i] = Extent{s.off, s.size}
	}
	return out
}

// Fingerprint is equal for two allocators with the same free blocks, which
// therefore choose the same offset next.
func (a *Allocator) Fingerprint() uint64 {
	h := fnv.New64a()
	var b [16]byte
	for _, s := range a.byOff {
		for i := range 8 {
			b[i] = byte(s.off >> (8 * i))
			b[8+i] = byte(uint64(s.size) >> (8 * i))
		}
		_, _ = h.Write(b[:]) // a hash never fails
	}
	return h.Sum64()
}

// AllocAt takes the block of size bytes at off, both multiples of MinAlign, if
// all of it is free; else ErrNoMemory, and nothing is taken.
func (a *Allocator) AllocAt(off uint64, size int64) error {
	if size < MinAlign || size%MinAlign != 0 || off%MinAlign != 0 {
		return fmt.Errorf("heap: block of %d B at %#x: want multiples of %d: %w", size, off, MinAlign, errs.ErrAlign)
	}
	i, exact := slices.BinarySearchFunc(a.byOff, span{off: off}, cmpOff)
	if !exact {
		i--
	}
	if i < 0 || off < a.byOff[i].off || off-a.byOff[i].off > uint64(a.byOff[i].size) ||
		uint64(size) > uint64(a.byOff[i].size)-(off-a.byOff[i].off) {
		return fmt.Errorf("heap: block of %d B at %#x is not free: %w", size, off, errs.ErrNoMemory)
	}
	a.take(a.byOff[i], span{off, size})
	return nil
}

// BlockSize is what an allocation of size bytes takes.
func BlockSize(size int64) int64 { return (max(size, 1) + MinAlign - 1) &^ (MinAlign - 1) }

// CommonFit finds the lowest offset, aligned to align (a power of two), at which
// size bytes are free in every one of the lists; each is as FreeExtents gives it.
// Size is a BlockSize.
func CommonFit(lists [][]Extent, size, align int64) (off uint64, ok bool) {
	if len(lists) == 0 {
		return 0, false
	}
	mask := uint64(max(align, MinAlign) - 1)
	at := make([]int, len(lists))
	candidate := uint64(0)
	for {
		// The candidate is right when every list has a block around it; a list
		// that has not moves it on, past what cannot hold it.
		moved := false
		for i, l := range lists {
			for at[i] < len(l) && (l[at[i]].Off+uint64(l[at[i]].Size) < candidate+uint64(size)) {
				at[i]++
			}
			if at[i] == len(l) {
				return 0, false
			}
			if l[at[i]].Off > candidate {
				up := (l[at[i]].Off + mask) &^ mask
				candidate, moved = up, true
			}
		}
		if !moved {
			return candidate, true
		}
	}
}
