//go:build !linux || !(amd64 || arm64) || nopurego

package dl

import (
	"fmt"
	"strings"
	"syscall"
	"unsafe"

	"goshmem/internal/errs"
)

// Loadable says whether this build can load libraries.
const Loadable = false

// Library is a loaded library; in this build there is none.
type Library struct{ _ struct{} }

// Open fails with ErrUnsupported: this build cannot load libraries.
func Open(names ...string) (*Library, error) {
	return nil, fmt.Errorf("dl: %s not loadable in this build: %w", strings.Join(names, ", "), errs.ErrUnsupported)
}

// Name is empty.
func (*Library) Name() string { return "" }

// Sym finds nothing.
func (*Library) Sym(name string) (uintptr, error) { return 0, errs.ErrUnsupported }

// Call calls nothing.
func Call(uintptr, ...uintptr) (uintptr, syscall.Errno) { return 0, syscall.ENOSYS }

// CallNoErrno calls nothing.
func CallNoErrno(uintptr, ...uintptr) uintptr { return 0 }

// Call calls nothing.
func (*Frame) Call() uintptr { return 0 }

// String is empty: nothing is loaded that could return one.
func String(unsafe.Pointer) string { return "" }
