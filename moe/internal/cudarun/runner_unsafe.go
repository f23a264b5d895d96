// Package cudarun runs package kernels on a GPU, by the primary context of the
// device, so that addresses are those of every other library in the process.
package cudarun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"goshmem/internal/cuda"
	"goshmem/internal/errs"
	"goshmem/moe/internal/kernels"
)

// Runner is a GPU. Any number of goroutines may use it.
type Runner struct {
	lib    *cuda.Lib
	dev    cuda.Device
	ctx    cuda.Ctx
	name   string
	sms    int
	module cuda.Module
	fn     [kernels.Kernels]cuda.Function
	aux    cuda.Stream
	params sync.Pool

	mu         sync.Mutex
	registered map[unsafe.Pointer]bool // that Unregister is to undo
}

var _ kernels.Runner = (*Runner)(nil)

// Load is the driver; ErrUnsupported where there is none, or no GPU.
func Load() (*cuda.Lib, error) {
	connections()
	return cuda.Load()
}

// Open makes GPU number i ready. ErrUnsupported for one that is older than the
// kernels' code.
func Open(lib *cuda.Lib, i int) (*Runner, error) {
	dev, err := lib.DeviceGet(i)
	if err != nil {
		return nil, err
	}
	r := &Runner{lib: lib, dev: dev, params: sync.Pool{New: func() any { return new(cuda.Params) }}, registered: map[unsafe.Pointer]bool{}}
	major, err := lib.DeviceAttribute(dev, cuda.ComputeMajor)
	if err != nil {
		return nil, err
	}
	if major < 9 {
		return nil, fmt.Errorf("moe: GPU %d has compute capability %d.x, at least 9.0 is needed: %w", i, major, errs.ErrUnsupported)
	}
	if r.sms, err = lib.DeviceAttribute(dev, cuda.MultiprocessorCount); err != nil {
		return nil, err
	}
	id, err := lib.DeviceUUID(dev)
	if err != nil {
		return nil, err
	}
	r.name = fmt.Sprintf("%x", id)
	if r.ctx, err = lib.PrimaryCtxRetain(dev); err != nil {
		return nil, err
	}
	if err := r.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("moe: kernels on GPU %d: %w", i, err), r.Close())
	}
	return r, nil
}

func (r *Runner) load() error {
	if err := r.Enter(); err != nil {
		return err
	}
	defer r.Leave()
	var err error
	if r.module, err = r.lib.ModuleLoad(kernels.PTX); err != nil {
		return err
	}
	for k := range r.fn {
		if r.fn[k], err = r.lib.ModuleFunction(r.module, kernels.Kernel(k).String()); err != nil {
			return fmt.Errorf("%v: %w", kernels.Kernel(k), err)
		}
	}
	for _, k := range []kernels.Kernel{kernels.Dispatch, kernels.Combine} {
		if err := r.lib.FuncSetSharedMemory(r.fn[k], kernels.SharedMost); err != nil {
			return err
		}
	}
	r.aux, err = r.lib.StreamCreate(0)
	return err
}

// Close gives the device up. Nothing may be running on it.
func (r *Runner) Close() error {
	var all []error
	if err := r.Enter(); err == nil {
		if r.aux != 0 {
			all = append(all, r.lib.StreamDestroy(r.aux))
		}
		if r.module != 0 {
			all = append(all, r.lib.ModuleUnload(r.module))
		}
		all = append(all, r.lib.CtxSetCurrent(0))
		r.Leave()
	}
	return errors.Join(append(all, r.lib.PrimaryCtxRelease(r.dev))...)
}

// Lib is the driver.
func (r *Runner) Lib() *cuda.Lib { return r.lib }

// Enter makes the GPU's context current until Leave.
func (r *Runner) Enter() error {
	runtime.LockOSThread()
	old, err := r.lib.CtxGetCurrent()
	if err == nil && old != r.ctx {
		err = r.lib.CtxSetCurrent(r.ctx)
	}
	if err != nil {
		runtime.UnlockOSThread()
	}
	return err
}

// Leave lets the thread go.
func (r *Runner) Leave() { runtime.UnlockOSThread() }

// Name is the GPU's UUID.
func (r *Runner) Name() string { return r.name }

// Multiprocessors is the number of multiprocessors.
func (r *Runner) Multiprocessors() int { return r.sms }

// Bulk is true: Open takes nothing older.
func (r *Runner) Bulk() bool { return true }

// in runs f with the context current.
func (r *Runner) in(f func() error) error {
	if err := r.Enter(); err != nil {
		return err
	}
	defer r.Leave()
	return f()
}

// Alloc is zeroed device memory.
func (r *Runner) Alloc(n int64) (addr uint64, err error) {
	err = r.in(func() error {
		p, err := r.lib.MemAlloc(uint64(max(n, 1)))
		if err != nil {
			return fmt.Errorf("moe: %d B of device memory: %w", n, err)
		}
		addr = uint64(p)
		if err := r.lib.MemsetD8Async(p, 0, uint64(max(n, 1)), r.aux); err != nil {
			return err
		}
		return r.lib.StreamSynchronize(r.aux)
	})
	return addr, err
}

// Free gives memory back.
func (r *Runner) Free(addr uint64) error {
	return r.in(func() error { return r.lib.MemFree(cuda.Ptr(addr)) })
}

// Pinned is zeroed host memory.
func (r *Runner) Pinned(n int64) (p unsafe.Pointer, addr uint64, err error) {
	err = r.in(func() error {
		if p, err = r.lib.MemHostAlloc(uint64(n)); err != nil {
			return fmt.Errorf("moe: %d B of pinned memory: %w", n, err)
		}
		clear(unsafe.Slice((*byte)(p), n))
		d, err := r.lib.MemHostGetDevicePointer(p)
		addr = uint64(d)
		return err
	})
	return p, addr, err
}

// FreePinned gives it back.
func (r *Runner) FreePinned(p unsafe.Pointer) error {
	return r.in(func() error { return r.lib.MemFreeHost(p) })
}

// Register pins host memory. What is pinned already, and not known to be, was so by
// somebody who has given the memory up since: the device would see what is there no more.
func (r *Runner) Register(p unsafe.Pointer, n int64, known bool) (addr uint64, err error) {
	err = r.in(func() error {
		err := r.lib.MemHostRegister(p, uint64(n))
		if err != nil && !(known && cuda.Code(err) == cuda.AlreadyRegistered) {
			return fmt.Errorf("moe: pin %d B of the symmetric heap: %w", n, err)
		}
		if err == nil {
			r.mu.Lock()
			r.registered[p] = true
			r.mu.Unlock()
		}
		d, err := r.lib.MemHostGetDevicePointer(p)
		addr = uint64(d)
		return err
	})
	return addr, err
}

// Unregister unpins it.
func (r *Runner) Unregister(p unsafe.Pointer) error {
	r.mu.Lock()
	mine := r.registered[p]
	delete(r.registered, p)
	r.mu.Unlock()
	if !mine {
		return nil
	}
	return r.in(func() error { return r.lib.MemHostUnregister(p) })
}

// name of an allocation: process, context, address, IPC handle.
const nameBytes = 24 + len(cuda.IpcHandle{})

// Export names an allocation. Where there are no IPC handles, to this process only.
func (r *Runner) Export(addr uint64) (name []byte, err error) {
	err = r.in(func() error {
		name = binary.LittleEndian.AppendUint64(nil, uint64(os.Getpid()))
		name = binary.LittleEndian.AppendUint64(name, uint64(r.ctx))
		name = binary.LittleEndian.AppendUint64(name, addr)
		if h, err := r.lib.IpcGetMemHandle(cuda.Ptr(addr)); err == nil {
			name = append(name, h[:]...)
		}
		return nil
	})
	return name, err
}

// Import reaches an allocation: of this process by its address, of another by its
// handle.
func (r *Runner) Import(name []byte) (addr uint64, err error) {
	if len(name) < 24 {
		return 0, fmt.Errorf("moe: name of device memory of %d B: %w", len(name), errs.ErrMismatch)
	}
	le := binary.LittleEndian
	pid, ctx, at := le.Uint64(name), cuda.Ctx(le.Uint64(name[8:])), le.Uint64(name[16:])
	err = r.in(func() error {
		if pid == uint64(os.Getpid()) {
			addr = at
			if ctx == r.ctx {
				return nil
			}
			err := r.lib.CtxEnablePeerAccess(ctx)
			if cuda.Code(err) == cuda.PeerAlreadyEnabled {
				return nil
			}
			return err
		}
		if len(name) != nameBytes {
			return fmt.Errorf("moe: device memory of another process without a handle: %w", errs.ErrUnsupported)
		}
		p, err := r.lib.IpcOpenMemHandle(cuda.IpcHandle(name[24:]))
		addr = uint64(p)
		return err
	})
	return addr, err
}

// Forget undoes an Import of another process's memory.
func (r *Runner) Forget(addr uint64) error {
	return r.in(func() error { return r.lib.IpcCloseMemHandle(cuda.Ptr(addr)) })
}

// NewStream makes a stream that waits for no other.
func (r *Runner) NewStream() (s uintptr, err error) {
	err = r.in(func() error {
		x, err := r.lib.StreamCreate(0)
		s = uintptr(x)
		return err
	})
	return s, err
}

// CloseStream ends it.
func (r *Runner) CloseStream(s uintptr) error {
	return r.in(func() error { return r.lib.StreamDestroy(cuda.Stream(s)) })
}

// NewEvent makes an event.
func (r *Runner) NewEvent(timing bool) (e uintptr, err error) {
	err = r.in(func() error {
		x, err := r.lib.EventCreate(timing)
		e = uintptr(x)
		return err
	})
	return e, err
}

// CloseEvent ends it.
func (r *Runner) CloseEvent(e uintptr) error {
	return r.in(func() error { return r.lib.EventDestroy(cuda.Event(e)) })
}

// Launch enqueues a kernel.
func (r *Runner) Launch(k kernels.Kernel, blocks, threads, shared uint32, stream uintptr, params ...uint64) error {
	room := r.params.Get().(*cuda.Params)
	defer r.params.Put(room)
	if err := r.lib.LaunchShared(r.fn[k], blocks, threads, shared, cuda.Stream(stream), room, params...); err != nil {
		return fmt.Errorf("%v: %w", k, err)
	}
	return nil
}

// Copy enqueues a copy.
func (r *Runner) Copy(dst, src uint64, n int64, stream uintptr) error {
	if n == 0 {
		return nil
	}
	return r.lib.MemcpyAsync(cuda.Ptr(dst), cuda.Ptr(src), uint64(n), cuda.Stream(stream))
}

// Record marks a stream.
func (r *Runner) Record(event, stream uintptr) error {
	return r.lib.EventRecord(cuda.Event(event), cuda.Stream(stream))
}

// WaitEvent makes a stream wait for a mark.
func (r *Runner) WaitEvent(stream, event uintptr) error {
	return r.lib.StreamWaitEvent(cuda.Stream(stream), cuda.Event(event))
}

// Query asks whether a mark was passed.
func (r *Runner) Query(event uintptr) error {
	return r.in(func() error { return r.lib.EventQuery(cuda.Event(event)) })
}

// Elapsed is the time between two marks in seconds.
func (r *Runner) Elapsed(from, to uintptr) (float64, error) {
	ms := float32(0)
	err := r.in(func() error {
		var err error
		ms, err = r.lib.EventElapsed(cuda.Event(from), cuda.Event(to))
		return err
	})
	return float64(ms) / 1e3, err
}

// Capturing reports whether a stream is being captured.
func (r *Runner) Capturing(stream uintptr) (bool, error) {
	return r.lib.StreamIsCapturing(cuda.Stream(stream))
}
