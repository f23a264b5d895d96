package heap

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/internal/errs"
)

func TestPool(t *testing.T) {
	base := MakeRef(3, RegionHeap, 0x1040) // not aligned to what is asked below
	p, err := NewPool(base, 8192+63)
	require.NoError(t, err)
	assert.Equal(t, int64(8192), p.Size())
	assert.Equal(t, base, p.Ref())

	r, err := p.Alloc(10, 4096)
	require.NoError(t, err)
	assert.Equal(t, MakeRef(3, RegionHeap, 0x2000), r, "aligned in the region, not in the pool")
	assert.Equal(t, int64(64), p.InUse())
	first, err := p.Alloc(64, 0)
	require.NoError(t, err)
	assert.Equal(t, base, first)

	_, err = p.Alloc(8192, 0)
	assert.ErrorIs(t, err, errs.ErrNoMemory)
	_, err = p.Alloc(-1, 0)
	assert.ErrorIs(t, err, errs.ErrRange)
	_, err = p.Alloc(1, 3)
	assert.ErrorIs(t, err, errs.ErrAlign)

	assert.ErrorIs(t, p.Free(Ref{}), errs.ErrBadRef)
	assert.ErrorIs(t, p.Free(MakeRef(4, RegionHeap, 0x2000)), errs.ErrBadRef, "another world")
	assert.ErrorIs(t, p.Free(MakeRef(3, RegionRuntime, 0x2000)), errs.ErrBadRef, "another region")
	assert.ErrorIs(t, p.Free(MakeRef(3, RegionHeap, 0)), errs.ErrBadRef, "outside the pool")
	assert.ErrorIs(t, p.Free(r.Add(8)), errs.ErrBadRef, "inside a block")
	assert.ErrorIs(t, p.Free(r.Add(math.MaxUint64)), errs.ErrRange)

	assert.NoError(t, p.Free(r))
	assert.ErrorIs(t, p.Free(r), errs.ErrBadRef, "double free")
	assert.NoError(t, p.Free(first))
	assert.Zero(t, p.InUse())
	assert.Equal(t, p.Size(), p.LargestFree())
}

func TestNewPoolRefuses(t *testing.T) {
	ok := MakeRef(1, RegionHeap, 0)
	for _, c := range []struct {
		name string
		ref  Ref
		size int64
		want error
	}{
		{"of no world", Ref{}, 4096, errs.ErrBadRef},
		{"out of range", MakeRef(1, RegionHeap, 64).Add(math.MaxUint64), 4096, errs.ErrRange},
		{"misaligned", ok.Add(8), 4096, errs.ErrAlign},
		{"too small", ok, 63, errs.ErrConfig},
		{"negative", ok, -4096, errs.ErrConfig},
		{"end wraps", MakeRef(1, RegionHeap, 1<<63-64), 128, errs.ErrRange},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := NewPool(c.ref, c.size)
			assert.ErrorIs(t, err, c.want)
			assert.Nil(t, p)
		})
	}
}

func TestPoolConcurrent(t *testing.T) {
	p, err := NewPool(MakeRef(1, RegionHeap, 0), 1<<20)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				r, err := p.Alloc(int64(i), 64)
				if assert.NoError(t, err) {
					assert.NoError(t, p.Free(r))
				}
			}
		})
	}
	wg.Wait()
	assert.Zero(t, p.InUse())
	assert.Equal(t, p.Size(), p.LargestFree())
}
