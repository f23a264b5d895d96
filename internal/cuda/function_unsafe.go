package cuda

import (
	"fmt"
	"unsafe"

	"goshmem/internal/errs"
)

// LaunchShared is Launch of blocks with so many bytes of dynamic shared memory each.
func (l *Lib) LaunchShared(f Function, blocks, threads, shared uint32, s Stream, room *Params, params ...uint64) error {
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

// FuncSetSharedMemory lets a kernel ask for so many bytes of dynamic shared memory,
// which is more than a launch gets by itself.
func (l *Lib) FuncSetSharedMemory(f Function, n uint32) error {
	const maxDynamicSharedSize = 8
	return l.call(fFuncSetAttribute, uintptr(f), maxDynamicSharedSize, uintptr(n))
}
