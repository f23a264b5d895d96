package heap

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"goshmem/internal/errs"
)

func TestPlanLayout(t *testing.T) {
	l, err := PlanLayout(LayoutConfig{HeapSize: 1, PEs: 3, Contexts: 2, IndicesPerSource: 8})
	require.NoError(t, err)
	// A slot: three lines, a line of padding, barrier and release.
	word := func(off uint64, ok bool) uint64 { require.True(t, ok); return off }
	assert.Equal(t, uint64(4096), word(l.SourceWord(0, 0, 0)))
	assert.Equal(t, uint64(4096+2*64+7*8), word(l.SourceWord(0, 2, 7)))
	assert.Equal(t, uint64(4096+4*64), word(l.BarrierWord(0)))
	assert.Equal(t, uint64(4096+5*64), word(l.ReleaseWord(0)))
	assert.Equal(t, uint64(4096+6*64), word(l.SourceWord(1, 0, 0)))
	assert.Equal(t, int64(8192), l.RuntimeSize())
	assert.Equal(t, int64(8192), l.HeapOffset())
	assert.Equal(t, int64(4096), l.HeapSize())
	assert.Equal(t, int64(12288), l.Total())
	off, size, ok := l.SlotRange(1)
	assert.True(t, ok)
	assert.Equal(t, [2]uint64{4096 + 6*64, 6 * 64}, [2]uint64{off, size})
	assert.Equal(t, [3]int{3, 2, 8}, [3]int{l.pes, l.Contexts(), l.indices})
}

func TestPlanLayoutRefuses(t *testing.T) {
	good := LayoutConfig{HeapSize: 4096, PEs: 2, Contexts: 2, IndicesPerSource: 8}
	for _, c := range []struct {
		name   string
		change func(*LayoutConfig)
		want   error
	}{
		{"no heap", func(c *LayoutConfig) { c.HeapSize = 0 }, errs.ErrConfig},
		{"negative heap", func(c *LayoutConfig) { c.HeapSize = -1 }, errs.ErrConfig},
		{"no PEs", func(c *LayoutConfig) { c.PEs = 0 }, errs.ErrConfig},
		{"no contexts", func(c *LayoutConfig) { c.Contexts = -3 }, errs.ErrConfig},
		{"no indices", func(c *LayoutConfig) { c.IndicesPerSource = 0 }, errs.ErrConfig},
		{"heap wraps when rounded", func(c *LayoutConfig) { c.HeapSize = math.MaxInt64 }, errs.ErrRange},
		{"sum wraps", func(c *LayoutConfig) { c.HeapSize = math.MaxInt64 - 4095 }, errs.ErrRange},
		{"many PEs", func(c *LayoutConfig) { c.PEs = math.MaxInt }, errs.ErrRange},
		{"many contexts", func(c *LayoutConfig) { c.Contexts = math.MaxInt }, errs.ErrRange},
		{"many indices", func(c *LayoutConfig) { c.IndicesPerSource = math.MaxInt }, errs.ErrRange},
		{"product wraps", func(c *LayoutConfig) { c.PEs, c.Contexts = 1<<30, 1<<30 }, errs.ErrRange},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := good
			c.change(&cfg)
			l, err := PlanLayout(cfg)
			assert.ErrorIs(t, err, c.want)
			assert.Zero(t, l)
		})
	}
	_, err := PlanLayout(LayoutConfig{HeapSize: math.MaxInt64 - 16383, PEs: 2, Contexts: 2, IndicesPerSource: 8})
	assert.NoError(t, err, "the largest segment")
}

func TestLayoutWordsOutOfRange(t *testing.T) {
	l, err := PlanLayout(LayoutConfig{HeapSize: 4096, PEs: 2, Contexts: 2, IndicesPerSource: 8})
	require.NoError(t, err)
	for _, c := range [][3]int{{-1, 0, 0}, {2, 0, 0}, {0, -1, 0}, {0, 2, 0}, {0, 0, -1}, {0, 0, 8}} {
		_, ok := l.SourceWord(c[0], c[1], c[2])
		assert.False(t, ok, c)
	}
	for _, slot := range []int{-1, 2, math.MaxInt} {
		_, ok := l.BarrierWord(slot)
		assert.False(t, ok)
		_, ok = l.ReleaseWord(slot)
		assert.False(t, ok)
		_, _, ok = l.SlotRange(slot)
		assert.False(t, ok)
	}
	_, ok := Layout{}.SourceWord(0, 0, 0)
	assert.False(t, ok, "the zero Layout has no words")
}

// Words of different owners never share a line, all lie in region 1 behind the
// header, and a slot's words lie in its range.
func TestLayoutProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := LayoutConfig{
			HeapSize:         rapid.Int64Range(1, 1<<40).Draw(t, "heap"),
			PEs:              rapid.IntRange(1, 9).Draw(t, "PEs"),
			Contexts:         rapid.IntRange(1, 5).Draw(t, "contexts"),
			IndicesPerSource: rapid.IntRange(1, 20).Draw(t, "indices"),
		}
		l, err := PlanLayout(c)
		if err != nil {
			t.Fatal(err)
		}
		if l.HeapOffset()%PageSize != 0 || l.Total()%PageSize != 0 || l.HeapOffset() != l.RuntimeSize() ||
			l.HeapSize() < c.HeapSize || l.HeapSize()-c.HeapSize >= PageSize || l.Total() != l.HeapOffset()+l.HeapSize() {
			t.Fatalf("regions of %+v: %+v", c, l)
		}
		owner := map[uint64][3]int{} // line to (slot, source or word, …)
		taken := map[uint64]bool{}
		enter := func(off uint64, ok bool, who [3]int) {
			from, size, _ := l.SlotRange(who[0])
			if !ok || off%8 != 0 || off < HeaderSize || off+8 > uint64(l.RuntimeSize()) || off < from || off+8 > from+size || taken[off] {
				t.Fatalf("%v at %#x", who, off)
			}
			taken[off] = true
			if other, found := owner[off/64]; found && other != who {
				t.Fatalf("%v and %v share the line of %#x", who, other, off)
			}
			owner[off/64] = who
		}
		for slot := range c.Contexts {
			for pe := range c.PEs {
				for index := range c.IndicesPerSource {
					off, ok := l.SourceWord(slot, pe, index)
					enter(off, ok, [3]int{slot, 0, pe})
				}
			}
			off, ok := l.BarrierWord(slot)
			enter(off, ok, [3]int{slot, 1, 0})
			off, ok = l.ReleaseWord(slot)
			enter(off, ok, [3]int{slot, 2, 0})
		}
	})
}
