package nvlink

import (
	"fmt"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/memcopy"
	"goshmem/internal/raceflag"
)

// Post carries requests out in order. It takes all of them, or fails at the
// first that it does not know.
func (h *Host) Post(l *channel.Lane, reqs []channel.Request) (int, error) {
	for i := range reqs {
		if err := h.execute(l, &reqs[i]); err != nil {
			return i, err
		}
	}
	return len(reqs), nil
}

// execute carries one request out. Its extents were checked when it was queued,
// against the same table.
func (h *Host) execute(l *channel.Lane, r *channel.Request) error {
	peer := l.Config().Peer
	remote := h.table.Region(peer, r.DstRegion)
	switch r.Op {
	case channel.OpNop:
		return nil
	case channel.OpPut:
		if r.Size > 0 {
			transfer(remote.At(r.DstOff), local(l, r, r.SrcRegion, r.SrcOff), r)
		}
	case channel.OpIPut:
		strided(remote.At(r.DstOff), local(l, r, r.SrcRegion, r.SrcOff), r)
	case channel.OpGet:
		if r.Size > 0 {
			src := h.table.Region(peer, r.SrcRegion)
			transfer(local(l, r, r.DstRegion, r.DstOff), src.At(r.SrcOff), r)
		}
		return nil
	case channel.OpIGet:
		src := h.table.Region(peer, r.SrcRegion)
		strided(local(l, r, r.DstRegion, r.DstOff), src.At(r.SrcOff), r)
		return nil
	case channel.OpSignal:
	default:
		if !r.Op.IsAMO() {
			return fmt.Errorf("nvlink: %v: %w", r.Op, errs.ErrUnsupported)
		}
		old := channel.ApplyAMO(r.Op, r.Type, remote.At(r.DstOff), r.SigVal, r.SigOff)
		if r.Flags&channel.FlagFetch != 0 {
			channel.StoreElem(local(l, r, r.SrcRegion, r.SrcOff), r.Type.Size(), old)
		}
		l.Knock()
		return nil
	}
	if r.SigOp != channel.SigNone {
		region := heap.RegionHeap
		if r.Flags&channel.FlagSigRuntime != 0 {
			region = heap.RegionRuntime
		}
		channel.ApplySignal(h.table.Region(peer, region).At(r.SigOff), r.SigOp, r.SigVal)
		l.Knock()
	}
	return nil
}

// transfer copies the bytes of a put or get: a word, which may be a value that
// others read meanwhile, by one access; the pieces of a large one as all of them
// at once would be.
func transfer(dst, src unsafe.Pointer, r *channel.Request) {
	n := uintptr(r.Size)
	if r.Whole >= memcopy.NTMin {
		memcopy.Stream(dst, src, n)
		return
	}
	if n <= 8 {
		raceflag.Release(dst)
		if memcopy.Word(dst, src, n) {
			return
		}
	}
	memcopy.Copy(dst, src, n)
}

func local(l *channel.Lane, r *channel.Request, region uint16, off uint64) unsafe.Pointer {
	if r.Flags&channel.FlagLocalPtr != 0 {
		return r.Local
	}
	return l.LocalAddr(region, off)
}

// strided copies r.Size elements, the destination's SigOff and the source's
// SigVal elements apart.
func strided(dst, src unsafe.Pointer, r *channel.Request) {
	memcopy.Strided(dst, src, uintptr(r.Size), uintptr(r.SigOff), uintptr(r.SigVal), uintptr(r.Type.Size()))
}
