package cuda

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"goshmem/internal/errs"
)

func TestAbsentDriver(t *testing.T) {
	l, err := Load()
	if err == nil {
		t.Skip("there is a driver") // its tests are the others
	}
	require.Nil(t, l)
	require.ErrorIs(t, err, errs.ErrUnsupported)
	require.ErrorContains(t, err, "libcuda.so.1")
}

// The layouts that the driver expects.
func TestLayouts(t *testing.T) {
	require.Equal(t, uintptr(48), unsafe.Sizeof(MemOp{}))
	require.Equal(t, uintptr(8), unsafe.Offsetof(MemOp{}.address))
	require.Equal(t, uintptr(16), unsafe.Offsetof(MemOp{}.value))
	require.Equal(t, uintptr(24), unsafe.Offsetof(MemOp{}.flags))
	require.Equal(t, uintptr(128), unsafe.Sizeof(memcpy2D{}))
	require.Equal(t, uintptr(56), unsafe.Offsetof(memcpy2D{}.dstX))
	require.Equal(t, uintptr(112), unsafe.Offsetof(memcpy2D{}.width))
	require.Equal(t, uintptr(32), unsafe.Sizeof(allocProp{}))
	require.Equal(t, uintptr(24), unsafe.Offsetof(allocProp{}.compression))
	require.Equal(t, uintptr(24), unsafe.Sizeof(copyAttributes{}))
	require.Equal(t, uintptr(88), unsafe.Sizeof(poolProps{}))
	require.Equal(t, uintptr(56), unsafe.Sizeof(launchConfig{}))
	require.Equal(t, uintptr(32), unsafe.Offsetof(launchConfig{}.stream))
	require.Equal(t, uintptr(72), unsafe.Sizeof(launchAttribute{}))
}

func TestErrors(t *testing.T) {
	err := error(&Error{Call: "cuMemCreate", Code: OutOfMemory, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory"})
	require.EqualError(t, err, "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory")
	require.ErrorIs(t, err, errs.ErrNoMemory)
	require.NotErrorIs(t, err, errs.ErrUnsupported)
	require.ErrorIs(t, &Error{Code: NotReady}, errs.ErrWouldBlock)
	require.ErrorIs(t, &Error{Code: NotSupported}, errs.ErrUnsupported)
	require.Equal(t, Success, Code(nil))
	require.ErrorIs(t, (&Lib{}).call(fMemcpyBatchAsync), errs.ErrUnsupported)
}
