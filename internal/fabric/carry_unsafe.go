package fabric

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/memcopy"
)

// send reads what a put takes along. A request that is sent again is read again.
func (w *wire) send(f *flight) {
	r := &f.req
	switch r.Op {
	case channel.OpPut:
		w.capture(f, f.local(r.SrcRegion, r.SrcOff), uintptr(r.Size), 1, 1)
	case channel.OpIPut:
		w.capture(f, f.local(r.SrcRegion, r.SrcOff), uintptr(r.Size), uintptr(r.SigVal), uintptr(r.Type.Size()))
	}
}

// capture reads n elements of size bytes, stride elements apart, onto the wire.
func (w *wire) capture(f *flight, from unsafe.Pointer, n, stride, size uintptr) {
	if !w.buffered || n == 0 {
		f.from, f.stride = from, stride
		return
	}
	if f.buf == nil {
		f.buf = make([]byte, n*size)
	}
	f.from, f.stride = unsafe.Pointer(unsafe.SliceData(f.buf)), 1
	if stride == 1 {
		move(f.from, from, n*size)
		return
	}
	memcopy.Strided(f.from, from, n, 1, stride, size)
}

// land carries a request out at its target: its data, then its signal, then the
// bell. Extents were checked when it was queued, with the same table.
func (w *wire) land(f *flight) error {
	f.landed = true
	r := &f.req
	remote := func(region uint16, off uint64) unsafe.Pointer { return w.env.Table.Region(f.lane.peer, region).At(off) }
	switch r.Op {
	case channel.OpNop, channel.OpSignal:
	case channel.OpPut:
		move(remote(r.DstRegion, r.DstOff), f.from, uintptr(r.Size))
	case channel.OpIPut:
		memcopy.Strided(remote(r.DstRegion, r.DstOff), f.from, uintptr(r.Size), uintptr(r.SigOff), f.stride, uintptr(r.Type.Size()))
		return nil // its signal fields are strides
	case channel.OpGet:
		w.capture(f, remote(r.SrcRegion, r.SrcOff), uintptr(r.Size), 1, 1)
	case channel.OpIGet:
		w.capture(f, remote(r.SrcRegion, r.SrcOff), uintptr(r.Size), uintptr(r.SigVal), uintptr(r.Type.Size()))
		return nil
	default:
		if !r.Op.IsAMO() {
			return fmt.Errorf("fabric: %v: %w", r.Op, errs.ErrUnsupported)
		}
		f.old = channel.ApplyAMO(r.Op, r.Type, remote(r.DstRegion, r.DstOff), r.SigVal, r.SigOff)
		w.env.Knock(f.lane.peer)
		return nil
	}
	w.raise(f)
	return nil
}

// raise changes the request's signal, if it has one and it was not raised yet.
func (w *wire) raise(f *flight) {
	r := &f.req
	if r.SigOp == channel.SigNone {
		return
	}
	region := heap.RegionHeap
	if r.Flags&channel.FlagSigRuntime != 0 {
		region = heap.RegionRuntime
	}
	channel.ApplySignal(w.env.Table.Region(f.lane.peer, region).At(r.SigOff), r.SigOp, r.SigVal)
	r.SigOp = channel.SigNone
	w.env.Knock(f.lane.peer)
}

// finish stores what came back, where the request returns something.
func (w *wire) finish(f *flight) {
	r := &f.req
	switch {
	case r.Op == channel.OpGet:
		move(f.local(r.DstRegion, r.DstOff), f.from, uintptr(r.Size))
	case r.Op == channel.OpIGet:
		memcopy.Strided(f.local(r.DstRegion, r.DstOff), f.from, uintptr(r.Size), uintptr(r.SigOff), f.stride, uintptr(r.Type.Size()))
	case r.Op.IsAMO() && r.Flags&channel.FlagFetch != 0:
		channel.StoreElem(f.local(r.SrcRegion, r.SrcOff), r.Type.Size(), f.old)
	}
}

// local is the request's side at the lane's owner.
func (f *flight) local(region uint16, off uint64) unsafe.Pointer {
	if f.req.Flags&channel.FlagLocalPtr != 0 {
		return f.req.Local
	}
	return f.lane.l.LocalAddr(region, off)
}

// move copies n bytes; an aligned word of 1, 2, 4 or 8 in one access, as the
// contract has it for single values. Words that others wait for are changed
// atomically, so that the race detector takes no such wait for a race.
func move(dst, src unsafe.Pointer, n uintptr) {
	aligned := (uintptr(dst)|uintptr(src))&(n-1) == 0
	switch {
	case n == 8 && aligned:
		atomic.StoreUint64((*uint64)(dst), atomic.LoadUint64((*uint64)(src)))
	case n == 4 && aligned:
		atomic.StoreUint32((*uint32)(dst), atomic.LoadUint32((*uint32)(src)))
	case n == 2 && aligned:
		*(*uint16)(dst) = *(*uint16)(src)
	case n > 0:
		memcopy.Copy(dst, src, n)
	}
}
