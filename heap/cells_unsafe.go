package heap

import (
	"sync/atomic"
	"unsafe"
)

// NICCell is where in a signal object the cell is that adapters add to; CPUs
// change its first word. A SET is a plain write, so both write that one.
const NICCell = 8

// Cells is a signal as its owner reads it: the sum of what CPUs and adapters added,
// each to a word of its own, since an adapter's atomics are not atomic with the
// CPU's.
type Cells struct{ cpu, nic *atomic.Uint64 }

// CellsAt is the cells of the signal object at p.
func CellsAt(p unsafe.Pointer) Cells {
	return Cells{(*atomic.Uint64)(p), (*atomic.Uint64)(unsafe.Add(p, NICCell))}
}

// OneCell is a word that one agent alone changes.
func OneCell(w *atomic.Uint64) Cells { return Cells{w, &zero} }

var zero atomic.Uint64

// Load is the signal's value.
func (c Cells) Load() uint64 { return c.cpu.Load() + c.nic.Load() }
