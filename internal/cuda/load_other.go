//go:build !linux || !(amd64 || arm64) || nopurego

package cuda

import (
	"fmt"

	"goshmem/internal/errs"
)

// Load fails with ErrUnsupported: this build cannot load libraries.
func Load() (*Lib, error) {
	return nil, fmt.Errorf("cuda: libcuda.so.1 is not loadable in this build: %w", errs.ErrUnsupported)
}

// call is never reached: there is no Lib.
//
//go:uintptrescapes
func (l *Lib) call(f fn, _ ...uintptr) error { return missing(f) }
