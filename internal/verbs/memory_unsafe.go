package verbs

import (
	"fmt"
	"unsafe"

	"goshmem/internal/dl"
	"goshmem/internal/errs"
)

// PD is a protection domain.
type PD struct {
	c *Context
	p unsafe.Pointer
}

// AllocPD makes a protection domain.
func (c *Context) AllocPD() (*PD, error) {
	r, errno := dl.Call(c.lib.allocPD, uintptr(unsafe.Pointer(c.head)))
	if r == 0 {
		return nil, &Error{Verb: "ibv_alloc_pd", Errno: errno, Detail: c.Name}
	}
	return &PD{c: c, p: pointer(r)}, nil
}

// Close frees the domain; everything in it is closed before.
func (p *PD) Close() error {
	r, _ := dl.Call(p.c.lib.deallocPD, uintptr(p.p))
	return fail("ibv_dealloc_pd", r, p.c.Name)
}

// MR is a registered memory region.
type MR struct {
	pd   *PD
	head *mrHead
}

// LKey names the region in local requests.
func (m *MR) LKey() uint32 { return m.head.lkey }

// RKey names it in a peer's.
func (m *MR) RKey() uint32 { return m.head.rkey }

// RegMR registers n bytes that are not of the Go heap and stay mapped until Close;
// peers name their first byte iova.
func (p *PD) RegMR(addr unsafe.Pointer, n uintptr, iova uint64, access Access) (*MR, error) {
	verb, fn := "ibv_reg_mr_iova2", p.c.lib.regMRIova2
	args := []uintptr{uintptr(p.p), uintptr(addr), n, uintptr(iova), uintptr(access)}
	if access&optionalAccess == 0 && iova == uint64(uintptr(addr)) { // as the header's macro does
		verb, fn = "ibv_reg_mr", p.c.lib.regMR
		args = []uintptr{uintptr(p.p), uintptr(addr), n, uintptr(access)}
	}
	r, errno := dl.Call(fn, args...)
	if r == 0 {
		return nil, &Error{Verb: verb, Errno: errno, Detail: fmt.Sprintf("%d B, access %#x", n, access)}
	}
	return &MR{pd: p, head: (*mrHead)(pointer(r))}, nil
}

// RegDmabufMR registers n bytes of a dma-buf from offset on.
func (p *PD) RegDmabufMR(fd int, offset, n, iova uint64, access Access) (*MR, error) {
	if p.c.lib.regDmabufMR == 0 {
		return nil, fmt.Errorf("verbs: %s has no ibv_reg_dmabuf_mr: %w", p.c.lib.lib.Name(), errs.ErrUnsupported)
	}
	r, errno := dl.Call(p.c.lib.regDmabufMR, uintptr(p.p), uintptr(offset), uintptr(n), uintptr(iova), uintptr(fd), uintptr(access))
	if r == 0 {
		return nil, &Error{Verb: "ibv_reg_dmabuf_mr", Errno: errno, Detail: fmt.Sprintf("%d B, access %#x", n, access)}
	}
	return &MR{pd: p, head: (*mrHead)(pointer(r))}, nil
}

// Close deregisters the region.
func (m *MR) Close() error {
	r, _ := dl.Call(m.pd.c.lib.deregMR, uintptr(unsafe.Pointer(m.head)))
	return fail("ibv_dereg_mr", r, "")
}
