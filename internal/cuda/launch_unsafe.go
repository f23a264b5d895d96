package cuda

import (
	"fmt"
	"unsafe"

	"goshmem/internal/errs"
)

// Module is loaded code, Function a kernel of it.
type (
	Module   uintptr
	Function uintptr
)

// ModuleLoad loads PTX or machine code into the current context.
func (l *Lib) ModuleLoad(image []byte) (Module, error) {
	text := append(append([]byte(nil), image...), 0) // PTX ends with a zero byte
	var m Module
	err := l.call(fModuleLoadData, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&text[0])))
	return m, err
}

// ModuleUnload removes it.
func (l *Lib) ModuleUnload(m Module) error { return l.call(fModuleUnload, uintptr(m)) }

// ModuleFunction is a kernel by its name.
func (l *Lib) ModuleFunction(m Module, name string) (Function, error) {
	b := append([]byte(name), 0)
	var f Function
	err := l.call(fModuleGetFunction, uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&b[0])))
	return f, err
}

// MaxParams is the most parameters of a launch made here.
const MaxParams = 20

// Params is room for the parameters of a launch, each of 8 bytes or less, read
// by the launch and not later.
type Params struct {
	v [MaxParams]uint64
	p [MaxParams]unsafe.Pointer
}

// Pointer makes parameter i what p points to: a struct passed by value.
func (r *Params) Pointer(i int, p unsafe.Pointer) { r.p[i] = p }

// Launch enqueues a kernel on a grid of blocks x threads with the given
// parameters, in the low bytes of their words.
func (l *Lib) Launch(f Function, blocks, threads uint32, s Stream, room *Params, params ...uint64) error {
	return l.LaunchGrid(f, blocks, 1, threads, s, room, 0, params...)
}

// LaunchGrid is Launch on a grid of x by y blocks, with the parameters from number
// first on; those before are what Params.Pointer made them.
func (l *Lib) LaunchGrid(f Function, x, y, threads uint32, s Stream, room *Params, first int, params ...uint64) error {
	if first+len(params) > MaxParams {
		return fmt.Errorf("cuda: %d parameters of a kernel, %d at most: %w", first+len(params), MaxParams, errs.ErrRange)
	}
	for i, v := range params {
		room.v[first+i] = v
		room.p[first+i] = unsafe.Pointer(&room.v[first+i])
	}
	return l.call(fLaunchKernel, uintptr(f), uintptr(x), uintptr(y), 1, uintptr(threads), 1, 1,
		0, uintptr(s), uintptr(unsafe.Pointer(&room.p)), 0)
}

// launchConfig is CUlaunchConfig, launchAttribute CUlaunchAttribute.
type (
	launchConfig struct {
		grid, block [3]uint32
		shared      uint32
		stream      Stream
		attrs       *launchAttribute
		numAttrs    uint32
	}
	launchAttribute struct {
		id    uint64
		value [64]byte
	}
)

const programmaticSerialization = 6 // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

// Early is room for LaunchEarly.
type Early struct {
	config launchConfig
	attr   launchAttribute
}

// HasEarly reports whether the driver has LaunchEarly, captures of it included.
func (l *Lib) HasEarly() bool {
	v, err := l.DriverVersion()
	return err == nil && v >= 12030 && l.fn[fLaunchKernelEx] != 0
}

// LaunchEarly is LaunchGrid of one dimension, of a kernel that waits itself for what is
// before it in the stream (griddepcontrol.wait): it is set up meanwhile. The parameters
// are what Params.Pointer made them.
func (l *Lib) LaunchEarly(f Function, blocks, threads uint32, s Stream, room *Params, e *Early) error {
	e.attr.id, e.attr.value[0] = programmaticSerialization, 1
	e.config = launchConfig{
		grid: [3]uint32{blocks, 1, 1}, block: [3]uint32{threads, 1, 1}, stream: s, attrs: &e.attr, numAttrs: 1,
	}
	return l.call(fLaunchKernelEx, uintptr(unsafe.Pointer(&e.config)), uintptr(f), uintptr(unsafe.Pointer(&room.p)), 0)
}
