package cuda

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

// gpu is a locked thread with the first device's primary context current. It
// skips only where there is no driver or no GPU, and not where the run is meant
// for one.
func gpu(t testing.TB) (*Lib, Device) {
	t.Helper()
	l, err := Load()
	if errors.Is(err, errs.ErrUnsupported) && os.Getenv("GOSHMEM_TEST_GPU") == "" {
		t.Skip(err)
	}
	require.NoError(t, err)
	d, err := l.DeviceGet(0)
	require.NoError(t, err)
	runtime.LockOSThread()
	c, err := l.PrimaryCtxRetain(d)
	require.NoError(t, err)
	require.NoError(t, l.CtxSetCurrent(c))
	t.Cleanup(func() {
		_ = l.CtxSetCurrent(0)
		_ = l.PrimaryCtxRelease(d)
		runtime.UnlockOSThread()
	})
	return l, d
}

func stream(t testing.TB, l *Lib) Stream {
	s, err := l.StreamCreate(0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.StreamDestroy(s) })
	return s
}

func alloc(t testing.TB, l *Lib, n uint64) Ptr {
	p, err := l.MemAlloc(n)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.MemFree(p) })
	return p
}

// pinned is host memory and its address for the device.
func pinnedMem(t testing.TB, l *Lib, n uint64) ([]byte, Ptr) {
	h, err := l.MemHostAlloc(n)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.MemFreeHost(h) })
	p, err := l.MemHostGetDevicePointer(h)
	require.NoError(t, err)
	b := unsafe.Slice((*byte)(h), n)
	clear(b)
	return b, p
}

func TestDevice(t *testing.T) {
	l, d := gpu(t)
	v, err := l.DriverVersion()
	require.NoError(t, err)
	name, err := l.DeviceName(d)
	require.NoError(t, err)
	bus, err := l.DevicePCIBusID(d)
	require.NoError(t, err)
	id, err := l.DeviceUUID(d)
	require.NoError(t, err)
	mem, err := l.DeviceTotalMem(d)
	require.NoError(t, err)
	free, total, err := l.MemGetInfo()
	require.NoError(t, err)
	require.NotZero(t, mem)
	require.LessOrEqual(t, free, total)
	t.Logf("driver %d, %s at %s, %x, %d MiB (%d free)", v, name, bus, id, mem>>20, free>>20)
	for a, what := range map[Attribute]string{
		MultiprocessorCount: "multiprocessors", AsyncEngineCount: "copy engines", HostNativeAtomics: "host atomics",
		HostPointerIsDevice: "host pointer is device's", VirtualMemoryManagement: "VMM", HandleTypePosixFD: "POSIX fd",
		StreamMemOps64: "stream 64-bit operations", DMABufSupported: "dma-buf", GPUDirectRDMAWithVMM: "RDMA of VMM", MaxPitch: "max pitch",
	} {
		n, err := l.DeviceAttribute(d, a)
		require.NoError(t, err, what)
		t.Logf("%s: %d", what, n)
	}
	c, err := l.CtxGetCurrent()
	require.NoError(t, err)
	require.NotZero(t, c)
}

func TestErrorText(t *testing.T) {
	l, _ := gpu(t)
	_, err := l.DeviceGet(1 << 20)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "cuDeviceGet", e.Call)
	require.Equal(t, "CUDA_ERROR_INVALID_DEVICE", e.Name)
	require.NotEmpty(t, e.Text)
	_, err = l.MemAlloc(1 << 60)
	require.ErrorIs(t, err, errs.ErrNoMemory)
	require.Equal(t, OutOfMemory, Code(err))
}

func TestCopies(t *testing.T) {
	l, _ := gpu(t)
	s := stream(t, l)
	const n = 1 << 20
	h, hp := pinnedMem(t, l, 2*n)
	for i := range h[:n] {
		h[i] = byte(i*7 + i>>8)
	}
	a, b := alloc(t, l, n), alloc(t, l, n)
	require.NoError(t, l.MemcpyAsync(a, hp, n, s))
	require.NoError(t, l.MemcpyAsync(b, a, n, s))
	require.NoError(t, l.MemcpyAsync(hp+n, b, n, s))
	require.NoError(t, l.StreamSynchronize(s))
	require.Equal(t, h[:n], h[n:])

	var rows Rows // every third 4-byte element of a to every second of b
	require.NoError(t, l.MemsetD8Async(b, 0, n, s))
	require.NoError(t, l.Memcpy2DAsync(b, a, 8, 12, 4, 1000, s, &rows))
	require.NoError(t, l.MemcpyAsync(hp+n, b, n, s))
	require.NoError(t, l.StreamSynchronize(s))
	for i := range 1000 {
		require.Equal(t, h[12*i:12*i+4], h[n+8*i:n+8*i+4])
		require.Equal(t, []byte{0, 0, 0, 0}, h[n+8*i+4:n+8*i+8])
	}

	if !l.HasBatch() {
		t.Log("no batches in this driver")
		return
	}
	var batch Batch
	for i := range uint64(64) {
		batch.Dst = append(batch.Dst, uint64(b)+4096*i)
		batch.Src = append(batch.Src, uint64(a)+4096*(63-i))
		batch.Size = append(batch.Size, 4096)
	}
	require.NoError(t, l.MemcpyBatchAsync(&batch, s))
	require.NoError(t, l.MemcpyAsync(hp+n, b, n, s))
	require.NoError(t, l.StreamSynchronize(s))
	for i := range 64 {
		require.Equal(t, h[4096*(63-i):4096*(64-i)], h[n+4096*i:n+4096*(i+1)])
	}
}

func TestStreamValues(t *testing.T) {
	l, _ := gpu(t)
	s, other := stream(t, l), stream(t, l)
	h, p := pinnedMem(t, l, 4096)
	require.NoError(t, l.StreamWaitValue64(s, p, 5, WaitGE))
	require.NoError(t, l.StreamWriteValue64(s, p+8, 6))
	require.ErrorIs(t, l.StreamQuery(s), errs.ErrWouldBlock)
	ops := make([]MemOp, 3)
	ops[0].SetWrite(p+16, 1, true)
	ops[1].SetWrite(p+24, 2, false)
	ops[2].SetWrite(p, 5, true)
	require.NoError(t, l.StreamBatchMemOp(other, ops))
	require.NoError(t, l.StreamSynchronize(s))
	w := unsafe.Slice((*uint64)(unsafe.Pointer(&h[0])), 4)
	require.Equal(t, []uint64{5, 6, 1, 2}, w)
	require.ErrorIs(t, l.StreamBatchMemOp(s, make([]MemOp, MaxMemOps+1)), errs.ErrRange)
}

// VMM memory exported as a descriptor and imported again is the same memory at
// another address.
func TestVMM(t *testing.T) {
	l, d := gpu(t)
	s := stream(t, l)
	g, err := l.MemGetAllocationGranularity(d)
	require.NoError(t, err)
	m, err := l.MemCreate(g, d, false)
	require.NoError(t, err)
	base, err := l.MemAddressReserve(2*g, 0)
	require.NoError(t, err)
	require.NoError(t, l.MemMap(base, g, m))
	fd, err := l.MemExport(m)
	require.NoError(t, err)
	again, err := l.MemImport(fd)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	require.NoError(t, l.MemMap(base+Ptr(g), g, again))
	require.NoError(t, l.MemSetAccess(base, 2*g, []Device{d}))
	h, p := pinnedMem(t, l, 4096)
	require.NoError(t, l.MemsetD8Async(base, 0x5a, 4096, s))
	require.NoError(t, l.MemcpyAsync(p, base+Ptr(g), 4096, s))
	require.NoError(t, l.StreamSynchronize(s))
	require.Equal(t, byte(0x5a), h[4095])
	for _, rdma := range []bool{false, true} {
		if m, err := l.MemCreate(g, d, rdma); err == nil {
			require.NoError(t, l.MemRelease(m))
		} else {
			t.Logf("rdma %v: %v", rdma, err)
		}
	}
	for _, pcie := range []bool{false, true} {
		fd, err := l.MemDMABuf(base, g, pcie)
		if err != nil {
			t.Logf("dma-buf (pcie %v): %v", pcie, err)
			continue
		}
		_, merr := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		t.Logf("dma-buf (pcie %v): fd %d, mmap: %v", pcie, fd, merr)
		_ = unix.Close(fd)
	}
	require.NoError(t, l.MemUnmap(base, g))
	require.NoError(t, l.MemUnmap(base+Ptr(g), g))
	require.NoError(t, l.MemRelease(m))
	require.NoError(t, l.MemRelease(again))
	require.NoError(t, l.MemAddressFree(base, 2*g))
	p2 := alloc(t, l, g)
	_, err = l.IpcGetMemHandle(p2)
	require.NoError(t, err)
}

// A shared mapping of a file in memory can be pinned.
func TestHostRegister(t *testing.T) {
	l, _ := gpu(t)
	s := stream(t, l)
	const n = 64 << 20
	fd, err := unix.MemfdCreate("cuda-test", 0)
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(fd, n))
	b, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	require.NoError(t, l.MemHostRegister(unsafe.Pointer(&b[0]), n))
	p, err := l.MemHostGetDevicePointer(unsafe.Pointer(&b[0]))
	require.NoError(t, err)
	kind, err := l.PointerMemoryType(p)
	require.NoError(t, err)
	require.Equal(t, TypeHost, kind)
	require.NoError(t, l.StreamWriteValue64(s, p+n-8, 77))
	require.NoError(t, l.StreamSynchronize(s))
	require.Equal(t, byte(77), b[n-8])
	require.NoError(t, l.MemHostUnregister(unsafe.Pointer(&b[0])))
	require.NoError(t, unix.Munmap(b))
}

const storeKernel = `.version 7.0
.target sm_70
.address_size 64
.visible .entry store(.param .u64 p, .param .u64 v)
{
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [v];
	cvta.to.global.u64 %rd3, %rd1;
	st.global.u64 [%rd3], %rd2;
	ret;
}`

func TestLaunchAndGraph(t *testing.T) {
	l, d := gpu(t)
	s := stream(t, l)
	h, p := pinnedMem(t, l, 4096)
	m, err := l.ModuleLoad([]byte(storeKernel))
	require.NoError(t, err)
	f, err := l.ModuleFunction(m, "store")
	require.NoError(t, err)
	_, err = l.ModuleFunction(m, "absent")
	require.Error(t, err)
	var room Params
	require.NoError(t, l.Launch(f, 1, 1, 0, s, &room, uint64(p), 42))
	require.NoError(t, l.StreamSynchronize(s))
	require.Equal(t, byte(42), h[0])

	require.NoError(t, l.StreamBeginCapture(s, CaptureThread))
	on, err := l.StreamIsCapturing(s)
	require.NoError(t, err)
	require.True(t, on)
	require.NoError(t, l.Launch(f, 1, 1, 0, s, &room, uint64(p), 43))
	require.NoError(t, l.StreamWriteValue64(s, p+8, 44))
	g, err := l.StreamEndCapture(s)
	require.NoError(t, err)
	x, err := l.GraphInstantiate(g)
	require.NoError(t, err)
	require.Equal(t, byte(42), h[0])
	for range 3 {
		h[0], h[8] = 0, 0
		require.NoError(t, l.GraphLaunch(x, s))
		require.NoError(t, l.StreamSynchronize(s))
		require.Equal(t, []byte{43, 44}, []byte{h[0], h[8]})
	}
	require.NoError(t, l.GraphExecDestroy(x))
	require.NoError(t, l.GraphDestroy(g))
	require.NoError(t, l.ModuleUnload(m))

	from, err := l.EventCreate(true)
	require.NoError(t, err)
	to, err := l.EventCreate(true)
	require.NoError(t, err)
	require.NoError(t, l.EventRecord(from, s))
	require.NoError(t, l.EventRecord(to, s))
	require.NoError(t, l.EventSynchronize(to))
	require.NoError(t, l.EventQuery(from))
	ms, err := l.EventElapsed(from, to)
	require.NoError(t, err)
	require.GreaterOrEqual(t, ms, float32(0))
	require.NoError(t, l.StreamWaitEvent(s, to))
	require.NoError(t, l.EventDestroy(from))
	require.NoError(t, l.EventDestroy(to))

	pool, err := l.MemPoolCreate(d)
	require.NoError(t, err)
	q, err := l.MemAllocFromPoolAsync(1<<20, pool, s)
	require.NoError(t, err)
	require.NoError(t, l.MemFreeAsync(q, s))
	require.NoError(t, l.StreamSynchronize(s))
	require.NoError(t, l.MemPoolDestroy(pool))
	old, err := l.ThreadExchangeStreamCaptureMode(CaptureRelaxed)
	require.NoError(t, err)
	_, err = l.ThreadExchangeStreamCaptureMode(old)
	require.NoError(t, err)
}

// The calls of a hot path allocate nothing that is not purego's own.
func TestHotCallsAllocate(t *testing.T) {
	l, _ := gpu(t)
	s := stream(t, l)
	a, b := alloc(t, l, 4096), alloc(t, l, 4096)
	_, p := pinnedMem(t, l, 4096)
	ops := make([]MemOp, 2)
	got := testing.AllocsPerRun(200, func() {
		_ = l.MemcpyAsync(a, b, 64, s)
		ops[0].SetWrite(p, 1, true)
		ops[1].SetWrite(p+8, 2, true)
		_ = l.StreamBatchMemOp(s, ops)
	})
	require.NoError(t, l.StreamSynchronize(s))
	t.Logf("allocations of a copy and a batch of stores: %v", got)
	require.LessOrEqual(t, got, 2.0)
}
