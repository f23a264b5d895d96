package channel

import (
	"runtime"
	"testing"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"goshmem/internal/errs"
)

func mustRing(t require.TestingT, capacity int, start uint64) *Ring {
	r, err := newRingAt(capacity, start)
	require.NoError(t, err)
	return r
}

func TestRingCapacityRefused(t *testing.T) {
	for _, c := range []int{0, -1, MaxRing + 1, 1 << 62} {
		_, err := NewRing(c)
		require.ErrorIs(t, err, errs.ErrConfig, "%d", c)
	}
}

func TestRingLayout(t *testing.T) {
	var r Ring
	hot := []uintptr{
		unsafe.Offsetof(r.capacity), unsafe.Offsetof(r.tail), unsafe.Offsetof(r.head),
		unsafe.Offsetof(r.released),
	}
	for i := 1; i < len(hot); i++ {
		assert.GreaterOrEqual(t, hot[i]-hot[i-1], uintptr(line), "word %d", i)
	}
	assert.GreaterOrEqual(t, unsafe.Sizeof(r)-unsafe.Offsetof(r.released), uintptr(line))
	for _, c := range []int{1, 2, 3, 5, 100, 1000, 1024} {
		r := mustRing(t, c, 0)
		assert.Equal(t, c, r.Cap())
		assert.Zero(t, uintptr(unsafe.Pointer(&r.slots[0]))%DescSize)
		assert.Less(t, len(r.slots), 2*c)
	}
}

// A claim succeeds exactly while fewer than the capacity are outstanding, and
// positions are dense from 1.
func TestRingCapacityExact(t *testing.T) {
	for _, c := range []int{1, 2, 3, 4, 5, 8, 1000} {
		r := mustRing(t, c, 0)
		next := uint64(1)
		fill := func(n int) {
			for range n {
				pos, ok := r.TryPush(&Desc{Op: OpPut, Size: next}, Local{})
				require.True(t, ok, "capacity %d", c)
				require.Equal(t, next, pos)
				require.Equal(t, pos, r.Claimed())
				next++
			}
			for range 2 {
				pos, ok := r.TryPush(&Desc{}, Local{})
				require.False(t, ok, "capacity %d holds more", c)
				require.Zero(t, pos)
			}
			require.Equal(t, next-1, r.Claimed(), "a refused claim left a trace")
		}
		require.True(t, r.Empty())
		fill(c)
		for lap := range 5 {
			k := 1 + (lap*7)%c
			for range k {
				d, _, pos, ok := r.Front()
				require.True(t, ok)
				require.Equal(t, pos, d.Size)
				require.Equal(t, pos, d.Seq)
				r.Advance()
			}
			_, ok := r.TryPush(&Desc{}, Local{})
			require.False(t, ok, "consumed is not yet released")
			r.Release()
			fill(k)
			require.False(t, r.Empty())
		}
	}
}

func TestRingPeek(t *testing.T) {
	r := mustRing(t, 3, 0)
	for i := range uint64(3) {
		_, ok := r.TryPush(&Desc{Size: i}, Local{})
		require.True(t, ok)
	}
	for i := range 3 {
		d, _, pos, ok := r.Peek(i)
		require.True(t, ok)
		assert.EqualValues(t, i, d.Size)
		assert.EqualValues(t, i+1, pos)
	}
	// Neither the unused slot of the power of two nor the next lap shows.
	for i := 3; i < 9; i++ {
		_, _, _, ok := r.Peek(i)
		assert.False(t, ok, "%d", i)
	}
	assert.Zero(t, r.Consumed())
}

// Everything a payload may hold is carried, its Seq is ignored, and nothing in
// it can pass for the commit mark.
func TestRingPayloads(t *testing.T) {
	for _, start := range []uint64{0, 1<<32 - 3, 1<<63 - 3, ^uint64(0) - 2} {
		r := mustRing(t, 3, start)
		for i := range uint64(40) {
			for _, d := range []Desc{{}, onesDesc, countDesc} {
				want := d
				d.Seq = start + i // may be any earlier or later position
				pos, slot, ok := r.TryClaim()
				require.True(t, ok)
				copyBody(slot, &d)
				_, _, _, ok = r.Front()
				require.False(t, ok, "seen before Publish")
				r.Publish(pos)
				got, _, at, ok := r.Front()
				require.True(t, ok)
				require.Equal(t, pos, at)
				want.Seq = pos
				require.Equal(t, want, *got)
				r.Advance()
				r.Release()

				pushed, ok := r.TryPush(&d, Local{})
				require.True(t, ok)
				require.Equal(t, pos+1, pushed)
				got, _, _, ok = r.Front()
				require.True(t, ok)
				want.Seq = pushed
				require.Equal(t, want, *got)
				r.Advance()
				r.Release()
			}
		}
		require.True(t, r.Empty())
		require.Equal(t, r.Claimed(), r.Consumed())
	}
}

// Later positions wait for an earlier one that is claimed and not published.
func TestRingPublishedOutOfOrder(t *testing.T) {
	r := mustRing(t, 2, 0)
	p1, s1, _ := r.TryClaim()
	p2, s2, _ := r.TryClaim()
	s1.Size, s2.Size = 1, 2
	r.Publish(p2)
	_, _, _, ok := r.Front()
	require.False(t, ok)
	require.False(t, r.Empty(), "claims count")
	r.Publish(p1)
	for _, want := range []uint64{p1, p2} {
		d, _, pos, ok := r.Front()
		require.True(t, ok)
		assert.Equal(t, want, pos)
		assert.Equal(t, want, d.Size)
		r.Advance()
	}
}

// The collector sees a reference from TryPush to Advance, and no longer.
func TestRingLocalLifetime(t *testing.T) {
	r := mustRing(t, 2, 0)
	alive := func(w weak.Pointer[[64]byte]) bool {
		runtime.GC()
		runtime.GC()
		return w.Value() != nil
	}
	push := func(flags Flags) weak.Pointer[[64]byte] {
		buf := new([64]byte)
		buf[5] = 42
		w := weak.Make(buf)
		_, ok := r.TryPush(&Desc{Op: OpPut, Flags: flags}, Local{Ptr: unsafe.Pointer(buf)})
		require.True(t, ok)
		return w
	}
	kept, dropped := push(FlagLocalPtr), push(0)
	assert.True(t, alive(kept))
	assert.False(t, alive(dropped), "without the flag there is no reference")
	d, local, _, ok := r.Front()
	require.True(t, ok)
	require.Equal(t, FlagLocalPtr, d.Flags)
	assert.EqualValues(t, 42, (*[64]byte)(local.Ptr)[5])
	r.Advance()
	assert.False(t, alive(kept))
	_, local, _, ok = r.Front()
	require.True(t, ok)
	assert.Equal(t, Local{}, *local)
	runtime.KeepAlive(r)
}

// In two steps, the producer writes the reference itself.
func TestRingLocalInPlace(t *testing.T) {
	r := mustRing(t, 1, 0)
	x := new(int64)
	pos, slot, ok := r.TryClaim()
	require.True(t, ok)
	*slot = Desc{Op: OpGet, Flags: FlagLocalPtr, Seq: slot.Seq}
	*r.Local(pos) = Local{Ptr: unsafe.Pointer(x)}
	r.Publish(pos)
	_, local, _, ok := r.Front()
	require.True(t, ok)
	assert.Equal(t, unsafe.Pointer(x), local.Ptr)
	r.Advance()
	assert.Equal(t, Local{}, *r.Local(pos))
}

// Any sequence of calls agrees with a plain queue.
func TestRingModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.SampledFrom([]int{1, 2, 3, 5, 8, 13}).Draw(t, "capacity")
		start := rapid.SampledFrom([]uint64{0, 1<<32 - 5, 1<<63 - 5, ^uint64(0) - 5}).Draw(t, "start")
		r := mustRing(t, capacity, start)
		type entry struct {
			pos       uint64
			d         Desc
			published bool
		}
		var queue []entry // claimed and not consumed
		claimed, consumed, released := start, start, start
		t.Repeat(map[string]func(*rapid.T){
			"claim": func(t *rapid.T) {
				d := genDesc().Draw(t, "d")
				pos, slot, ok := r.TryClaim()
				if want := claimed-released < uint64(capacity); ok != want {
					t.Fatalf("claim %v, want %v", ok, want)
				}
				if !ok {
					return
				}
				claimed++
				if pos != claimed {
					t.Fatalf("position %d, want %d", pos, claimed)
				}
				copyBody(slot, &d)
				*r.Local(pos) = Local{}
				d.Seq = pos
				queue = append(queue, entry{pos: pos, d: d})
			},
			"publish": func(t *rapid.T) {
				if len(queue) == 0 {
					t.Skip()
				}
				if e := &queue[rapid.IntRange(0, len(queue)-1).Draw(t, "i")]; !e.published {
					r.Publish(e.pos)
					e.published = true
				}
			},
			"consume": func(t *rapid.T) {
				d, _, pos, ok := r.Front()
				if want := len(queue) > 0 && queue[0].published; ok != want {
					t.Fatalf("front %v, want %v", ok, want)
				}
				if !ok {
					return
				}
				if *d != queue[0].d || pos != queue[0].pos {
					t.Fatalf("front %v at %d, want %v", d, pos, &queue[0].d)
				}
				r.Advance()
				consumed++
				queue = queue[1:]
			},
			"release": func(*rapid.T) { r.Release(); released = consumed },
			"": func(t *rapid.T) {
				if r.Claimed() != claimed || r.Consumed() != released || r.Empty() != (claimed == released) {
					t.Fatalf("claimed %d consumed %d empty %v", r.Claimed(), r.Consumed(), r.Empty())
				}
				for i := range queue {
					_, _, _, ok := r.Peek(i)
					if ok != queue[i].published {
						t.Fatalf("peek %d: %v", i, ok)
					}
				}
			},
		})
	})
}

func TestRingAllocatesNothing(t *testing.T) {
	r := mustRing(t, 8, 0)
	x := new(int)
	d := Desc{Op: OpPut, Flags: FlagLocalPtr, Size: 8}
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		r.TryPush(&d, Local{Ptr: unsafe.Pointer(x)})
		if pos, slot, ok := r.TryClaim(); ok {
			slot.Op, slot.Flags = OpNop, 0
			r.Publish(pos)
		}
		for {
			if _, _, _, ok := r.Front(); !ok {
				break
			}
			r.Advance()
		}
		r.Release()
	}))
}
