//go:build !linux || !(amd64 || arm64) || nopurego

package libc

import (
	"fmt"
	"unsafe"

	"goshmem/internal/errs"
)

// Lib is the loaded library; in this build there is none.
type Lib struct{ _ struct{} }

// Load fails with ErrUnsupported: this build cannot load libraries.
func Load() (*Lib, error) {
	return nil, fmt.Errorf("libc: not loadable in this build: %w", errs.ErrUnsupported)
}

// MemcpyN does nothing: no Lib exists to call it on.
func (*Lib) MemcpyN(dst, src unsafe.Pointer, n uintptr, iters int) {}
