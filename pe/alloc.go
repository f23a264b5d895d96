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
// of two up to 2 MiB; 0: 64), at the same offset on every PE. Collective: every PE calls it
// with the same arguments; if they differ all get ErrMismatch, if one has no
// room all get ErrNoMemory, and nothing is allocated. The content is whatever
// was there.
func (p *PE) AllocMem(ctx context.Context, size, align int64) (heap.Ref, error) {
	return p.alloc(ctx, "pe: alloc", size, align, false)
}

// CallocMem is AllocMem of zeroed memory: zero on every PE when any of them
// returns.
func (p *PE) CallocMem(ctx context.Context, size, align int64) (heap.Ref, error) {
	return p.alloc(ctx, "pe: calloc", size, align, true)
}

// AllocSignals allocates n signal objects, zeroed, one cache line each.
// Collective.
func (p *PE) AllocSignals(ctx context.Context, n int) (heap.Signals, error) {
	if n < 0 || int64(n) > math.MaxInt64/heap.SignalSize {
		return heap.Signals{}, &errs.OpError{Op: "pe: alloc signals", PE: -1, Size: int64(n), Err: errs.ErrRange}
	}
	ref, err := p.alloc(ctx, "pe: alloc signals", int64(n)*heap.SignalSize, heap.SignalSize, true)
	if err != nil {
		return heap.Signals{}, err
	}
	return heap.MakeSignals(ref, n), nil
}

// Alloc allocates an array of n elements. Collective, like AllocMem.
func Alloc[T heap.Elem](ctx context.Context, p *PE, n int) (heap.Array[T], error) {
	return allocArray[T](ctx, p, "pe: alloc", n, false)
}

// Calloc is Alloc of zeroed memory.
func Calloc[T heap.Elem](ctx context.Context, p *PE, n int) (heap.Array[T], error) {
	return allocArray[T](ctx, p, "pe: calloc", n, true)
}

func allocArray[T heap.Elem](ctx context.Context, p *PE, op string, n int, zero bool) (heap.Array[T], error) {
	size := heap.ElemSize[T]()
	if n < 0 || int64(n) > math.MaxInt64/size {
		return heap.Array[T]{}, &errs.OpError{Op: op, PE: -1, Size: -1, Err: fmt.Errorf("%d elements of %d B: %w", n, size, errs.ErrRange)}
	}
	ref, err := p.alloc(ctx, op, int64(n)*size, 0, zero)
	if err != nil {
		return heap.Array[T]{}, err
	}
	return ArrayAt[T](p, ref, n)
}

// ArrayAt views n elements of an allocation as an array of this PE.
func ArrayAt[T heap.Elem](p *PE, ref heap.Ref, n int) (heap.Array[T], error) {
	size := uint64(heap.ElemSize[T]())
	if n < 0 || uint64(n) > math.MaxInt64/size {
		return heap.Array[T]{}, p.errAt("pe: array", ref, int64(n), errs.ErrRange)
	}
	if err := p.world.table.Check(p.rank, ref, uint64(n)*size); err != nil {
		return heap.Array[T]{}, p.errAt("pe: array", ref, int64(uint64(n)*size), err)
	}
	if ref.Offset()%min(size, 8) != 0 {
		return heap.Array[T]{}, p.errAt("pe: array", ref, int64(uint64(n)*size), errs.ErrAlign)
	}
	return heap.MakeArray[T](ref, n, p.world.table.Region(p.rank, ref.Region()).At(ref.Offset())), nil
}

// Free releases an allocation, by the reference that the allocation returned:
// it quiets this PE's contexts, waits for everybody, then releases. Collective.
// A double free or a foreign reference is ErrBadRef, and nothing is freed.
func (p *PE) Free(ctx context.Context, ref heap.Ref) error {
	const op = "pe: free"
	p.heapMu.Lock()
	err := p.table().Check(p.rank, ref, 0)
	if err == nil && ref.Region() != heap.RegionHeap {
		err = errs.ErrBadRef
	}
	if err == nil {
		if _, ok := p.heap.SizeOf(ref.Offset()); !ok {
			err = errs.ErrBadRef
		}
	}
	p.heapMu.Unlock()
	if err == nil {
		if qerr := p.quietAll(ctx); qerr != nil {
			return p.errAt(op, ref, -1, qerr)
		}
	}
	if _, e := p.agree(ctx, request{op: 'f', size: int64(ref.Offset()), err: err}); e != nil {
		return p.errAt(op, ref, -1, e)
	}
	if err := p.reap(); err != nil {
		return p.errAt(op, ref, -1, err)
	}
	p.heapMu.Lock()
	defer p.heapMu.Unlock()
	if err := p.heap.Free(ref.Offset()); err != nil {
		return p.errAt(op, ref, -1, err)
	}
	return nil
}

func (p *PE) table() *heap.Table { return p.world.table }

func (p *PE) alloc(ctx context.Context, op string, size, align int64, zero bool) (heap.Ref, error) {
	var off uint64
	err := errs.ErrAlign
	if align <= maxAlign {
		p.heapMu.Lock()
		off, err = p.heap.Alloc(size, align)
		p.heapMu.Unlock()
	}
	ok := err == nil
	if ok && zero {
		// Before the exchange: when any PE returns, all have zeroed theirs.
		clear(bytesAtHeap(p.world.table, p.rank, off, uint64(size)))
	}
	if _, e := p.agree(ctx, request{op: 'a', size: size, align: align, off: off, err: err}); e != nil {
		if ok {
			p.heapMu.Lock()
			_ = p.heap.Free(off) // just allocated: it is there
			p.heapMu.Unlock()
		}
		return heap.Ref{}, &errs.OpError{Op: op, PE: -1, Size: max(size, -1), Err: e}
	}
	return heap.MakeRef(p.world.id, heap.RegionHeap, off), nil
}

// request is what the PEs compare in a collective call on the heap.
type request struct {
	op          byte
	size, align int64
	off         uint64
	err         error
}

// agree exchanges a request and decides alike on every PE: an own error first,
// then disagreement, then another's error.
func (p *PE) agree(ctx context.Context, r request) ([][]byte, error) {
	blob := []byte{r.op, errCode(r.err)}
	blob = binary.LittleEndian.AppendUint64(blob, uint64(r.size))
	blob = binary.LittleEndian.AppendUint64(blob, uint64(r.align))
	blob = binary.LittleEndian.AppendUint64(blob, r.off)
	ranks, all, err := p.gather(ctx, "heap", p.team.members, blob)
	if err != nil {
		return nil, err
	}
	if r.err != nil {
		return nil, r.err
	}
	for i, b := range all {
		if len(b) != len(blob) {
			return nil, &errs.MismatchError{PE: ranks[i], Field: "heap request", Want: fmt.Sprint(len(blob), " B"), Have: fmt.Sprint(len(b), " B")}
		}
		if b[0] != r.op {
			return nil, &errs.MismatchError{PE: ranks[i], Field: "collective call", Want: opName(r.op), Have: opName(b[0])}
		}
		for j, f := range [...]string{"size", "alignment"} {
			mine, theirs := blob[2+8*j:10+8*j], b[2+8*j:10+8*j]
			if string(mine) != string(theirs) {
				if r.op == 'f' {
					f = "offset"
				}
				return nil, &errs.MismatchError{PE: ranks[i], Field: f,
					Want: fmt.Sprint(binary.LittleEndian.Uint64(mine)), Have: fmt.Sprint(binary.LittleEndian.Uint64(theirs))}
			}
		}
	}
	for i, b := range all {
		if b[1] != 0 {
			return nil, fmt.Errorf("at pe %d: %w", ranks[i], codeErr(b[1]))
		}
	}
	for i, b := range all {
		if theirs := binary.LittleEndian.Uint64(b[18:]); theirs != r.off {
			return nil, &errs.MismatchError{PE: ranks[i], Field: "offset", Want: fmt.Sprintf("%#x", r.off), Have: fmt.Sprintf("%#x", theirs)}
		}
	}
	return all, nil
}

func opName(op byte) string {
	switch op {
	case 'a':
		return "alloc"
	case 'f':
		return "free"
	}
	return fmt.Sprintf("op %d", op)
}

var codes = [...]error{nil, errs.ErrNoMemory, errs.ErrBadRef, errs.ErrRange, errs.ErrAlign, errs.ErrConfig, errs.ErrClosed}

// errCode is an error's number on the wire: what another PE needs to know of it.
func errCode(err error) byte {
	if err == nil {
		return 0
	}
	for i, e := range codes {
		if i > 0 && errors.Is(err, e) {
			return byte(i)
		}
	}
	return byte(len(codes) - 1)
}

func codeErr(c byte) error {
	if int(c) < len(codes) && c != 0 {
		return codes[c]
	}
	return errs.ErrClosed
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
