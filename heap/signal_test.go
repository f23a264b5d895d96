package heap

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSignals(t *testing.T) {
	s := MakeSignals(MakeRef(1, RegionHeap, 0x1000), 8)
	assert.Equal(t, 8, s.Len())
	assert.Equal(t, int64(8*SignalSize), s.Bytes())
	assert.Equal(t, MakeRef(1, RegionHeap, 0x1000), s.Ref())
	assert.Equal(t, MakeSignal(MakeRef(1, RegionHeap, 0x1000+7*SignalSize)), s.At(7))
	assert.Equal(t, "heap+0x1040", s.At(1).String())

	part := s.Slice(2, 5)
	assert.Equal(t, 3, part.Len())
	assert.Equal(t, s.At(4), part.At(2))
	assert.True(t, part.At(3).Ref().OutOfRange())
	assert.Zero(t, s.Slice(8, 8).Len())
	assert.False(t, s.Slice(8, 8).Ref().OutOfRange())
}

func TestSignalsOutOfRange(t *testing.T) {
	s := MakeSignals(MakeRef(1, RegionHeap, 0x1000), 8)
	for _, i := range []int{-1, 8, math.MaxInt, math.MinInt} {
		assert.True(t, s.At(i).Ref().OutOfRange(), i)
	}
	for _, c := range [][2]int{{-1, 2}, {3, 2}, {0, 9}, {9, 9}} {
		assert.True(t, s.Slice(c[0], c[1]).Ref().OutOfRange(), c)
		assert.Zero(t, s.Slice(c[0], c[1]).Len())
	}
}

func TestMakeSignalsRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		ref  Ref
		n    int
	}{
		{"negative", MakeRef(1, RegionHeap, 0x1000), -1},
		{"product wraps", MakeRef(1, RegionHeap, 0), math.MaxInt/SignalSize + 1},
		{"end wraps", MakeRef(1, RegionHeap, math.MaxInt64-SignalSize+1), 1},
		{"bad reference", MakeRef(1, RegionHeap, 8).Add(math.MaxUint64), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := MakeSignals(c.ref, c.n)
			assert.True(t, s.Ref().OutOfRange())
			assert.Zero(t, s.Len())
		})
	}
	assert.Zero(t, MakeSignals(MakeRef(1, RegionHeap, 0), 0).Len())
	assert.False(t, Signal{}.Ref().Valid())
}
