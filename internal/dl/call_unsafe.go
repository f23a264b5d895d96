//go:build linux && (amd64 || arm64) && !nopurego && !dlslow

package dl

import "unsafe"

// trampoline is the address of an assembly routine that takes a *Frame by the C
// convention. Filled by the linker, never written.
var trampoline uintptr

// cgocall runs a C function on a system stack. purego links to it likewise.
//
//go:linkname cgocall runtime.cgocall
//go:noescape
func cgocall(fn, arg unsafe.Pointer) int32

// Call makes the call. To the scheduler the goroutine is in a system call
// meanwhile.
func (f *Frame) Call() uintptr {
	cgocall(*(*unsafe.Pointer)(unsafe.Pointer(&trampoline)), unsafe.Pointer(f))
	return f.Result
}
