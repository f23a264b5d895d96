package heap

import (
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func testArray(n int) (Array[int32], []int32) {
	memory := make([]int32, n)
	return MakeArray[int32](MakeRef(1, RegionHeap, 0x1000), n, unsafe.Pointer(unsafe.SliceData(memory))), memory
}

func TestArray(t *testing.T) {
	a, memory := testArray(10)
	assert.Equal(t, 10, a.Len())
	assert.Equal(t, int64(40), a.Bytes())
	assert.Equal(t, "heap+0x1000[10]", a.String())
	assert.Equal(t, MakeRef(1, RegionHeap, 0x1000), a.Ref())
	assert.Equal(t, uint64(0x1000+9*4), a.At(9).Ref().Offset())

	a.Local()[4] = 42
	assert.Equal(t, int32(42), memory[4])
	assert.Len(t, a.Local(), 10)
	assert.Equal(t, 10, cap(a.Local()))
}

func TestArrayAtOutOfRange(t *testing.T) {
	a, _ := testArray(10)
	for _, i := range []int{-1, 10, math.MaxInt, math.MinInt} {
		assert.True(t, a.At(i).Ref().OutOfRange(), i)
		assert.Equal(t, uint32(1), a.At(i).Ref().World())
		assert.Equal(t, "heap+0x1000[out of range]", a.At(i).String())
	}
}

func TestArraySliceOutOfRange(t *testing.T) {
	a, _ := testArray(10)
	for _, c := range [][2]int{{-1, 2}, {3, 2}, {0, 11}, {11, 11}, {math.MinInt, math.MaxInt}} {
		s := a.Slice(c[0], c[1])
		assert.True(t, s.Ref().OutOfRange(), c)
		assert.Zero(t, s.Len())
		assert.Empty(t, s.Local())
		assert.True(t, s.At(0).Ref().OutOfRange())
		assert.True(t, s.Slice(0, 0).Ref().OutOfRange(), "out of range stays so")
	}
}

func TestArrayEmptySliceAtEnd(t *testing.T) {
	a, _ := testArray(10)
	s := a.Slice(10, 10)
	assert.False(t, s.Ref().OutOfRange())
	assert.Equal(t, uint64(0x1000+40), s.Ref().Offset())
	assert.Empty(t, s.Local())
}

func TestArrayZero(t *testing.T) {
	var a Array[uint8]
	assert.Zero(t, a.Len())
	assert.Nil(t, a.Local())
	assert.False(t, a.Ref().Valid())
}

func TestArrayWithoutLocal(t *testing.T) {
	a := MakeArray[float64](MakeRef(1, RegionHeap, 0), 5, nil)
	assert.Nil(t, a.Local())
	assert.Equal(t, 5, a.Len())
	assert.Nil(t, a.Slice(1, 3).Local())
	assert.Equal(t, uint64(8), a.Slice(1, 3).Ref().Offset())
}

func TestMakeArrayRefuses(t *testing.T) {
	var one complex128
	for _, c := range []struct {
		name string
		ref  Ref
		n    int
	}{
		{"negative", MakeRef(1, RegionHeap, 0), -1},
		{"most negative", MakeRef(1, RegionHeap, 0), math.MinInt},
		{"product wraps", MakeRef(1, RegionHeap, 0), math.MaxInt/16 + 1},
		{"end wraps", MakeRef(1, RegionHeap, math.MaxInt64-15), 1},
		{"offset too large", MakeRef(1, RegionHeap, math.MaxUint64), 0},
		{"bad reference", MakeRef(1, RegionHeap, 8).Add(math.MaxUint64), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := MakeArray[complex128](c.ref, c.n, unsafe.Pointer(&one))
			assert.True(t, a.Ref().OutOfRange())
			assert.Zero(t, a.Len())
			assert.Nil(t, a.Local())
		})
	}
	a := MakeArray[complex128](MakeRef(1, RegionHeap, 0), math.MaxInt/16, nil)
	assert.False(t, a.Ref().OutOfRange(), "the largest there is")
	assert.Equal(t, int64(math.MaxInt/16*16), a.Bytes())
}

// A part of a part is the part that plain slices would give.
func TestArraySliceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(t, "n")
		a, plain := testArray(n)
		for k := range plain {
			plain[k] = int32(k)
		}
		off := uint64(0x1000)
		for range rapid.IntRange(1, 4).Draw(t, "depth") {
			i := rapid.IntRange(0, a.Len()).Draw(t, "i")
			j := rapid.IntRange(i, a.Len()).Draw(t, "j")
			a, plain = a.Slice(i, j), plain[i:j]
			off += uint64(4 * i)
		}
		if a.Ref().Offset() != off || a.Len() != len(plain) || len(a.Local()) != len(plain) {
			t.Fatalf("got %v at %#x, want %d at %#x", a, a.Ref().Offset(), len(plain), off)
		}
		for k, v := range a.Local() {
			if v != plain[k] || a.At(k).Ref().Offset() != off+uint64(4*k) {
				t.Fatalf("element %d: %d at %v", k, v, a.At(k))
			}
		}
	})
}

var sink uint64

func TestArrayAllocates(t *testing.T) {
	a, _ := testArray(64)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		s := a.Slice(8, 32)
		s.Local()[1]++
		sink += s.At(3).Add(1).Ref().Offset()
	}))
}

func BenchmarkArrayAt(b *testing.B) {
	a, _ := testArray(64)
	b.ReportAllocs()
	for i := range b.N {
		sink += a.At(i & 63).Ref().Offset()
	}
}
