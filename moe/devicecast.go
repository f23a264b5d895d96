package moe

import (
	"fmt"

	"goshmem/moe/internal/kernels"
	"goshmem/pe"
)

// Cast enqueues the cast of rows of Hidden bf16 to e4m3, with a float32 scale for
// each 128 channels of a row; see package fp8.
func (e *DeviceEngine) Cast(stream uintptr, x, q, scales uint64, rows int64) error {
	return e.cast(stream, kernels.ToFP8, rows, x, q, scales)
}

// Uncast enqueues the way back.
func (e *DeviceEngine) Uncast(stream uintptr, q, scales, x uint64, rows int64) error {
	return e.cast(stream, kernels.FromFP8, rows, q, scales, x)
}

func (e *DeviceEngine) cast(stream uintptr, k kernels.Kernel, rows int64, a, b, c uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(); err != nil {
		return wrap("cast", err)
	}
	if rows < 0 || rows > 0 && (a == 0 || b == 0 || c == 0) {
		return wrap("cast", fmt.Errorf("%d rows at %#x, %#x, %#x: %w", rows, a, b, c, pe.ErrRange))
	}
	if err := e.run.Enter(); err != nil {
		return wrap("cast", err)
	}
	defer e.run.Leave()
	return wrap("cast", e.launch(k, e.reduceSMs, kernels.Threads, 0, stream, a, b, c, uint64(rows), uint64(e.p.Hidden)))
}
