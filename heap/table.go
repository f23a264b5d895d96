package heap

import (
	"unsafe"

	"goshmem/internal/errs"
)

// Memory is a region as one process sees it.
type Memory struct {
	Base unsafe.Pointer // nil: not reachable by load and store from here
	Addr uint64         // address by which the executing agent names it; equals Base where mapped
	Size uint64         // bytes
	Kind Kind
}

// Table is base[pe][region] of one world, the sizes included: the only place
// where a symmetric address becomes an address. It is filled at Join; readers
// need no lock.
type Table struct {
	World   uint32
	regions [][]Memory // [pe][region]
}

// NewTable makes the table of a world of n PEs with the given number of regions.
func NewTable(world uint32, pes, regions int) *Table {
	t := &Table{World: world, regions: make([][]Memory, pes)}
	for i := range t.regions {
		t.regions[i] = make([]Memory, regions)
	}
	return t
}

// Set enters one region; before the table is shared.
func (t *Table) Set(pe int, region uint16, m Memory) { t.regions[pe][region] = m }

// Region is one entry; the zero Memory where there is none.
func (t *Table) Region(pe int, region uint16) Memory {
	if pe < 0 || pe >= len(t.regions) || int(region) >= len(t.regions[pe]) {
		return Memory{}
	}
	return t.regions[pe][region]
}

// Check validates n bytes at ref on pe: whose world it is, whether the region
// exists, and the bounds, with the target's size and without overflow.
func (t *Table) Check(pe int, ref Ref, n uint64) error {
	if ref.OutOfRange() {
		return errs.ErrRange
	}
	if ref.World() != t.World || !ref.Valid() {
		return errs.ErrBadRef
	}
	m := t.Region(pe, ref.Region())
	if m.Size == 0 {
		return errs.ErrBadRef
	}
	return m.Check(ref.Offset(), n)
}

// Check validates an extent of the region.
func (m Memory) Check(off, n uint64) error {
	if off > m.Size || n > m.Size-off {
		return &RangeError{Off: off, Len: n, Size: m.Size}
	}
	return nil
}

// At is the address of a checked offset.
func (m Memory) At(off uint64) unsafe.Pointer { return unsafe.Add(m.Base, off) }
