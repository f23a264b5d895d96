package moe

import (
	"errors"
	"time"
	"unsafe"

	"goshmem/moe/internal/kernels"
	"goshmem/pe"
)

// uploader takes device memory for an engine and puts words there. The first error
// stays and is finish's.
type uploader struct {
	e      *DeviceEngine
	stream uintptr
	pins   []unsafe.Pointer
	err    error
}

func (u *uploader) alloc(n int64) uint64 {
	if u.err != nil {
		return 0
	}
	addr, err := u.e.run.Alloc(max(n, 8))
	if u.err = err; err == nil {
		u.e.private = append(u.e.private, addr)
	}
	return addr
}

func (u *uploader) words64(v []uint64) uint64 {
	at := u.alloc(int64(8 * len(v)))
	u.put(at, v)
	return at
}

func (u *uploader) words32(v []int32) uint64 {
	w := make([]uint64, (len(v)+1)/2)
	copy(unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(w))), 2*len(w)), v)
	return u.words64(w)
}

func slotWords(s *kernels.Slot) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(s)), unsafe.Sizeof(*s)/8)
}

func (u *uploader) put(at uint64, v []uint64) {
	if u.err != nil {
		return
	}
	r, n := u.e.run, int64(8*len(v))
	p, addr, err := r.Pinned(n + 8)
	if u.err = err; err != nil {
		return
	}
	u.pins = append(u.pins, p)
	copy(unsafe.Slice((*uint64)(p), len(v)), v)
	if u.err = r.Enter(); u.err == nil {
		u.err = r.Copy(at, addr, n, u.stream)
		r.Leave()
	}
}

// finish runs every kernel once with nothing to do, so that none is loaded while
// another waits, waits for the uploads, and frees what they came from unless the device
// may still read there.
func (u *uploader) finish() error {
	u.zero()
	u.warm()
	u.wait()
	if u.err != nil {
		return u.err
	}
	for _, p := range u.pins {
		u.err = errors.Join(u.err, u.e.run.FreePinned(p))
	}
	u.pins = nil
	return u.err
}

func (u *uploader) wait() {
	r := u.e.run
	ev, err := r.NewEvent(false)
	if err != nil {
		u.err = errors.Join(u.err, err)
		return
	}
	defer func() { u.err = errors.Join(u.err, r.CloseEvent(ev)) }()
	if err = r.Enter(); err == nil {
		err = r.Record(ev, u.stream)
		r.Leave()
	}
	for end := time.Now().Add(u.e.opt.Deadline); err == nil; time.Sleep(100 * time.Microsecond) {
		if err = r.Query(ev); err == nil {
			return
		}
		if errors.Is(err, pe.ErrWouldBlock) && time.Now().Before(end) {
			err = nil
		}
	}
	u.err = errors.Join(u.err, err)
}

// zero clears the flags and heads, which is all that has to be zero.
func (u *uploader) zero() {
	e := u.e
	for i := range e.layout.Ctx.Slots {
		at := e.arena + uint64(i*e.layout.Slot)
		u.launch(kernels.Fill, kernels.Threads, 0, u.stream, at, uint64(e.layout.Ctx.Source/4), 0)
	}
}

func (u *uploader) launch(k kernels.Kernel, threads, shared int64, stream uintptr, params ...uint64) {
	r := u.e.run
	if u.err != nil {
		return
	}
	if u.err = r.Enter(); u.err == nil {
		u.err = r.Launch(k, 1, uint32(threads), uint32(shared), stream, params...)
		r.Leave()
	}
}

// warm launches every kernel with a slot that says broken, and uses the streams: the
// first use of one may wait for the device.
func (u *uploader) warm() {
	e := u.e
	broken := kernels.Slot{Ctx: e.layout.Ctx}
	broken.State[kernels.StateBroken] = 1
	slot := u.words64(slotWords(&broken))
	for k := range kernels.Kernels {
		var params [kernels.MaxParams]uint64
		if k < kernels.Fill {
			params[0] = slot
		}
		shared, threads := int64(kernels.SharedBase), int64(kernels.Threads)
		switch k {
		case kernels.Dispatch:
			shared = int64(kernels.DispatchShared(e.stage, e.stages))
		case kernels.Await, kernels.Seen, kernels.Sent:
			threads = kernels.WaitThreads
		}
		u.launch(k, threads, shared, u.stream, params[:k.Params()]...)
	}
	for k, on := range e.copies {
		u.after(on, e.packed, u.stream)
		u.launch(kernels.Sent, kernels.WaitThreads, kernels.SharedBase, on, slot, 0, 0, 0)
		u.after(u.stream, e.copied[k], on)
	}
}

// after makes a stream wait for what another has been given.
func (u *uploader) after(stream, event, other uintptr) {
	r := u.e.run
	if u.err != nil {
		return
	}
	if u.err = r.Enter(); u.err == nil {
		u.err = errors.Join(r.Record(event, other), r.WaitEvent(stream, event))
		r.Leave()
	}
}
