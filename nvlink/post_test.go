package nvlink

import (
	"bytes"
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/memcopy"
)

// Puts and gets arrive whole however they are cut, whatever way of copying their
// size as a whole calls for.
func TestPieces(t *testing.T) {
	const room = memcopy.NTMin + 1<<20
	mine, theirs := make([]byte, room), make([]byte, room)
	tab := heap.NewTable(7, 2, 2)
	for i, b := range [][]byte{mine, theirs} {
		tab.Set(i, heap.RegionHeap, heap.Memory{Base: unsafe.Pointer(&b[0]), Size: room})
	}
	h := NewHost(tab, 2)
	l := channel.NewLane(channel.LaneConfig{Owner: 0, Peer: 1, TeamPE: 1, Table: tab, Group: &channel.Group{}, Inline: true, Transport: h})
	local := make([]byte, room)
	for _, op := range []channel.Op{channel.OpPut, channel.OpGet} {
		for _, size := range []int{1, 8, 4096, piece, memcopy.NTMin - 1, memcopy.NTMin, memcopy.NTMin + 5, memcopy.NTMin + 5000} {
			t.Run(fmt.Sprintf("%v/%d", op, size), func(t *testing.T) {
				const at = 24 // neither side at the start of anything
				from, to := local, theirs
				if op == channel.OpGet {
					from, to = theirs, local
				}
				for i := range from {
					from[i] = byte(i>>12 + i*7 + size)
				}
				clear(to)
				var reqs []channel.Request
				for off := 0; off < size; off += piece {
					r := channel.Request{Local: unsafe.Pointer(&local[at+off]), Whole: uint64(size)}
					r.Op, r.Flags, r.Size = op, channel.FlagLocalPtr, uint64(min(piece, size-off))
					if op == channel.OpPut {
						r.DstOff = uint64(at + off)
					} else {
						r.SrcOff = uint64(at + off)
					}
					reqs = append(reqs, r)
				}
				n, err := h.Post(l, reqs)
				require.NoError(t, err)
				require.Len(t, reqs, n)
				require.True(t, bytes.Equal(from[at:at+size], to[at:at+size]))
				require.Zero(t, to[at-1])
				require.Zero(t, to[at+size])
			})
		}
	}
}
