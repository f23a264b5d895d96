package heap

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"goshmem/internal/errs"
)

func TestAllocatorBestFit(t *testing.T) {
	a, err := NewAllocator(4096 + 63)
	require.NoError(t, err)
	assert.Equal(t, int64(4096), a.Size(), "rounded down")
	must := func(size, align int64) uint64 {
		peek, err := a.Peek(size, align)
		require.NoError(t, err)
		off, err := a.Alloc(size, align)
		require.NoError(t, err)
		assert.Equal(t, peek, off)
		return off
	}
	assert.Equal(t, uint64(0), must(100, 0))
	assert.Equal(t, uint64(128), must(0, 1), "no size takes a block")
	assert.Equal(t, uint64(192), must(64, 64))
	assert.Equal(t, uint64(256), must(256, 256))
	assert.Equal(t, uint64(512), must(1, 512))
	assert.Equal(t, uint64(1024), must(1024, 1024))
	// Free: 576..1024, 2048..4096. The smaller one is taken, then split in three.
	assert.Equal(t, uint64(768), must(64, 256))
	assert.Equal(t, uint64(576), must(192, 0))
	assert.Equal(t, uint64(832), must(64, 0))
	assert.Equal(t, uint64(2048), must(2048, 2048))
	_, err = a.Alloc(256, 0)
	assert.Error(t, err)

	// The smallest block that fits, and the first of equals.
	for _, off := range []uint64{128, 1024, 192} {
		require.NoError(t, a.Free(off))
	}
	assert.Equal(t, uint64(128), must(128, 0), "merged again")
	size, ok := a.SizeOf(128)
	assert.True(t, ok)
	assert.Equal(t, int64(128), size)
}

func TestAllocatorErrors(t *testing.T) {
	a, err := NewAllocator(1 << 20)
	require.NoError(t, err)
	for _, c := range []struct {
		size, align int64
		want        error
	}{
		{-1, 0, errs.ErrRange},
		{math.MinInt64, 64, errs.ErrRange},
		{1, -64, errs.ErrAlign},
		{1, math.MinInt64, errs.ErrAlign},
		{1, 3, errs.ErrAlign},
		{1, 96, errs.ErrAlign},
		{1, MaxAlign * 2, errs.ErrAlign},
		{math.MaxInt64, 64, errs.ErrNoMemory},
		{1<<20 + 1, 64, errs.ErrNoMemory},
	} {
		t.Run(fmt.Sprint(c.size, "/", c.align), func(t *testing.T) {
			_, err := a.Alloc(c.size, c.align)
			assert.ErrorIs(t, err, c.want)
			_, err = a.Peek(c.size, c.align)
			assert.ErrorIs(t, err, c.want)
		})
	}
	assert.Zero(t, a.InUse())
	off, err := a.Alloc(1, MaxAlign)
	assert.NoError(t, err, "offset 0 has every alignment")
	assert.Zero(t, off)
	_, err = a.Alloc(1, MaxAlign)
	assert.ErrorIs(t, err, errs.ErrNoMemory)
}

func TestAllocatorNoMemory(t *testing.T) {
	a, err := NewAllocator(1024)
	require.NoError(t, err)
	for range 8 {
		_, err := a.Alloc(128, 0)
		require.NoError(t, err)
	}
	assert.Zero(t, a.LargestFree())
	require.NoError(t, a.Free(128))
	require.NoError(t, a.Free(512))
	_, err = a.Alloc(200, 128)
	var e *NoMemoryError
	require.True(t, errors.As(err, &e))
	assert.Equal(t, NoMemoryError{Asked: 200, Align: 128, Free: 256, Largest: 128}, *e)
	assert.ErrorIs(t, err, errs.ErrNoMemory)
	assert.NotErrorIs(t, err, errs.ErrRange)
}

func TestAllocatorFreeForeign(t *testing.T) {
	a, err := NewAllocator(4096)
	require.NoError(t, err)
	assert.ErrorIs(t, a.Free(0), errs.ErrBadRef, "never allocated")
	off, err := a.Alloc(256, 0)
	require.NoError(t, err)
	for _, wrong := range []uint64{off + 1, off + 64, off + 256, 4096, math.MaxUint64} {
		assert.ErrorIs(t, a.Free(wrong), errs.ErrBadRef)
	}
	assert.NoError(t, a.Free(off))
	assert.ErrorIs(t, a.Free(off), errs.ErrBadRef, "double free")
	_, ok := a.SizeOf(off)
	assert.False(t, ok)
	assert.Equal(t, a.Size(), a.LargestFree())
}

func TestNewAllocatorRefuses(t *testing.T) {
	for _, size := range []int64{0, 63, -1, math.MinInt64} {
		_, err := NewAllocator(size)
		assert.ErrorIs(t, err, errs.ErrConfig)
	}
	a, err := NewAllocator(math.MaxInt64)
	require.NoError(t, err)
	off, err := a.Alloc(math.MaxInt64-127, 0)
	require.NoError(t, err)
	assert.Zero(t, off)
	off, err = a.Alloc(1, 0)
	require.NoError(t, err)
	assert.Equal(t, uint64(math.MaxInt64-127), off)
	_, err = a.Alloc(1, 0)
	assert.ErrorIs(t, err, errs.ErrNoMemory)
}

// machine runs an allocator, a second one that is fed the same, and the model.
type machine struct {
	a, twin *Allocator
	m       model
}

func newMachine(base uint64, size int64) (*machine, error) {
	a, err := newAllocator(base, size)
	if err != nil {
		return nil, err
	}
	twin, err := newAllocator(base, size)
	return &machine{a: a, twin: twin, m: model{base: base, size: size &^ (MinAlign - 1)}}, err
}

// run makes one call everywhere and says what differs.
func (x *machine) run(o op) error {
	if o.free {
		off := uint64(o.index) // among few blocks mostly foreign
		if o.index < len(x.m.taken) {
			off = x.m.taken[o.index].off
		}
		ok := x.m.free(off)
		err, twin := x.a.Free(off), x.twin.Free(off)
		if (err == nil) != ok || (twin == nil) != ok || !ok && !errors.Is(err, errs.ErrBadRef) {
			return fmt.Errorf("free %#x: %v and %v, want %v", off, err, twin, ok)
		}
		return x.m.compare(x.a)
	}
	peek, peekErr := x.a.Peek(o.size, o.align)
	off, err := x.a.Alloc(o.size, o.align)
	twinOff, twin := x.twin.Alloc(o.size, o.align)
	if peek != off || twinOff != off || (peekErr == nil) != (err == nil) || (twin == nil) != (err == nil) {
		return fmt.Errorf("%+v: %#x %v, peeked %#x %v, twin %#x %v", o, off, err, peek, peekErr, twinOff, twin)
	}
	if o.align > MaxAlign || o.align&(o.align-1) != 0 {
		if !errors.Is(err, errs.ErrAlign) {
			return fmt.Errorf("%+v: %v", o, err)
		}
		return x.m.compare(x.a)
	}
	want, ok := x.m.alloc(o.size, o.align)
	switch {
	case ok && (err != nil || off != want):
		return fmt.Errorf("%+v: %#x %v, want %#x", o, off, err, want)
	case ok && off%uint64(max(o.align, MinAlign)) != 0:
		return fmt.Errorf("%+v: %#x is misaligned", o, off)
	case !ok:
		var e *NoMemoryError
		if !errors.As(err, &e) || e.Free != x.m.size-x.m.inUse() || e.Largest != x.m.largest() || e.Asked != o.size {
			return fmt.Errorf("%+v: %v, want no memory", o, err)
		}
	}
	return x.m.compare(x.a)
}

// freeAll frees the rest; everything must have become one block again.
func (x *machine) freeAll() error {
	for len(x.m.taken) > 0 {
		if err := x.run(op{free: true, index: len(x.m.taken) / 2}); err != nil {
			return err
		}
	}
	if used, free := len(x.a.used), len(x.a.byOff); used != 0 || free != 1 || x.a.LargestFree() != x.a.Size() || x.a.InUse() != 0 {
		return fmt.Errorf("%d used, %d free after freeing all", used, free)
	}
	return nil
}

func TestAllocatorStateMachine(t *testing.T) {
	sizes := rapid.OneOf(
		rapid.Int64Range(0, 300),
		rapid.SampledFrom([]int64{0, 1, 63, 64, 65, 127, 128, 4095, 4096, 4097}),
		rapid.Int64Range(0, 20000),
	)
	rapid.Check(t, func(t *rapid.T) {
		x, err := newMachine(
			uint64(rapid.IntRange(0, 100).Draw(t, "base"))*MinAlign,
			rapid.Int64Range(MinAlign, 40000).Draw(t, "size"))
		if err != nil {
			t.Fatal(err)
		}
		run := func(t *rapid.T, o op) {
			if err := x.run(o); err != nil {
				t.Fatal(err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				run(t, op{size: sizes.Draw(t, "size"), align: 1 << rapid.IntRange(0, 13).Draw(t, "align")})
			},
			"free": func(t *rapid.T) {
				if len(x.m.taken) == 0 {
					t.Skip("nothing to free")
				}
				run(t, op{free: true, index: rapid.IntRange(0, len(x.m.taken)-1).Draw(t, "block")})
			},
			"free foreign": func(t *rapid.T) {
				run(t, op{free: true, index: rapid.IntRange(len(x.m.taken), 50000).Draw(t, "offset")})
			},
			"misaligned": func(t *rapid.T) {
				run(t, op{size: 1, align: rapid.SampledFrom([]int64{3, 65, 96, MaxAlign + 1, MaxAlign * 2}).Draw(t, "align")})
			},
		})
		if err := x.freeAll(); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzAllocator(f *testing.F) {
	f.Add(uint16(0), []byte{})
	f.Add(uint16(640), encodeOps([]op{
		{size: 0}, {size: 1, align: 64}, {size: 4096, align: 4096}, {free: true, index: 1},
		{size: 128, align: 128}, {free: true, index: 0}, {free: true, index: 200}, {size: 1 << 20}, {size: 1, align: MaxAlign},
	}))
	f.Fuzz(func(t *testing.T, base uint16, log []byte) {
		if len(log) > 400 {
			log = log[:400] // the model is quadratic
		}
		x, err := newMachine(uint64(base)*MinAlign, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range decodeOps(log) {
			if err := x.run(o); err != nil {
				t.Fatalf("operation %d: %v", i, err)
			}
		}
		if err := x.freeAll(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOpLogRoundTrip(t *testing.T) {
	ops := []op{{size: 0}, {size: 63, align: 1}, {size: 64, align: 64}, {size: 4096, align: 4096}, {size: 1 << 18, align: MaxAlign / 2}, {free: true, index: 3}}
	assert.Equal(t, ops, decodeOps(encodeOps(ops)))
	assert.Empty(t, decodeOps([]byte{1}))
}

// One free and one allocation among n free blocks of changing sizes.
func BenchmarkAllocator(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint("free=", n), func(b *testing.B) {
			a, err := NewAllocator(1 << 40)
			if err != nil {
				b.Fatal(err)
			}
			offs := make([]uint64, 2*n)
			for i := range offs {
				if offs[i], err = a.Alloc(int64(64+64*(i*7919%97)), 64); err != nil {
					b.Fatal(err)
				}
			}
			for i := 0; i < len(offs); i += 2 {
				if err := a.Free(offs[i]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				k := (i*7919%n)*2 + 1
				if err := a.Free(offs[k]); err != nil {
					b.Fatal(err)
				}
				if offs[k], err = a.Alloc(int64(64+64*(k*7919%97)), 64); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
