package heap

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

type meters float64 // Elem takes named types too

func TestElemSize(t *testing.T) {
	assert.Equal(t, int64(1), ElemSize[int8]())
	assert.Equal(t, int64(2), ElemSize[uint16]())
	assert.Equal(t, int64(4), ElemSize[float32]())
	assert.Equal(t, int64(8), ElemSize[meters]())
	assert.Equal(t, int64(16), ElemSize[complex128]())
}

func TestPtrAdd(t *testing.T) {
	const start = 0x1000
	for _, c := range []struct {
		name string
		add  int
		want uint64
		bad  bool
	}{
		{"stay", 0, start, false},
		{"on", 3, start + 24, false},
		{"back", -3, start - 24, false},
		{"to the first", -start / 8, 0, false},
		{"before the first", -start/8 - 1, start, true},
		{"product wraps", math.MaxInt, start, true},
		{"product wraps back", math.MinInt, start, true},
		{"product wraps to a small one", 1<<61 + 1, start, true},
		{"product wraps back to a small one", -1<<61 - 1, start, true},
		{"largest product", math.MaxInt / 8, start + math.MaxInt/8*8, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := MakePtr[uint64](MakeRef(1, RegionHeap, start)).Add(c.add)
			assert.Equal(t, c.bad, p.Ref().OutOfRange())
			assert.Equal(t, c.want, p.Ref().Offset())
		})
	}
}

func TestPtrAddWrapsOffset(t *testing.T) {
	p := MakePtr[uint16](MakeRef(1, RegionHeap, math.MaxUint64-1))
	assert.True(t, p.Add(1).Ref().OutOfRange())
	assert.False(t, p.Add(-1).Ref().OutOfRange())
	assert.True(t, p.Add(1).Add(-1).Ref().OutOfRange(), "out of range stays so")
}

func TestPtrString(t *testing.T) {
	assert.Equal(t, "heap+0x10", MakePtr[int8](MakeRef(1, RegionHeap, 0x10)).String())
}
