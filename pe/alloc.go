package pe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"goshmem/heap"
	"goshmem/internal/errs"
)

// AllocMem allocates size bytes of the symmetric heap, aligned to align (a power
// of two up to 2 MiB; 0: 64), at the same offset on every PE. Collective: every
// PE calls it with the same arguments; if they differ all get ErrMismatch, if one
// has no room all get ErrNoMemory, and nothing is allocated. The content is
// whatever was there.
func (p *PE) AllocMem(ctx context.Context, size, align int64) (heap.Ref, error) {
	return p.team.alloc(ctx, "pe: alloc", heap.RegionHeap, size, align, false)
}

// CallocMem is AllocMem of zeroed memory: zero on every PE when any of them
// returns.
func (p *PE) CallocMem(ctx context.Context, size, align int64) (heap.Ref, error) {
	return p.team.alloc(ctx, "pe: calloc", heap.RegionHeap, size, align, true)
}

// AllocSignals allocates n signal objects, zeroed, one cache line each.
// Collective.
func (p *PE) AllocSignals(ctx context.Context, n int) (heap.Signals, error) {
	ref, err := p.team.alloc(ctx, "pe: alloc signals", heap.RegionHeap, bytesOf(n, heap.SignalSize), heap.SignalSize, true)
	if err != nil {
		return heap.Signals{}, err
	}
	return heap.MakeSignals(ref, n), nil
}

// Alloc allocates an array of n elements. Collective, like AllocMem. Among a team
// alone: Team.AllocMem, and ArrayAt of its reference.
func Alloc[T heap.Elem](ctx context.Context, p *PE, n int) (heap.Array[T], error) {
	return allocArray[T](ctx, p, "pe: alloc", heap.RegionHeap, n, false)
}

// Calloc is Alloc of zeroed memory.
func Calloc[T heap.Elem](ctx context.Context, p *PE, n int) (heap.Array[T], error) {
	return allocArray[T](ctx, p, "pe: calloc", heap.RegionHeap, n, true)
}

// AllocDevice is AllocMem of the symmetric heap in device memory
// (GOSHMEM_DEVICE_HEAP); ErrUnsupported without one. CPUs cannot reach it: LocalBytes
// and waits on its words are ErrKind.
func (p *PE) AllocDevice(ctx context.Context, size, align int64) (heap.Ref, error) {
	return p.team.alloc(ctx, "pe: alloc device", heap.RegionDevice, size, align, false)
}

// CallocDevice is AllocDevice of zeroed memory.
func (p *PE) CallocDevice(ctx context.Context, size, align int64) (heap.Ref, error) {
	return p.team.alloc(ctx, "pe: calloc device", heap.RegionDevice, size, align, true)
}

// AllocDeviceArray allocates an array of n elements in device memory; its Local is
// nil.
func AllocDeviceArray[T heap.Elem](ctx context.Context, p *PE, n int) (heap.Array[T], error) {
	return allocArray[T](ctx, p, "pe: alloc device", heap.RegionDevice, n, false)
}

// CallocDeviceArray is AllocDeviceArray of zeroed memory.
func CallocDeviceArray[T heap.Elem](ctx context.Context, p *PE, n int) (heap.Array[T], error) {
	return allocArray[T](ctx, p, "pe: calloc device", heap.RegionDevice, n, true)
}

func allocArray[T heap.Elem](ctx context.Context, p *PE, op string, region uint16, n int, zero bool) (heap.Array[T], error) {
	size := heap.ElemSize[T]()
	if p == nil {
		return heap.Array[T]{}, p.errAt(op, heap.Ref{}, -1, errNoPE)
	}
	ref, err := p.team.alloc(ctx, op, region, bytesOf(n, size), 0, zero)
	if err != nil {
		return heap.Array[T]{}, err
	}
	return ArrayAt[T](p, ref, n)
}

var errNoPE = fmt.Errorf("no PE: %w", errs.ErrConfig)

// bytesOf is the size of n elements; -1, which the allocation refuses on every
// member, where there is no such size.
func bytesOf(n int, size int64) int64 {
	if n < 0 || int64(n) > math.MaxInt64/size {
		return -1
	}
	return int64(n) * size
}

// ArrayAt views n elements of an allocation as an array of this PE.
func ArrayAt[T heap.Elem](p *PE, ref heap.Ref, n int) (heap.Array[T], error) {
	size := uint64(heap.ElemSize[T]())
	if p == nil {
		return heap.Array[T]{}, p.errAt("pe: array", ref, -1, errNoPE)
	}
	if n < 0 || uint64(n) > math.MaxInt64/size {
		return heap.Array[T]{}, p.errAt("pe: array", ref, int64(n), errs.ErrRange)
	}
	if err := p.world.table.Check(p.rank, ref, uint64(n)*size); err != nil {
		return heap.Array[T]{}, p.errAt("pe: array", ref, int64(uint64(n)*size), err)
	}
	if ref.Offset()%min(size, 8) != 0 {
		return heap.Array[T]{}, p.errAt("pe: array", ref, int64(uint64(n)*size), errs.ErrAlign)
	}
	if p.closed.Load() {
		return heap.Array[T]{}, p.errAt("pe: array", ref, int64(uint64(n)*size), &errs.ClosedError{PE: p.rank})
	}
	m := p.world.table.Region(p.rank, ref.Region())
	if m.Base == nil {
		return heap.MakeArray[T](ref, n, nil), nil
	}
	return heap.MakeArray[T](ref, n, m.At(ref.Offset())), nil
}

// Free releases an allocation of AllocMem and its like; see Team.FreeMem.
func (p *PE) Free(ctx context.Context, ref heap.Ref) error { return p.team.FreeMem(ctx, ref) }

// AllocMem is PE.AllocMem among the members of the team alone: the memory has
// the same offset on each of them, and other PEs keep theirs. Collective over
// the team.
func (t *Team) AllocMem(ctx context.Context, size, align int64) (heap.Ref, error) {
	return t.alloc(ctx, "pe: team alloc", heap.RegionHeap, size, align, false)
}

// CallocMem is AllocMem of zeroed memory.
func (t *Team) CallocMem(ctx context.Context, size, align int64) (heap.Ref, error) {
	return t.alloc(ctx, "pe: team calloc", heap.RegionHeap, size, align, true)
}

// AllocDevice is PE.AllocDevice among the members of the team alone.
func (t *Team) AllocDevice(ctx context.Context, size, align int64) (heap.Ref, error) {
	return t.alloc(ctx, "pe: team alloc device", heap.RegionDevice, size, align, false)
}

// CallocDevice is AllocDevice of zeroed memory.
func (t *Team) CallocDevice(ctx context.Context, size, align int64) (heap.Ref, error) {
	return t.alloc(ctx, "pe: team calloc device", heap.RegionDevice, size, align, true)
}

// AllocSignals is PE.AllocSignals among the members of the team alone.
func (t *Team) AllocSignals(ctx context.Context, n int) (heap.Signals, error) {
	const op = "pe: team alloc signals"
	ref, err := t.alloc(ctx, op, heap.RegionHeap, bytesOf(n, heap.SignalSize), heap.SignalSize, true)
	if err != nil {
		return heap.Signals{}, err
	}
	return heap.MakeSignals(ref, n), nil
}

// ResetSignals makes signals of the team zero again on every member, set-only or
// add-only anew: quiet, everybody arrives, each zeroes its own, everybody
// arrives. Collective over the team, while nobody signals or waits on them.
func (t *Team) ResetSignals(ctx context.Context, sigs heap.Signals) error {
	const op = "pe: reset signals"
	p := t.pe
	p.allocMu.Lock()
	defer p.allocMu.Unlock()
	if err := t.usable(); err != nil {
		return p.errAt(op, sigs.Ref(), sigs.Bytes(), err)
	}
	err := p.world.table.Check(p.rank, sigs.Ref(), uint64(sigs.Bytes()))
	if err == nil && sigs.Ref().Region() != heap.RegionHeap {
		err = errs.ErrBadRef
	}
	if err == nil && sigs.Ref().Offset()%8 != 0 {
		err = errs.ErrAlign
	}
	if err == nil {
		if qerr := p.quietAll(ctx); qerr != nil {
			return p.errAt(op, sigs.Ref(), sigs.Bytes(), qerr)
		}
	}
	r := request{op: opReset, a: sigs.Ref().Offset(), b: uint64(sigs.Bytes()), err: err}
	if _, err := t.agree(ctx, r); err != nil {
		return p.errAt(op, sigs.Ref(), sigs.Bytes(), err)
	}
	r.err = p.zero(heap.RegionHeap, sigs.Ref().Offset(), uint64(sigs.Bytes()))
	if _, err := t.agree(ctx, r); err != nil {
		return p.errAt(op, sigs.Ref(), sigs.Bytes(), err)
	}
	return nil
}

// FreeMem releases an allocation, by the reference that the allocation returned:
// it quiets this PE's contexts, waits for every member, then releases.
// Collective over the team that allocated. A double free or a foreign reference
// is ErrBadRef, and nothing is freed.
func (t *Team) FreeMem(ctx context.Context, ref heap.Ref) error {
	const op = "pe: free"
	p := t.pe
	p.allocMu.Lock()
	defer p.allocMu.Unlock()
	err := p.world.table.Check(p.rank, ref, 0)
	if err == nil {
		err = errs.ErrBadRef
		p.heapMu.Lock()
		if a := p.allocator(ref.Region()); a != nil {
			if _, ok := a.SizeOf(ref.Offset()); ok {
				err = nil
			}
		}
		p.heapMu.Unlock()
	}
	if err == nil {
		if qerr := p.quietAll(ctx); qerr != nil {
			return p.errAt(op, ref, -1, qerr)
		}
	}
	if _, e := t.agree(ctx, request{op: opFree + byte(ref.Region())<<4, a: ref.Offset(), err: err}); e != nil {
		return p.errAt(op, ref, -1, e)
	}
	if err := p.reap(); err != nil {
		return p.errAt(op, ref, -1, err)
	}
	p.heapMu.Lock()
	defer p.heapMu.Unlock()
	if err := p.heaps[ref.Region()].Free(ref.Offset()); err != nil {
		return p.errAt(op, ref, -1, err)
	}
	return nil
}

// alloc agrees on a block that is free at every member. Members whose free
// blocks are the same choose the same one without asking further; where
// allocations of other teams made them differ, they exchange what is free and
// take the lowest block that all have.
//
// Zeroed memory is zeroed before the exchange that ends the call, so that it is
// zero everywhere when any member returns.
func (t *Team) alloc(ctx context.Context, op string, region uint16, size, align int64, zero bool) (heap.Ref, error) {
	p := t.pe
	a := p.allocator(region)
	if a == nil { // on every member: they agreed on the heaps' sizes
		return heap.Ref{}, &errs.OpError{Op: op, PE: -1, Size: max(size, -1), Err: fmt.Errorf("no device heap (GOSHMEM_DEVICE_HEAP): %w", errs.ErrUnsupported)}
	}
	p.allocMu.Lock() // collective allocations of one PE take turns
	defer p.allocMu.Unlock()
	fail := func(err error) (heap.Ref, error) {
		return heap.Ref{}, &errs.OpError{Op: op, PE: -1, Size: max(size, -1), Err: err}
	}
	if err := t.usable(); err != nil {
		return fail(err)
	}
	var off uint64
	err := errs.ErrAlign
	p.heapMu.Lock()
	if align <= maxAlign {
		off, err = a.Peek(size, align)
	}
	print := a.Fingerprint()
	p.heapMu.Unlock()
	if size < 0 {
		err = fmt.Errorf("a size below 0 or over %d B: %w", math.MaxInt64, errs.ErrRange)
	}
	full := errors.Is(err, errs.ErrNoMemory)
	if err == nil && zero {
		err = p.zero(region, off, uint64(size))
	}
	r := request{op: opAlloc + byte(region)<<4, a: uint64(size), b: uint64(align), print: print, err: err}
	if full {
		r.err = nil // decided when the members' blocks are known to be alike
	}
	alike, e := t.agree(ctx, r)
	switch {
	case e != nil:
		return fail(e)
	case alike && full:
		return fail(err)
	case !alike:
		if off, err = t.common(ctx, a, size, align); err != nil {
			return fail(err)
		}
	}
	p.heapMu.Lock()
	err = a.AllocAt(off, heap.BlockSize(size))
	p.heapMu.Unlock()
	if err != nil {
		return fail(err) // cannot be: it was free, and allocations take turns
	}
	if !alike && zero {
		err = p.zero(region, off, uint64(size))
		if _, err := t.agree(ctx, request{op: opZeroed, a: off, b: uint64(size), err: err}); err != nil {
			p.heapMu.Lock()
			_ = a.Free(off) // just allocated: it is there
			p.heapMu.Unlock()
			return fail(err)
		}
	}
	return heap.MakeRef(p.world.id, region, off), nil
}

// zero clears a part of one of this PE's heaps, unless the PE has closed: the memory may
// be gone.
func (p *PE) zero(region uint16, off, size uint64) error {
	if !p.context.Use() {
		return &errs.ClosedError{PE: p.rank}
	}
	defer p.context.Unuse()
	if region == heap.RegionDevice {
		return p.fillDevice(off, size)
	}
	if g := p.world.gpu; g != nil {
		g.Forget(p.rank, off, size) // signals that were there
	}
	clear(bytesAt(p.world.table, p.rank, heap.RegionHeap, off, size))
	return nil
}

// allocator is that of a region's heap; nil: there is none.
func (p *PE) allocator(region uint16) *heap.Allocator {
	if int(region) < len(p.heaps) {
		return p.heaps[region]
	}
	return nil
}

// common finds the lowest block that is free at every living member.
func (t *Team) common(ctx context.Context, a *heap.Allocator, size, align int64) (uint64, error) {
	p := t.pe
	p.heapMu.Lock()
	mine := a.FreeExtents()
	none := &heap.NoMemoryError{Asked: size, Align: align, Free: a.Size() - a.InUse(), Largest: a.LargestFree()}
	p.heapMu.Unlock()
	var blob []byte
	for _, x := range mine {
		blob = binary.LittleEndian.AppendUint64(blob, x.Off)
		blob = binary.LittleEndian.AppendUint64(blob, uint64(x.Size))
	}
	ranks, all, err := p.gather(ctx, t.tag+"/free", t.members, blob)
	if err != nil {
		return 0, err
	}
	lists := make([][]heap.Extent, len(all))
	for i, b := range all {
		if lists[i], err = decodeExtents(b); err != nil {
			return 0, &errs.MismatchError{PE: ranks[i], Field: "free blocks", Want: "a list of extents", Have: err.Error()}
		}
	}
	off, ok := heap.CommonFit(lists, heap.BlockSize(size), align)
	if !ok {
		return 0, fmt.Errorf("in common with the team: %w", none)
	}
	return off, nil
}

// decodeExtents reads a list of free blocks: in order, and within 2^63.
func decodeExtents(b []byte) ([]heap.Extent, error) {
	if len(b)%16 != 0 {
		return nil, fmt.Errorf("%d B: %w", len(b), errs.ErrRange)
	}
	out := make([]heap.Extent, len(b)/16)
	end := uint64(0)
	for i := range out {
		off, size := binary.LittleEndian.Uint64(b[16*i:]), binary.LittleEndian.Uint64(b[16*i+8:])
		if off < end || off > math.MaxInt64 || size > math.MaxInt64-off {
			return nil, fmt.Errorf("block of %#x at %#x: %w", size, off, errs.ErrRange)
		}
		out[i] = heap.Extent{Off: off, Size: int64(size)}
		end = off + size
	}
	return out, nil
}

// quietAll drains the queued operations of all this PE's contexts.
func (p *PE) quietAll(ctx context.Context) error {
	for _, c := range p.contexts() {
		if c.parent != nil {
			continue
		}
		if err := c.drain(ctx); err != nil {
			return err
		}
	}
	return nil
}
