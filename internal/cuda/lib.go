package cuda

import (
	"errors"
	"fmt"
	"sync/atomic"

	"goshmem/internal/errs"
)

// Lib is the loaded driver. Any number of goroutines may use it, and it needs no
// closing.
type Lib struct {
	fn     [numFns]uintptr
	errors [512]atomic.Pointer[Error] // the latest of each code
}

// Has reports whether the driver has copies in batches.
func (l *Lib) hasBatch() bool { return l.fn[fMemcpyBatchAsyncV2] != 0 || l.fn[fMemcpyBatchAsync] != 0 }

// Result is the driver's result code.
type Result uint32

// Codes that callers tell apart.
const (
	Success              Result = 0
	InvalidValue         Result = 1
	OutOfMemory          Result = 2
	NotReady             Result = 600
	PeerAlreadyEnabled   Result = 704
	AlreadyRegistered    Result = 712
	NotPermitted         Result = 800
	NotSupported         Result = 801
	CaptureUnsupported   Result = 900
	errorNoDevice        Result = 100
	errorSystemNotReady  Result = 802
	errorDeviceUnavaible Result = 46
)

// Error is a call that the driver refused.
type Error struct {
	Call string // "cuMemCreate"
	Code Result
	Name string // "CUDA_ERROR_OUT_OF_MEMORY"
	Text string // "out of memory"
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%d): %s", e.Call, e.Name, e.Code, e.Text)
}

// Is makes codes the sentinels that they are cases of.
func (e *Error) Is(target error) bool {
	switch e.Code {
	case OutOfMemory:
		return target == errs.ErrNoMemory
	case NotSupported, NotPermitted, CaptureUnsupported, errorNoDevice, errorSystemNotReady, errorDeviceUnavaible:
		return target == errs.ErrUnsupported
	case NotReady:
		return target == errs.ErrWouldBlock
	}
	return false
}

// Code is the driver's code in an error; Success where there is none.
func Code(err error) Result {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Success
}

func missing(f fn) error {
	return fmt.Errorf("cuda: the driver has no %s: %w", fns[f], errs.ErrUnsupported)
}
