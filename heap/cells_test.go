package heap

import (
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCells(t *testing.T) {
	var line [SignalSize / 8]uint64
	c := CellsAt(unsafe.Pointer(&line), 0)
	line[0], line[NICCell/8], line[2] = 5, 7, 100
	assert.Equal(t, uint64(12), c.Load())
	assert.Equal(t, uint64(112), CellsAt(unsafe.Pointer(&line), StreamCells).Load())
	var one atomic.Uint64
	one.Store(3)
	assert.Equal(t, uint64(3), OneCell(&one).Load())
}

// Of the words of a slot only the release word has a cell for adapters, and that
// lies in no other word's line.
func TestNICCell(t *testing.T) {
	l, err := PlanLayout(LayoutConfig{HeapSize: 4096, PEs: 3, Contexts: 4, IndicesPerSource: 8})
	require.NoError(t, err)
	taken := map[uint64]bool{}
	for slot := range 4 {
		release, _ := l.ReleaseWord(slot)
		taken[release] = true
		assert.Equal(t, release+NICCell, l.NICCell(release))
		barrier, _ := l.BarrierWord(slot)
		taken[barrier] = true
		for source := range 3 {
			for index := range 8 {
				w, _ := l.SourceWord(slot, source, index)
				taken[w] = true
				assert.Equal(t, w, l.NICCell(w))
			}
		}
	}
	for slot := range 4 {
		release, _ := l.ReleaseWord(slot)
		assert.False(t, taken[l.NICCell(release)])
	}
}
