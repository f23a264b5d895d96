package heap

import (
	"fmt"
	"sync"

	"goshmem/internal/errs"
)

// Pool allocates from one reservation of symmetric memory without asking other
// PEs. Every PE has the memory, but what a PE has allocated in it is known to
// that PE alone: it hands its references out by a message or a put. Safe for
// concurrent use.
type Pool struct {
	ref Ref

	mu    sync.Mutex
	alloc *Allocator // works on the region's offsets, so that alignment is true
}

// NewPool makes a pool of the size bytes at ref, which the caller has allocated
// and keeps until it is done with the pool. ref must be a multiple of MinAlign
// (ErrAlign), size at least that (ErrConfig).
func NewPool(ref Ref, size int64) (*Pool, error) {
	switch {
	case ref.OutOfRange():
		return nil, fmt.Errorf("heap: pool at %v: %w", ref, errs.ErrRange)
	case !ref.Valid():
		return nil, fmt.Errorf("heap: pool at %v: of no world: %w", ref, errs.ErrBadRef)
	case ref.off%MinAlign != 0:
		return nil, fmt.Errorf("heap: pool at %v: want a multiple of %d: %w", ref, MinAlign, errs.ErrAlign)
	}
	a, err := newAllocator(ref.off, size)
	if err != nil {
		return nil, err
	}
	return &Pool{ref: ref, alloc: a}, nil
}

// Alloc takes size bytes at a multiple of align: the errors are Allocator.Alloc's.
func (p *Pool) Alloc(size, align int64) (Ref, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	off, err := p.alloc.Alloc(size, align)
	if err != nil {
		return Ref{}, err
	}
	return Ref{off: off, key: p.ref.key}, nil
}

// Free gives back what Alloc returned. A reference freed already, or of another
// pool, region or world, is ErrBadRef; one out of range is ErrRange.
func (p *Pool) Free(ref Ref) error {
	if ref.OutOfRange() {
		return fmt.Errorf("heap: free of %v: %w", ref, errs.ErrRange)
	}
	if ref.Key() != p.ref.Key() {
		return fmt.Errorf("heap: free of %v: not of this pool: %w", ref, errs.ErrBadRef)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.alloc.Free(ref.off)
}

// Ref is the start of the reservation.
func (p *Pool) Ref() Ref { return p.ref }

// Size is the number of bytes there are, used or free.
func (p *Pool) Size() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.alloc.Size()
}

// InUse is the number of bytes allocated.
func (p *Pool) InUse() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.alloc.InUse()
}

// LargestFree is the size of the largest free block.
func (p *Pool) LargestFree() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.alloc.LargestFree()
}
