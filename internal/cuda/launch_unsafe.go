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
const MaxParams = 16

// Params is room for the parameters of a launch, each of 8 bytes or less, read
// by the launch and not later.
type Params struct {
	v [MaxParams]uint64
	p [MaxParams]unsafe.Pointer
}

// Launch enqueues a kernel on a grid of blocks x threads with the given
// parameters, in the low bytes of their words.
func (l *Lib) Launch(f Function, blocks, threads, shared uint32, s Stream, room *Params, params ...uint64) error {
	if len(params) > MaxParams {
		return fmt.Errorf("cuda: %d parameters of a kernel, %d at most: %w", len(params), MaxParams, errs.ErrRange)
	}
	for i, v := range params {
		room.v[i] = v
		room.p[i] = unsafe.Pointer(&room.v[i])
	}
	return l.call(fLaunchKernel, uintptr(f), uintptr(blocks), 1, 1, uintptr(threads), 1, 1,
		uintptr(shared), uintptr(s), uintptr(unsafe.Pointer(&room.p)), 0)
}
