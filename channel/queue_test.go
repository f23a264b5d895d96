package channel

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"goshmem/heap"
)

// The requests that an operation is cut into: none is longer than the limit,
// unless it is one element; together they do what the operation does, in order;
// the signal is on the last.
func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ops := []Op{OpPut, OpGet, OpIPut, OpIGet, OpSignal, OpAMOAdd}
		d := Desc{
			Op: rapid.SampledFrom(ops).Draw(t, "op"), Size: uint64(rapid.IntRange(0, 40).Draw(t, "size")),
			DstOff: 1 << 20, SrcOff: 1 << 30, SigOff: 64, SigVal: 7, SigOp: SigAdd,
		}
		strided := d.Op == OpIPut || d.Op == OpIGet
		if strided {
			d.Type = Elem(rapid.IntRange(0, 4).Draw(t, "type"))
			d.SigOff = uint64(rapid.IntRange(1, 5).Draw(t, "dst stride"))
			d.SigVal = uint64(rapid.IntRange(1, 5).Draw(t, "src stride"))
			d.SigOp = SigNone
		}
		local := make([]byte, 4096) // all that strides reach
		base := unsafe.Pointer(&local[0])
		limit := uint64(rapid.IntRange(0, 50).Draw(t, "limit"))
		l := &Lane{}
		l.queue.Push(entry{desc: d, ptr: base, pos: 5})
		var c cursor
		done := uint64(0)
		for last := false; !last; {
			var req Request
			var err error
			c, last, err = l.next(c, limit, &req)
			require.NoError(t, err)
			require.Equal(t, uint64(5), req.Seq)
			off := uintptr(req.Local) - uintptr(base)
			switch {
			case strided:
				size := d.Type.Size()
				require.True(t, limit == 0 || req.Size*size <= limit || req.Size == 1, "%d elements", req.Size)
				dst, src := done*d.SigOff*size, done*d.SigVal*size
				require.Equal(t, [2]uint64{d.DstOff + dst, d.SrcOff + src}, [2]uint64{req.DstOff, req.SrcOff})
				if d.Op == OpIPut {
					require.Equal(t, uintptr(src), off)
				} else {
					require.Equal(t, uintptr(dst), off)
				}
				done += req.Size
			case d.Op == OpPut || d.Op == OpGet:
				require.True(t, limit == 0 || req.Size <= limit)
				require.Equal(t, [2]uint64{d.DstOff + done, d.SrcOff + done}, [2]uint64{req.DstOff, req.SrcOff})
				require.Equal(t, uintptr(done), off)
				require.Equal(t, last, req.SigOp != SigNone)
				require.Equal(t, d.Size, req.Whole)
				done += req.Size
			default:
				require.True(t, last)
				done += req.Size
				require.Equal(t, d.SigOp, req.SigOp)
			}
		}
		require.Equal(t, d.Size, done)
		require.Equal(t, cursor{entry: 1}, c)
	})
}

// A batch is its items one after the other, each cut.
func TestCutBatch(t *testing.T) {
	tab := heap.NewTable(7, 1, 2)
	tab.Set(0, heap.RegionHeap, heap.Memory{Size: 1000})
	l := &Lane{cfg: LaneConfig{Table: tab}}
	src := make([]byte, 10)
	items := []BatchItem{
		{Dst: heap.MakeRef(7, heap.RegionHeap, 100), Src: src},
		{Dst: heap.MakeRef(7, heap.RegionHeap, 200)},
		{Dst: heap.MakeRef(7, heap.RegionHeap, 300), Src: src[:4]},
	}
	l.queue.Push(entry{desc: Desc{Op: OpBatch, Flags: FlagLocalPtr, Size: 3}, ptr: unsafe.Pointer(&items[0])})
	var c cursor
	var got [][2]uint64
	for last := false; !last; {
		var req Request
		var err error
		c, last, err = l.next(c, 4, &req)
		require.NoError(t, err)
		require.Equal(t, OpPut, req.Op)
		got = append(got, [2]uint64{req.DstOff, req.Size})
	}
	require.Equal(t, [][2]uint64{{100, 4}, {104, 4}, {108, 2}, {200, 0}, {300, 4}}, got)
}
