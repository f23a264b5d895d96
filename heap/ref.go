package heap

import "fmt"

// Region numbers. A world has these on every PE; registered buffers take
// higher numbers.
const (
	RegionHeap    uint16 = 0 // what users allocate from
	RegionRuntime uint16 = 1 // the runtime's own words: header, built-in signals
	RegionDevice  uint16 = 2 // what users allocate from in a device's memory
)

// Ref is a symmetric address: an offset in a region that every PE of a world
// has, never a pointer. The zero Ref belongs to no world and is refused by every
// operation (ErrBadRef). Refs come from allocations; Add moves one.
type Ref struct {
	off uint64
	key uint64 // world<<32 | bad | region
}

const refBad = 1 << 31

// MakeRef builds a reference from its parts. Users get theirs from allocations;
// this is for transports and tests.
func MakeRef(world uint32, region uint16, off uint64) Ref {
	return Ref{off: off, key: uint64(world)<<32 | uint64(region)}
}

// asBad is a reference that every operation refuses with ErrRange: what indexing
// out of range gives.
func (r Ref) asBad() Ref { r.key |= refBad; return r }

// Add moves a reference by n bytes. A result that wraps is refused by every
// operation with ErrRange.
func (r Ref) Add(n uint64) Ref {
	if r.off+n < r.off {
		return r.asBad()
	}
	r.off += n
	return r
}

// Offset is the distance from the start of the region, in bytes.
func (r Ref) Offset() uint64 { return r.off }

// Region is the region's number.
func (r Ref) Region() uint16 { return uint16(r.key) }

// World is the identity of the world the reference belongs to.
func (r Ref) World() uint32 { return uint32(r.key >> 32) }

// Key is world, region and validity in one word: two references with one key
// differ only in their offset. A hot path compares it with the key it expects.
func (r Ref) Key() uint64 { return r.key }

// Valid reports whether the reference came from an allocation and stayed in range.
func (r Ref) Valid() bool { return r.key>>32 != 0 && r.key&refBad == 0 }

// OutOfRange reports whether indexing or Add left the range it may take.
func (r Ref) OutOfRange() bool { return r.key&refBad != 0 }

func (r Ref) String() string {
	name := "heap"
	switch r.Region() {
	case RegionHeap:
	case RegionRuntime:
		name = "runtime"
	case RegionDevice:
		name = "device"
	default:
		name = fmt.Sprintf("region%d", r.Region())
	}
	if r.OutOfRange() {
		return fmt.Sprintf("%s+%#x[out of range]", name, r.off) // of what was indexed
	}
	return fmt.Sprintf("%s+%#x", name, r.off)
}
