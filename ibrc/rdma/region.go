package rdma

import (
	"fmt"
	"slices"
	"unsafe"

	"goshmem/heap"
	"goshmem/ibrc"
	"goshmem/internal/errs"
	"goshmem/internal/verbs"
)

// access is a region's and a queue pair's: never relaxed ordering, so that a
// signal is seen behind its data.
const access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// region is a registered region.
type region struct {
	p        *Provider
	mr       *verbs.MR // nil: a buffer that the device did not take
	from, to uintptr
	buffer   bool
}

// maxBuffers is how many buffers are registered at a time; more are staged.
const maxBuffers = 64

// RegisterMemory registers a region of host memory that is not Go's.
func (p *Provider) RegisterMemory(_ int, mem heap.Memory) (ibrc.MR, error) {
	if mem.Kind != heap.KindHost || mem.Base == nil || mem.Size == 0 {
		return nil, fmt.Errorf("rdma: register %d B of %v memory: %w", mem.Size, mem.Kind, errs.ErrKind)
	}
	at := uintptr(mem.Base)
	mr, err := p.pd.RegMR(mem.Base, uintptr(mem.Size), uint64(at), access)
	if err != nil {
		return nil, err
	}
	r := &region{p: p, mr: mr, from: at, to: at + uintptr(mem.Size)}
	p.regions = append(p.regions, r)
	return r, nil
}

func (r *region) LKey() uint32 { return r.mr.LKey() }

func (r *region) Key() ibrc.RemoteKey {
	return ibrc.RemoteKey{Addr: uint64(r.from), Size: uint64(r.to - r.from), RKey: r.mr.RKey()}
}

// Deregister leaves nothing of the region; requests on it are complete.
func (r *region) Deregister() error {
	r.p.regions = slices.DeleteFunc(r.p.regions, func(x *region) bool { return x == r })
	return r.mr.Close()
}

// lkey finds what n bytes at a local address are named by; ok is false if they
// are not registered.
func (p *Provider) lkey(at unsafe.Pointer, n uint32) (key uint32, ok bool) {
	a := uintptr(at)
	for _, r := range p.regions {
		if a >= r.from && a+uintptr(n) <= r.to {
			if r.mr == nil {
				return 0, false
			}
			return r.mr.LKey(), true
		}
	}
	return p.adopt(a, n)
}

// adopt registers the buffer that n bytes lie in, if they lie in one.
func (p *Provider) adopt(a uintptr, n uint32) (key uint32, ok bool) {
	if p.env.Buffer == nil {
		return 0, false
	}
	base, size := p.env.Buffer(a)
	from := uintptr(base)
	if base == nil || a+uintptr(n) > from+uintptr(size) || p.buffers == maxBuffers {
		return 0, false
	}
	mr, err := p.pd.RegMR(base, uintptr(size), uint64(from), verbs.AccessLocalWrite)
	if err != nil {
		p.env.Log.Warn("rdma: a buffer is not registered, its transfers are copied", "bytes", size, "err", err)
	}
	p.buffers++
	p.regions = append(p.regions, &region{p: p, mr: mr, from: from, to: from + uintptr(size), buffer: true})
	if err != nil {
		return 0, false
	}
	return mr.LKey(), true
}

// Forget deregisters the buffer at base.
func (p *Provider) Forget(base unsafe.Pointer) error {
	for i, r := range p.regions {
		if !r.buffer || r.from != uintptr(base) {
			continue
		}
		if r.mr != nil {
			if err := r.mr.Close(); err != nil {
				return err
			}
		}
		p.buffers--
		p.regions = slices.Delete(p.regions, i, i+1)
		return nil
	}
	return nil
}
