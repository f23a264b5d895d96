package rma

import (
	"fmt"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/pe"
)

// Local is the local side of an operation: Go memory, symmetric memory of this PE of
// any kind, or any device memory of this process.
type Local struct {
	bytes  []byte
	ref    heap.Ref
	addr   uint64
	n      uint64
	device bool // addr is one of device memory
	bad    bool // a negative size
}

// Bytes is Go memory.
func Bytes(b []byte) Local { return Local{bytes: b, n: uint64(len(b))} }

// At is n bytes of this PE's own copy of symmetric memory.
func At(ref heap.Ref, n int64) Local { return Local{ref: ref, n: uint64(n), bad: n < 0} }

// DeviceMemory is n bytes of device memory at an address of this process's device, as
// any library allocates it. The caller vouches for it, and has synchronised what
// writes it.
func DeviceMemory(addr uint64, n int64) Local {
	return Local{addr: addr, n: uint64(n), device: true, bad: n < 0}
}

// PutLocal is PutMem from any memory.
func PutLocal(c *pe.Context, dst heap.Ref, src Local, target int) error {
	_, err := putLocal(c, "rma: put", dst, src, nil, target, blocking)
	return err
}

// PutLocalNBI is PutMemNBI from any memory.
func PutLocalNBI(c *pe.Context, dst heap.Ref, src Local, target int) (Ticket, error) {
	return putLocal(c, "rma: put nbi", dst, src, nil, target, nonblocking)
}

// TryPutLocalNBI is PutLocalNBI that returns ErrWouldBlock where that would wait for
// room.
func TryPutLocalNBI(c *pe.Context, dst heap.Ref, src Local, target int) (Ticket, error) {
	return putLocal(c, "rma: put nbi", dst, src, nil, target, try)
}

// change is what a put does to a signal behind it.
type change struct {
	sig heap.Ref
	op  SignalOp
	v   uint64
}

// PutLocalSignal is PutMemSignal from any memory.
func PutLocalSignal(c *pe.Context, dst heap.Ref, src Local, sig heap.Signal, op SignalOp, v uint64, target int) error {
	_, err := putLocal(c, "rma: put signal", dst, src, &change{sig.Ref(), op, v}, target, blocking)
	return err
}

// PutLocalSignalNBI is PutMemSignalNBI from any memory.
func PutLocalSignalNBI(c *pe.Context, dst heap.Ref, src Local, sig heap.Signal, op SignalOp, v uint64, target int) (Ticket, error) {
	return putLocal(c, "rma: put signal nbi", dst, src, &change{sig.Ref(), op, v}, target, nonblocking)
}

// TryPutLocalSignalNBI is PutLocalSignalNBI that returns ErrWouldBlock where that
// would wait for room.
func TryPutLocalSignalNBI(c *pe.Context, dst heap.Ref, src Local, sig heap.Signal, op SignalOp, v uint64, target int) (Ticket, error) {
	return putLocal(c, "rma: put signal nbi", dst, src, &change{sig.Ref(), op, v}, target, try)
}

// GetLocal is GetMem into any memory.
func GetLocal(c *pe.Context, dst Local, src heap.Ref, target int) error {
	_, err := getLocal(c, "rma: get", dst, src, target, blocking)
	return err
}

// GetLocalNBI is GetMemNBI into any memory.
func GetLocalNBI(c *pe.Context, dst Local, src heap.Ref, target int) (Ticket, error) {
	return getLocal(c, "rma: get nbi", dst, src, target, nonblocking)
}

// asBytes is the local side as memory of the CPU, where it is; it is checked.
func (x *Local) asBytes(c *pe.Context) ([]byte, bool, error) {
	switch {
	case x.bad:
		return nil, false, errs.ErrRange
	case x.device:
		return nil, false, nil
	case !x.ref.Valid() && !x.ref.OutOfRange():
		return x.bytes, true, nil
	}
	if err := c.CheckLocal(x.ref, x.n); err != nil {
		return nil, false, fmt.Errorf("local side: %w", err)
	}
	if x.ref.Region() == heap.RegionDevice {
		return nil, false, nil
	}
	b, err := c.PE().LocalBytes(x.ref, int(x.n))
	return b, err == nil, err
}

// place puts the local side into a descriptor and returns its Go memory. It is the
// source of a put, the destination of a get.
func (x *Local) place(d *channel.Desc, region *uint16, off *uint64) unsafe.Pointer {
	switch {
	case x.device:
		d.Flags |= channel.FlagLocalDevice
		*off = x.addr
	case x.ref.Valid():
		*region, *off = x.ref.Region(), x.ref.Offset()
	default:
		d.Flags |= channel.FlagLocalPtr
		return unsafe.Pointer(unsafe.SliceData(x.bytes))
	}
	return nil
}

// apart refuses local and remote sides of device memory that overlap.
func (x *Local) apart(c *pe.Context, l *channel.Lane, remote heap.Ref) error {
	t := l.Config().Table
	far := t.Region(l.Config().Peer, remote.Region()).Addr
	near := x.addr
	if !x.device {
		near = t.Region(l.Config().Owner, x.ref.Region()).Addr
		if near != 0 {
			near += x.ref.Offset()
		}
	}
	if far == 0 || near == 0 || x.n == 0 || !x.device && !x.ref.Valid() {
		return nil
	}
	far += remote.Offset()
	if far != near && (far-near < x.n || near-far < x.n) {
		return errs.ErrAlias
	}
	return nil
}

// ready checks what putLocal and getLocal have in common.
func (x *Local) ready(c *pe.Context, remote heap.Ref, target int) (*channel.Lane, error) {
	l, err := lane(c, target)
	if err != nil {
		return nil, err
	}
	if err := l.Check(remote, x.n); err != nil {
		return nil, err
	}
	if x.device || x.ref.Region() == heap.RegionDevice {
		if err := l.Takes(heap.KindCUDA); err != nil {
			return nil, err
		}
	}
	return l, x.apart(c, l, remote)
}

func putLocal(c *pe.Context, op string, dst heap.Ref, src Local, ch *change, target int, m mode) (Ticket, error) {
	fail := func(err error) (Ticket, error) {
		return Ticket{}, opErr(c, op, target, dst, int64(src.n), err)
	}
	if c == nil {
		return fail(errs.ErrConfig)
	}
	b, host, err := src.asBytes(c)
	switch {
	case err != nil:
		return fail(err)
	case host && dst.Region() != heap.RegionDevice && ch == nil && m == blocking:
		return Ticket{}, PutMem(c, dst, b, target)
	case host && dst.Region() != heap.RegionDevice && ch == nil:
		return putNBI(c, dst, b, target, m)
	case host && dst.Region() != heap.RegionDevice:
		return putSignal(c, op, dst, b, ch.sig, ch.op, ch.v, target, m)
	}
	l, err := src.ready(c, dst, target)
	if err != nil {
		return fail(err)
	}
	d := channel.Desc{Op: channel.OpPut, DstRegion: dst.Region(), DstOff: dst.Offset(), Size: src.n}
	if ch != nil {
		if err := checkSignal(l, ch.sig, ch.op); err != nil {
			return fail(err)
		}
		d.SigOp, d.SigOff, d.SigVal = channel.SigOp(ch.op), ch.sig.Offset(), ch.v
		if ch.sig.Region() == heap.RegionRuntime {
			d.Flags |= channel.FlagSigRuntime
		}
	}
	t, err := queue(c, l, &d, src.place(&d, &d.SrcRegion, &d.SrcOff), m)
	if err != nil {
		return fail(err)
	}
	return t, nil
}

func getLocal(c *pe.Context, op string, dst Local, src heap.Ref, target int, m mode) (Ticket, error) {
	fail := func(err error) (Ticket, error) {
		return Ticket{}, opErr(c, op, target, src, int64(dst.n), err)
	}
	if c == nil {
		return fail(errs.ErrConfig)
	}
	b, host, err := dst.asBytes(c)
	switch {
	case err != nil:
		return fail(err)
	case host && src.Region() != heap.RegionDevice && m == blocking:
		return Ticket{}, GetMem(c, b, src, target)
	case host && src.Region() != heap.RegionDevice:
		return GetMemNBI(c, b, src, target)
	}
	l, err := dst.ready(c, src, target)
	if err != nil {
		return fail(err)
	}
	d := channel.Desc{Op: channel.OpGet, SrcRegion: src.Region(), SrcOff: src.Offset(), Size: dst.n}
	t, err := queue(c, l, &d, dst.place(&d, &d.DstRegion, &d.DstOff), m)
	if err != nil {
		return fail(err)
	}
	return t, nil
}
