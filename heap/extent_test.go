package heap

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"goshmem/internal/errs"
)

// CommonFit against a bitmap of 64-byte units, and AllocAt of what it finds.
func TestCommonFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const units = 40
		n := rapid.IntRange(1, 4).Draw(t, "allocators")
		free := [units]bool{}
		for i := range free {
			free[i] = true
		}
		var all []*Allocator
		var lists [][]Extent
		for range n {
			a, err := NewAllocator(units * MinAlign)
			require.NoError(t, err)
			for u := range units {
				if rapid.IntRange(0, 3).Draw(t, "used") == 0 {
					require.NoError(t, a.AllocAt(uint64(u)*MinAlign, MinAlign))
					require.ErrorIs(t, a.AllocAt(uint64(u)*MinAlign, MinAlign), errs.ErrNoMemory)
					free[u] = false
				}
			}
			all = append(all, a)
			lists = append(lists, a.FreeExtents())
		}
		size := rapid.IntRange(1, 6).Draw(t, "size")
		align := int64(MinAlign) << rapid.IntRange(0, 3).Draw(t, "align")
		want, found := 0, false
		for u := 0; u+size <= units && !found; u++ {
			if int64(u)*MinAlign%align != 0 {
				continue
			}
			found = true
			for k := range size {
				found = found && free[u+k]
			}
			want = u
		}
		off, ok := CommonFit(lists, int64(size)*MinAlign, align)
		require.Equal(t, found, ok)
		if !ok {
			return
		}
		require.Equal(t, uint64(want)*MinAlign, off)
		for _, a := range all {
			used := a.InUse()
			require.NoError(t, a.AllocAt(off, int64(size)*MinAlign))
			require.Equal(t, used+int64(size)*MinAlign, a.InUse())
			require.NoError(t, a.Free(off))
		}
	})
}

func TestAllocAtRefuses(t *testing.T) {
	a, err := NewAllocator(1024)
	require.NoError(t, err)
	require.ErrorIs(t, a.AllocAt(1, 64), errs.ErrAlign)
	require.ErrorIs(t, a.AllocAt(0, 65), errs.ErrAlign)
	require.ErrorIs(t, a.AllocAt(1024, 64), errs.ErrNoMemory)
	require.ErrorIs(t, a.AllocAt(960, 128), errs.ErrNoMemory)
	require.ErrorIs(t, a.AllocAt(1<<62, 64), errs.ErrNoMemory)
	b, _ := NewAllocator(1024)
	require.Equal(t, a.Fingerprint(), b.Fingerprint())
	require.NoError(t, a.AllocAt(64, 64))
	require.NotEqual(t, a.Fingerprint(), b.Fingerprint())
}
