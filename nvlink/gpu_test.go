package nvlink_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"goshmem/amo"
	"goshmem/channel"
	"goshmem/coll"
	"goshmem/heap"
	"goshmem/internal/cuda"
	"goshmem/internal/errs"
	"goshmem/internal/suite"
	"goshmem/nvlink/device"
	"goshmem/nvlink/device/cudadev"
	"goshmem/nvlink/device/devicetest"
	"goshmem/pe"
	"goshmem/rma"
)

const driverVariable = "GOSHMEM_TEST_GPU"

// world runs fn on PEs with device heaps: simulated ones; on GPUs, where the run is
// meant for them.
func world(t *testing.T, pes int, fn func(e *suite.Env), set ...func(*pe.Config)) {
	t.Helper()
	cfg := pe.Config{Size: pes, HeapSize: 8 << 20, DeviceHeap: 32 << 20, DeviceDriver: "host", DeviceStreams: 4, Timeout: 30 * time.Second}
	if os.Getenv(driverVariable) != "" {
		cfg.DeviceDriver = "cuda"
	}
	for _, f := range set {
		f(&cfg)
	}
	err := pe.Run(t.Context(), cfg, func(p *pe.PE) error { return suite.Body(t.Context(), p, cfg, fn) })
	require.NoError(t, err)
}

// onGPU skips what cannot be simulated.
func onGPU(t *testing.T) {
	if os.Getenv(driverVariable) == "" {
		t.Skip("needs a GPU: make test-gpu")
	}
}

// in makes a call with the PE's device current.
func in(e *suite.Env, f func() error) {
	d := e.P.Device()
	e.OK(d.Enter())
	defer d.Leave()
	e.OK(f())
}

// idle waits until a stream is done.
func idle(e *suite.Env, q device.Stream) {
	for end := time.Now().Add(20 * time.Second); ; {
		err := errs.ErrWouldBlock
		in(e, func() error { err = q.Poll(); return nil })
		if err == nil {
			return
		}
		e.Is(err, errs.ErrWouldBlock)
		e.True(time.Now().Before(end), "the stream does not end")
		time.Sleep(50 * time.Microsecond)
	}
}

func read(e *suite.Env, ref heap.Ref, n int) []byte {
	b := make([]byte, n)
	e.OK(rma.GetLocal(e.C, rma.Bytes(b), ref, e.Rank()))
	return b
}

func newStreams(e *suite.Env) (device.Stream, *rma.Stream) {
	q, err := e.P.Device().NewStream()
	e.OK(err)
	s, err := rma.NewStream(e.Ctx, e.C, q.Handle())
	e.OK(err)
	return q, s
}

// ring is one round of a neighbour exchange on streams: count in src, send it with a
// signal, wait for the predecessor's, and meet.
func ring(e *suite.Env, q device.Stream, s *rma.Stream, total uint64, src, dst heap.Ref, sig heap.Signal) error {
	at, err := e.P.DeviceAddr(src, 8, e.Rank())
	if err != nil {
		return err
	}
	if err := q.Add(total, at, 1); err != nil {
		return err
	}
	if err := s.PutSignal(dst, rma.At(src, 4096), sig, rma.SignalAdd, 1, e.Next(1)); err != nil {
		return err
	}
	if err := s.Next(sig, 1); err != nil {
		return err
	}
	if err := s.Quiet(); err != nil {
		return err
	}
	return s.Barrier()
}

func TestGPUOnStream(t *testing.T) {
	for _, pes := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(pes), func(t *testing.T) {
			world(t, pes, func(e *suite.Env) {
				q, s := newStreams(e)
				src, err := e.P.CallocDevice(e.Ctx, 4096, 0)
				e.OK(err)
				dst, err := e.P.CallocDevice(e.Ctx, 1<<20, 0)
				e.OK(err)
				sigs := e.Signals(2)
				total, err := e.P.Device().Alloc(8)
				e.OK(err)
				const rounds = 200
				for range rounds {
					in(e, func() error { return ring(e, q, s, total, src, dst, sigs.At(0)) })
				}
				idle(e, q)
				e.OK(s.Err())
				e.Equal(uint64(rounds), binary.LittleEndian.Uint64(read(e, dst, 8)))
				v, err := rma.ReadSignal(e.C, sigs.At(0))
				e.OK(err)
				e.Equal(uint64(rounds), v)
				// Set, and wait absolutely; large copies; host memory.
				host := e.Mem(1 << 20)
				copy(e.Bytes(host, 1<<20), []byte("goshmem"))
				e.OK(s.Put(dst, rma.At(host, 1<<20), e.Next(1)))
				e.OK(s.Signal(sigs.At(1), rma.SignalSet, 7, e.Next(1)))
				e.OK(s.WaitSignal(sigs.At(1), rma.GE, 7))
				idle(e, q)
				e.Equal("goshmem", string(read(e, dst, 7)))
				e.OK(s.PutSignal(dst, rma.At(src, 0), sigs.At(1), rma.SignalSet, 8, e.Next(1)))
				e.OK(rma.WaitSignal(e.Ctx, e.C, sigs.At(1), rma.EQ, 8)) // a CPU sees it too
				e.Is(s.Put(dst, rma.Bytes([]byte("x")), e.Next(1)), errs.ErrKind)
				e.Is(s.Put(dst.Add(1<<40), rma.At(src, 8), e.Next(1)), errs.ErrRange)
				e.Is(s.WaitSignal(heap.MakeSignal(dst), rma.EQ, 0), errs.ErrKind)
				e.Is(s.Signal(sigs.At(1), rma.SignalSet, 1, e.Size()), errs.ErrPeer)
				idle(e, q)
				e.OK(s.Close(e.Ctx))
				e.Barrier()
			})
		})
	}
}

// A stream's wait ends when the world does, and says why; too many waits are refused.
func TestGPUOnStreamEnds(t *testing.T) {
	world(t, 1, func(e *suite.Env) {
		sigs := e.Signals(1)
		var qs []device.Stream
		var ss []*rma.Stream
		full := false
		for range 20 {
			q, s := newStreams(e)
			qs, ss = append(qs, q), append(ss, s)
			if err := s.WaitSignal(sigs.At(0), rma.GE, 1); err != nil {
				e.Is(err, errs.ErrWouldBlock)
				full = true
				break
			}
		}
		e.True(full, "nobody refused a twentieth wait")
		e.OK(rma.Signal(e.C, sigs.At(0), rma.SignalAdd, 1, 0))
		for i := range qs {
			idle(e, qs[i])
			e.OK(ss[i].Err())
		}
		e.OK(ss[0].Close(e.Ctx)) // there is room again
		last := len(ss) - 1
		e.OK(ss[last].WaitSignal(sigs.At(0), rma.GE, 1))
		idle(e, qs[last])
	})
	// The loss of the only other PE ends a wait.
	cfg := pe.Config{Size: 2, HeapSize: 1 << 20, DeviceHeap: 1 << 20, DeviceDriver: "host", Timeout: 30 * time.Second}
	if os.Getenv(driverVariable) != "" {
		cfg.DeviceDriver = "cuda"
	}
	gone := fmt.Errorf("gone")
	err := pe.Run(t.Context(), cfg, func(p *pe.PE) error {
		return suite.Body(t.Context(), p, cfg, func(e *suite.Env) {
			q, s := newStreams(e)
			sigs := e.Signals(1)
			e.Barrier()
			if e.Rank() == 1 {
				e.OK(gone)
			}
			if err := s.WaitSignal(sigs.At(0), rma.GE, 1); err == nil {
				idle(e, q)
				e.Is(s.Err(), errs.ErrPeerLost)
			}
		})
	})
	require.ErrorIs(t, err, gone)
}

// Graphs replay a thousand times, mixed with the same calls made eagerly.
func TestGPUGraph(t *testing.T) {
	onGPU(t)
	world(t, 2, func(e *suite.Env) {
		q, s := newStreams(e)
		src, err := e.P.CallocDevice(e.Ctx, 4096, 0)
		e.OK(err)
		dst, err := e.P.CallocDevice(e.Ctx, 4096, 0)
		e.OK(err)
		sig := e.Signals(1).At(0)
		total, err := e.P.Device().Alloc(8)
		e.OK(err)
		lib := e.P.Device().(*cudadev.Device).Driver().Lib()
		cs := cuda.Stream(q.Handle())
		in(e, func() error { return ring(e, q, s, total, src, dst, sig) })
		var g cuda.Graph
		var x cuda.GraphExec
		in(e, func() error {
			e.OK(lib.StreamBeginCapture(cs, cuda.CaptureThread))
			on, err := q.Capturing()
			e.OK(err)
			e.True(on, "not capturing")
			e.OK(ring(e, q, s, total, src, dst, sig))
			g, err = lib.StreamEndCapture(cs)
			e.OK(err)
			x, err = lib.GraphInstantiate(g)
			return err
		})
		const rounds = 1000
		eager := 1
		for i := range rounds {
			in(e, func() error { return lib.GraphLaunch(x, cs) })
			if i%7 == 3 {
				in(e, func() error { return ring(e, q, s, total, src, dst, sig) })
				eager++
			}
			if i%100 == 50 { // what others put meanwhile is what they counted
				idle(e, q)
				e.True(binary.LittleEndian.Uint64(read(e, dst, 8)) >= uint64(i+1), "an old payload")
			}
		}
		idle(e, q)
		e.OK(s.Err())
		e.Equal(uint64(rounds+eager), binary.LittleEndian.Uint64(read(e, dst, 8)))
		v, err := rma.ReadSignal(e.C, sig)
		e.OK(err)
		e.Equal(uint64(rounds+eager), v)
		e.OK(coll.Barrier(e.Ctx, e.P.Team()))
		in(e, func() error { return lib.GraphExecDestroy(x) })
		in(e, func() error { return lib.GraphDestroy(g) })
		e.OK(s.Close(e.Ctx))
	})
}

// at is simulated device memory.
func at(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// A Go producer in a kernel's place: requests are served, nonsense is refused.
func TestKernelRequests(t *testing.T) {
	world(t, 2, func(e *suite.Env) {
		if os.Getenv(driverVariable) != "" {
			return // the view lies in a GPU's memory
		}
		dev := e.Dev(1 << 16)
		sigs := e.Signals(2)
		k, err := e.C.NewKernel(pe.KernelConfig{Slots: 64})
		e.OK(err)
		view := (*[10]uint64)(at(k.Addr()))
		words := unsafe.Slice((*uint64)(at(view[0])), channel.WordRingSlots+64*channel.SlotWords)
		acked := (*uint64)(at(view[3]))
		e.OK(rma.PutMem(e.C, dev, []byte{byte(e.Rank() + 1)}, e.Rank()))
		pos := uint64(0)
		send := func(d channel.Desc) {
			e.OK(e.C.Wait(e.Ctx, true, nil, func() bool { return pos < atomic.LoadUint64(&words[channel.WordRingConsumed])+64 }))
			for i, w := range channel.EncodeWords(&d, pos/64) {
				atomic.StoreUint64(&words[channel.WordRingSlots+pos%64*channel.SlotWords+uint64(i)], w)
			}
			pos++
		}
		to := uint32(e.Next(1))
		id := (*[4]uint32)(unsafe.Pointer(&view[8]))
		for i := range 500 {
			send(channel.Desc{Op: channel.OpPut, PE: to, Ctx: id[3], DstRegion: heap.RegionDevice, SrcRegion: heap.RegionDevice,
				DstOff: dev.Offset() + 4096, SrcOff: dev.Offset(), Size: 8, SigOp: channel.SigAdd, SigOff: sigs.At(0).Ref().Offset(), SigVal: 1})
			if i%3 == 0 {
				send(channel.Desc{Op: channel.OpSignal, PE: to, Ctx: id[3], SigOp: channel.SigAdd, SigOff: sigs.At(1).Ref().Offset(), SigVal: 2})
			}
		}
		e.OK(rma.WaitSignal(e.Ctx, e.C, sigs.At(0), rma.GE, 500))
		e.OK(rma.WaitSignal(e.Ctx, e.C, sigs.At(1), rma.GE, 334))
		e.Equal(byte(e.Next(-1)+1), read(e, dev.Add(4096), 1)[0])
		e.OK(e.C.Wait(e.Ctx, true, nil, func() bool { return atomic.LoadUint64(acked) == pos }))
		e.OK(k.Err())
		for _, d := range []channel.Desc{
			{Op: channel.OpPut, PE: 9, Ctx: id[3]},
			{Op: channel.OpGet, PE: to, Ctx: id[3]},
			{Op: channel.OpPut, PE: to, Ctx: id[3] + 1},
			{Op: channel.OpPut, PE: to, Ctx: id[3], DstRegion: heap.RegionDevice, SrcRegion: heap.RegionDevice, Size: 1 << 40},
			{Op: channel.OpPut, PE: to, Ctx: id[3], DstRegion: heap.RegionRuntime, SrcRegion: heap.RegionDevice, Size: 8},
			{Op: channel.OpSignal, PE: to, Ctx: id[3], SigOp: channel.SigAdd, SigOff: 1 << 40},
		} {
			send(d)
		}
		e.OK(e.C.Wait(e.Ctx, true, nil, func() bool { return atomic.LoadUint64(acked) == pos }))
		e.True(k.Err() != nil, "nonsense was served")
		e.OK(k.Close(e.Ctx))
		e.Barrier()
	})
}

// launch starts a test kernel on a stream of the PE's device.
type launcher struct {
	e   *suite.Env
	lib *cuda.Lib
	fs  map[string]cuda.Function
	q   device.Stream
}

// newLauncher loads kernels: before any runs, since loading may wait for those.
func newLauncher(e *suite.Env, names ...string) *launcher {
	l := &launcher{e: e, lib: e.P.Device().(*cudadev.Device).Driver().Lib(), fs: map[string]cuda.Function{}}
	in(e, func() error {
		m, err := l.lib.ModuleLoad(devicetest.Kernels)
		for _, n := range names {
			if err == nil {
				l.fs[n], err = l.lib.ModuleFunction(m, n)
			}
		}
		return err
	})
	var err error
	l.q, err = e.P.Device().NewStream()
	e.OK(err)
	return l
}

func (l *launcher) run(name string, blocks, threads uint32, params ...uint64) {
	in(l.e, func() error {
		var room cuda.Params
		return l.lib.Launch(l.fs[name], blocks, threads, cuda.Stream(l.q.Handle()), &room, params...)
	})
}

// PEs exchange rows from within kernels: by stores where memory is mapped, by
// requests where it is not; one thread, a warp, a block each.
func TestGPUKernels(t *testing.T) {
	onGPU(t)
	for way, to := range []string{"stores", "requests", "pipes"} {
		unmapped := way > 0
		for form := range uint64(3) {
			t.Run(fmt.Sprintf("%s/form %d", to, form), func(t *testing.T) {
				world(t, 2, func(e *suite.Env) {
					const blocks, threads, n, rounds = 8, 64, 1000, 100
					src, dst := e.Dev(blocks*n), e.Dev(blocks*n)
					sigs := e.Signals(2 * blocks)
					bad, err := e.P.CallocDevice(e.Ctx, 8, 0)
					e.OK(err)
					k, err := e.C.NewKernel(pe.KernelConfig{Slots: 16, Unmapped: to == "requests"})
					e.OK(err)
					l := newLauncher(e, "exchange")
					at, err := e.P.DeviceAddr(bad, 8, e.Rank())
					e.OK(err)
					e.Barrier()
					l.run("exchange", blocks, threads, k.Addr(), dst.Offset(), src.Offset(), n, sigs.Ref().Offset(), form, rounds, at)
					var failed error
					e.OK(e.C.Wait(e.Ctx, true, nil, func() bool {
						in(e, func() error { failed = l.q.Poll(); return nil })
						return !errors.Is(failed, errs.ErrWouldBlock)
					}))
					e.OK(failed)
					e.OK(k.Err())
					e.Equal(uint64(0), binary.LittleEndian.Uint64(read(e, bad, 8)))
					if unmapped {
						e.True(k.Requests() >= 2*blocks*rounds, fmt.Sprintf("%d requests", k.Requests()))
					}
					e.OK(k.Close(e.Ctx))
					e.Barrier()
				}, func(c *pe.Config) {
					if to == "pipes" {
						c.DeviceMap = "off"
					}
				})
			})
		}
	}
}

// Many more threads than slots, all at once, with every multiprocessor in use.
func TestGPURequestFlood(t *testing.T) {
	onGPU(t)
	world(t, 1, func(e *suite.Env) {
		sig := e.Signals(1).At(0)
		k, err := e.C.NewKernel(pe.KernelConfig{Slots: 1024})
		e.OK(err)
		l := newLauncher(e, "signals")
		for _, shape := range [][3]uint32{{1, 1, 2000}, {8, 32, 4000}, {132 * 8, 256, 4}} {
			before, err := rma.ReadSignal(e.C, sig)
			e.OK(err)
			n := uint64(shape[0]) * uint64(shape[1]) * uint64(shape[2])
			start := time.Now()
			l.run("signals", shape[0], shape[1], k.Addr(), sig.Ref().Offset(), uint64(shape[2]), 0)
			e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.GE, before+n))
			took := time.Since(start)
			idle(e, l.q)
			e.OK(k.Err())
			t.Logf("%d blocks of %d threads: %d requests in %v, %.1f M/s", shape[0], shape[1], n, took, float64(n)/took.Seconds()/1e6)
		}
		e.OK(k.Close(e.Ctx))
	})
}

// A kernel's atomics, the owner's and another PE's on one word.
func TestGPUAtomics(t *testing.T) {
	onGPU(t)
	world(t, 2, func(e *suite.Env) {
		word, err := pe.CallocDeviceArray[uint64](e.Ctx, e.P, 1)
		e.OK(err)
		l := newLauncher(e, "atomics")
		at, err := e.P.DeviceAddr(word.Ref(), 8, 0)
		e.OK(err)
		e.Barrier()
		l.run("atomics", 8, 128, at, 100)
		for range 200 {
			e.OK(amo.Add(e.C, word.At(0), 3, 0))
		}
		e.OK(rma.Quiet(e.Ctx, e.C))
		idle(e, l.q)
		e.Barrier()
		v, err := amo.Fetch(e.C, word.At(0), 0)
		e.OK(err)
		e.Equal(uint64(2*(8*128*100+600)), v)
		e.Barrier()
	})
}

// From a kernel to the proxy and back: half of it is one way.
func TestGPURequestLatency(t *testing.T) {
	onGPU(t)
	world(t, 1, func(e *suite.Env) {
		const n = 20000
		sigs := e.Signals(2)
		took, err := e.P.CallocDevice(e.Ctx, 8, 0)
		e.OK(err)
		at, err := e.P.DeviceAddr(took, 8, 0)
		e.OK(err)
		k, err := e.C.NewKernel(pe.KernelConfig{})
		e.OK(err)
		l := newLauncher(e, "echo")
		l.run("echo", 1, 1, k.Addr(), sigs.Ref().Offset(), n, at)
		e.OK(rma.WaitSignal(e.Ctx, e.C, sigs.At(0), rma.GE, n))
		idle(e, l.q)
		e.OK(k.Err())
		ns := binary.LittleEndian.Uint64(read(e, took, 8))
		t.Logf("request and answer: %d ns, one way %d ns", ns/n, ns/n/2)
		e.OK(k.Close(e.Ctx))
	})
}

// With a kernel on every multiprocessor of its device, what a PE puts to another
// device still arrives: nothing on the way needs a multiprocessor.
func TestGPUCopiesBesideSpin(t *testing.T) {
	onGPU(t)
	world(t, 2, func(e *suite.Env) {
		if e.C.OnDevice().Within(0, 1) {
			t.Log("one GPU: nothing to see")
			return
		}
		const room, blocks, threads = 8 << 20, 1024, 1024
		src, dst := e.Dev(room), e.Dev(room)
		sig := e.Signals(1).At(0)
		e.OK(rma.PutMem(e.C, src, []byte{7}, e.Rank()))
		words := e.Mem(128) // two words on lines of their own
		var at [2]uint64
		for i := range at {
			var err error
			at[i], err = e.P.DeviceAddr(words.Add(uint64(64*i)), 8, e.Rank())
			e.OK(err)
		}
		host := func(i int) *atomic.Uint64 {
			return (*atomic.Uint64)(unsafe.Pointer(&e.Bytes(words.Add(uint64(64*i)), 8)[0]))
		}
		l := newLauncher(e, "spin")
		e.Barrier()
		if e.Rank() == 0 {
			l.run("spin", blocks, threads, at[0], at[1], uint64(5*time.Second))
			for end := time.Now().Add(5 * time.Second); host(0).Load() < 2*132; { // two of these fill a multiprocessor
				e.True(time.Now().Before(end), "the kernel does not fill the device")
			}
			for _, n := range []int64{8, 64 << 10, 1 << 20, room} {
				begin := time.Now()
				_, err := rma.PutLocalSignalNBI(e.C, dst, rma.At(src, n), sig, rma.SignalAdd, 1, 1)
				e.OK(err)
				e.OK(rma.Quiet(e.Ctx, e.C))
				t.Logf("%d B to the other GPU beside a kernel on every multiprocessor: %v", n, time.Since(begin))
				in(e, func() error {
					e.Is(l.q.Poll(), errs.ErrWouldBlock) // no put waited for the kernel
					return nil
				})
			}
			host(1).Store(1)
			idle(e, l.q)
		} else {
			e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.GE, 4))
			e.Equal(byte(7), read(e, dst, 1)[0])
		}
		e.Barrier()
	})
}
