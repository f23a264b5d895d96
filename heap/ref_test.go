package heap

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRef(t *testing.T) {
	r := MakeRef(7, RegionRuntime, 0x40)
	assert.True(t, r.Valid())
	assert.False(t, r.OutOfRange())
	assert.Equal(t, uint32(7), r.World())
	assert.Equal(t, RegionRuntime, r.Region())
	assert.Equal(t, uint64(0x40), r.Offset())
	assert.Equal(t, "runtime+0x40", r.String())
	assert.Equal(t, "heap+0x0", MakeRef(7, RegionHeap, 0).String())
	assert.Equal(t, "region9+0x1", MakeRef(7, 9, 1).String())

	assert.Equal(t, uint64(0x50), r.Add(0x10).Offset())
	assert.Equal(t, r.Key(), r.Add(0x10).Key(), "moving keeps the key")
	assert.NotEqual(t, r.Key(), MakeRef(8, RegionRuntime, 0x40).Key())
	assert.NotEqual(t, r.Key(), MakeRef(7, RegionHeap, 0x40).Key())
}

func TestRefZero(t *testing.T) {
	assert.False(t, Ref{}.Valid())
	assert.False(t, Ref{}.OutOfRange())
}

func TestRefWraps(t *testing.T) {
	r := MakeRef(math.MaxUint32, math.MaxUint16, 0x40).Add(math.MaxUint64)
	assert.True(t, r.OutOfRange())
	assert.False(t, r.Valid())
	assert.True(t, r.Add(1).OutOfRange(), "out of range stays so")
	assert.Equal(t, uint32(math.MaxUint32), r.World())
	assert.Equal(t, uint16(math.MaxUint16), r.Region())
}
