//go:build linux && (amd64 || arm64) && !nopurego

package emulated

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"goshmem/internal/errs"
	"goshmem/moe/internal/kernels"
)

// Build compiles the kernels into dir; source is this package's directory. ErrUnsupported
// without a C++ compiler.
func Build(source, dir string) (*Code, error) {
	cc := os.Getenv("CXX")
	if cc == "" {
		cc = "g++"
	}
	if _, err := exec.LookPath(cc); err != nil {
		return nil, fmt.Errorf("emulated: %w: %w", errs.ErrUnsupported, err)
	}
	lib := filepath.Join(dir, "kernels.so")
	cmd := exec.Command(cc, "-O1", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off", "-w", "-o", lib, "-I"+source, "-x", "c++", filepath.Join(source, "emulate.cu"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("emulated: %w\n%s", err, out)
	}
	h, err := purego.Dlopen(lib, purego.RTLD_NOW)
	if err != nil {
		return nil, err
	}
	c := &Code{}
	c.run, err = purego.Dlsym(h, "moe_emulate")
	return c, err
}

// Code is the compiled kernels.
type Code struct{ run uintptr }

// Runner is a device of the emulation.
type Runner struct {
	code *Code
	name string
	sms  int

	mu      sync.Mutex
	memory  map[uint64][]uint64
	streams map[uintptr]*queue
	events  map[uintptr]*event
	next    uintptr
	failed  error
}

var _ kernels.Runner = (*Runner)(nil)

// New makes a device.
func (c *Code) New(name string, sms int) *Runner {
	return &Runner{code: c, name: name, sms: sms, memory: map[uint64][]uint64{}, streams: map[uintptr]*queue{}, events: map[uintptr]*event{}}
}

type queue struct {
	steps chan func()
	done  chan struct{}
	kept  *[]func() // of a capture
}

// event is the latest mark: closed when it was passed.
type event struct {
	passed chan struct{}
	at     time.Time
}

// Enter has nothing to do, like the others without words.
func (r *Runner) Enter() error { return nil }

// Leave has nothing to undo.
func (r *Runner) Leave() {}

// Name is the name given.
func (r *Runner) Name() string { return r.name }

// Multiprocessors is what New was told.
func (r *Runner) Multiprocessors() int { return r.sms }

// Bulk is true: bulk copies are emulated too.
func (r *Runner) Bulk() bool { return true }

// Alloc is aligned Go memory, which does not move.
func (r *Runner) Alloc(n int64) (uint64, error) {
	b := make([]uint64, n/8+33)
	addr := (uint64(uintptr(unsafe.Pointer(&b[0]))) + 255) &^ 255
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory[addr] = b
	return addr, nil
}

// Free lets it go.
func (r *Runner) Free(addr uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memory[addr] == nil {
		return fmt.Errorf("emulated: free of %#x: %w", addr, errs.ErrBadRef)
	}
	delete(r.memory, addr)
	return nil
}

// Pinned is the same.
func (r *Runner) Pinned(n int64) (unsafe.Pointer, uint64, error) {
	addr, err := r.Alloc(n)
	return At(addr), addr, err
}

// FreePinned is Free.
func (r *Runner) FreePinned(p unsafe.Pointer) error { return r.Free(uint64(uintptr(p))) }

// Register is the address.
func (r *Runner) Register(p unsafe.Pointer, _ int64, _ bool) (uint64, error) {
	return uint64(uintptr(p)), nil
}

// Unregister has nothing to undo.
func (r *Runner) Unregister(unsafe.Pointer) error { return nil }

// At is memory at an address.
func At(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// Export is the address.
func (r *Runner) Export(addr uint64) ([]byte, error) { return fmt.Appendf(nil, "%d", addr), nil }

// Import is the address again.
func (r *Runner) Import(name []byte) (addr uint64, err error) {
	_, err = fmt.Sscan(string(name), &addr)
	return addr, err
}

// Forget has nothing to undo.
func (r *Runner) Forget(uint64) error { return nil }

// NewStream starts a queue.
func (r *Runner) NewStream() (uintptr, error) {
	q := &queue{steps: make(chan func(), 1024), done: make(chan struct{})}
	go func() {
		defer close(q.done)
		for f := range q.steps {
			f()
		}
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	r.streams[r.next] = q
	return r.next, nil
}

// CloseStream ends a queue when its work is done, and waits for that.
func (r *Runner) CloseStream(s uintptr) error {
	r.mu.Lock()
	q := r.streams[s]
	delete(r.streams, s)
	r.mu.Unlock()
	close(q.steps)
	<-q.done
	return nil
}

func (r *Runner) add(s uintptr, f func()) error {
	r.mu.Lock()
	q, err := r.streams[s], r.failed
	if q != nil && q.kept != nil {
		*q.kept = append(*q.kept, f)
		r.mu.Unlock()
		return err
	}
	r.mu.Unlock()
	if q == nil {
		return fmt.Errorf("emulated: no stream %d: %w", s, errs.ErrConfig)
	}
	q.steps <- f
	return err
}

// NewEvent makes an event.
func (r *Runner) NewEvent(bool) (uintptr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	r.events[r.next] = &event{}
	return r.next, nil
}

// CloseEvent ends it.
func (r *Runner) CloseEvent(e uintptr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.events, e)
	return nil
}

// Launch queues a launch.
func (r *Runner) Launch(k kernels.Kernel, blocks, threads, shared uint32, stream uintptr, params ...uint64) error {
	p := append(append([]uint64(nil), params...), make([]uint64, kernels.MaxParams-len(params))...)
	name := append([]byte(k.String()), 0)
	const most = 192 // threads: all roles of a block, and no more fibers than that takes
	threads = min(threads, most)
	return r.add(stream, func() {
		rc, _, _ := purego.SyscallN(r.code.run, uintptr(unsafe.Pointer(&name[0])), uintptr(blocks), uintptr(threads), uintptr(shared), uintptr(unsafe.Pointer(&p[0])))
		if rc != 0 {
			r.mu.Lock()
			r.failed = fmt.Errorf("emulated: no kernel %v", k)
			r.mu.Unlock()
		}
	})
}

// Copy queues a copy.
func (r *Runner) Copy(dst, src uint64, n int64, stream uintptr) error {
	return r.add(stream, func() {
		if n > 0 {
			copy(unsafe.Slice((*byte)(At(dst)), n), unsafe.Slice((*byte)(At(src)), n))
		}
	})
}

// Record queues a mark.
func (r *Runner) Record(e, stream uintptr) error {
	passed := make(chan struct{})
	r.mu.Lock()
	ev := r.events[e]
	ev.passed = passed
	r.mu.Unlock()
	return r.add(stream, func() {
		r.mu.Lock()
		ev.at = time.Now()
		r.mu.Unlock()
		close(passed)
	})
}

func (r *Runner) mark(e uintptr) chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[e].passed
}

// WaitEvent queues a wait.
func (r *Runner) WaitEvent(stream, e uintptr) error {
	passed := r.mark(e)
	return r.add(stream, func() {
		if passed != nil {
			<-passed
		}
	})
}

// Query asks whether a mark was passed.
func (r *Runner) Query(e uintptr) error {
	passed := r.mark(e)
	if passed == nil {
		return nil
	}
	select {
	case <-passed:
		return nil
	default:
		return errs.ErrWouldBlock
	}
}

// Elapsed is wall-clock time.
func (r *Runner) Elapsed(from, to uintptr) (float64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[to].at.Sub(r.events[from].at).Seconds(), nil
}

// Capturing reports whether the stream is in a Capture.
func (r *Runner) Capturing(s uintptr) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.streams[s].kept != nil, nil
}

// Capture keeps what f queues on a stream, and does not do it: the result queues it,
// any number of times. Launches and copies only.
func (r *Runner) Capture(s uintptr, f func()) (replay func()) {
	var kept []func()
	r.mu.Lock()
	q := r.streams[s]
	q.kept = &kept
	r.mu.Unlock()
	f()
	r.mu.Lock()
	q.kept = nil
	r.mu.Unlock()
	return func() {
		for _, f := range kept {
			q.steps <- f
		}
	}
}
