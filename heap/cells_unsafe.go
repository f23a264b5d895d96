package heap

import (
	"sync/atomic"
	"unsafe"
)

// Cells is a signal as its owner reads it: the sum of its cells. Each grows only,
// between resets, and whoever sees one sees what was ordered before it; so does who
// sees the sum.
type Cells struct {
	cpu, nic *atomic.Uint64
	streams  int
}

// CellsAt is the cells of the signal object at p, of which streams may change so many.
func CellsAt(p unsafe.Pointer, streams int) Cells {
	return Cells{(*atomic.Uint64)(p), (*atomic.Uint64)(unsafe.Add(p, NICCell)), streams}
}

// OneCell is a word that one kind of agent alone changes.
func OneCell(w *atomic.Uint64) Cells { return Cells{w, &zero, 0} }

var zero atomic.Uint64

// Load is the signal's value.
func (c Cells) Load() uint64 {
	s := c.cpu.Load() + c.nic.Load()
	for i := range c.streams {
		s += (*atomic.Uint64)(unsafe.Add(unsafe.Pointer(c.cpu), 8*(FirstStream+i))).Load()
	}
	return s
}
