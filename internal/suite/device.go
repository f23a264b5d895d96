package suite

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"

	"goshmem/amo"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/pe"
	"goshmem/rma"
)

// DeviceSetups is where the cases of Device run: PEs that share this process, and
// PEs with a world each, as far as memory can be shared so within one process.
func DeviceSetups(driver string, short bool) []Setup {
	var all []Setup
	add := func(name string, cfg pe.Config, l Launcher) {
		cfg.DeviceDriver, cfg.DeviceStreams = driver, max(cfg.DeviceStreams, 2)
		all = append(all, Setup{Name: fmt.Sprintf("%s/%s/pes%d", driver, name, cfg.Size), Config: cfg, Launch: l})
	}
	add("vmm", pe.Config{Size: 2, DeviceShare: "vmm"}, nil)
	add("joined", pe.Config{Size: 3, DeviceShare: "vmm"}, Joined)
	add("engine", pe.Config{Size: 2, DeviceEngine: true}, nil)
	add("staged", pe.Config{Size: 2, DeviceMap: "off"}, nil)
	if !short {
		add("staged joined", pe.Config{Size: 3, DeviceMap: "off", DeviceEngine: true, DeviceStreams: 1}, Joined)
		add("one stream", pe.Config{Size: 4, DeviceStreams: 1, RingCapacity: 4}, nil)
		add("ipc", pe.Config{Size: 1, DeviceShare: "ipc"}, nil)
		add("proxy", pe.Config{Size: 2, Path: "proxy"}, nil)
	}
	return all
}

// deviceHeap is the size of the device heaps of the cases.
const deviceHeap = 24 << 20

// Device is the cases of device memory.
func Device() []Case {
	set := func(c *pe.Config) { c.DeviceHeap = deviceHeap }
	return []Case{
		{Name: "device alloc", Set: set, Run: deviceAlloc},
		{Name: "device puts", Heap: 24 << 20, Set: set, Run: devicePuts},
		{Name: "device gets", Heap: 24 << 20, Set: set, Run: deviceGets},
		{Name: "device strided", Heap: 4 << 20, Set: set, Run: deviceStrided},
		{Name: "device batch", Heap: 4 << 20, Set: set, Run: deviceBatch},
		{Name: "device order", Heap: 4 << 20, Set: set, Run: deviceOrder},
		{Name: "device signals", Heap: 4 << 20, Set: set, Run: deviceSignals},
		{Name: "device stress", Heap: 24 << 20, Set: set, Run: deviceStress},
		{Name: "device amo", Set: set, Run: deviceAMO},
		{Name: "device errors", Set: set, Run: deviceErrors},
		{Name: "device far", Set: func(c *pe.Config) { c.DeviceHeap = 6 << 30 }, Run: deviceFar},
	}
}

// Dev allocates n bytes of device memory.
func (e *Env) Dev(n int) heap.Ref {
	ref, err := e.P.AllocDevice(e.Ctx, int64(n), 0)
	e.OK(err)
	return ref
}

// load reads n bytes of this PE's own symmetric memory of any kind.
func (e *Env) load(ref heap.Ref, n int) []byte {
	b := make([]byte, n)
	e.OK(rma.GetLocal(e.C, rma.Bytes(b), ref, e.Rank()))
	return b
}

func (e *Env) save(ref heap.Ref, b []byte) { e.OK(rma.PutMem(e.C, ref, b, e.Rank())) }

func deviceAlloc(e *Env) {
	size, used := e.P.DeviceHeap()
	e.Equal(int64(deviceHeap), size)
	e.Equal(int64(0), used)
	a := e.Dev(1000)
	e.Equal(heap.RegionDevice, a.Region())
	z, err := e.P.CallocDevice(e.Ctx, 1<<20, 1<<16)
	e.OK(err)
	e.Equal(make([]byte, 1<<20), e.load(z, 1<<20))
	arr, err := pe.CallocDeviceArray[float64](e.Ctx, e.P, 100)
	e.OK(err)
	e.True(arr.Local() == nil, "the CPU has device memory")
	x, err := e.P.DeviceAddr(z, 1<<20, e.Rank())
	e.OK(err)
	e.Equal(uint64(0), x%(1<<16))
	_, err = e.P.DeviceAddr(z, 1<<20+1<<16, e.Next(1))
	if e.Config.DeviceMap == "off" {
		e.Is(err, errs.ErrUnsupported)
	} else {
		e.OK(err) // within the heap
	}
	_, err = e.P.DeviceAddr(z, deviceHeap, e.Rank())
	e.Is(err, errs.ErrRange)
	h, err := e.P.DeviceAddr(e.Mem(64), 64, e.Next(1)) // host memory, as devices name it
	e.OK(err)
	e.True(h != 0, "no address of host memory")
	_, err = e.P.AllocDevice(e.Ctx, deviceHeap+1, 0)
	e.Is(err, errs.ErrNoMemory)
	e.OK(e.P.Free(e.Ctx, a))
	e.Is(e.P.Free(e.Ctx, a), errs.ErrBadRef)
	e.OK(e.P.Free(e.Ctx, z))
	e.OK(e.P.Free(e.Ctx, arr.Ref()))
	_, used = e.P.DeviceHeap()
	e.Equal(int64(0), used)
}

var deviceSizes = []int{0, 1, 7, 8, 12, 33, 64, 4096, 65536, 65537, 300<<10 + 4, 1 << 20, 5<<20 + 3}

// devicePuts puts every size from every kind of memory to every kind.
func devicePuts(e *Env) {
	const room = 6 << 20
	host, dev := e.Mem(room), e.Dev(room)
	srcHost, srcDev := e.Mem(room), e.Dev(room)
	user, err := e.P.Device().Alloc(room)
	e.OK(err)
	sig := e.Signals(1).At(0)
	all := make([]byte, room)
	fill(all, e.Rank(), 0)
	copy(e.Bytes(srcHost, room), all)
	e.save(srcDev, all)
	e.OK(rma.GetLocal(e.C, rma.DeviceMemory(user, room), srcDev, e.Rank()))
	to, from := e.Next(1), e.Next(-1)
	round := uint64(0)
	for _, size := range deviceSizes {
		for way := range 12 {
			dst := [...]heap.Ref{host, dev}[way%2]
			if way < 2 && size > 100 {
				continue // host to host: others' tests
			}
			at := 64 + way*4
			var src rma.Local
			switch way / 2 {
			case 0:
				src = rma.At(srcHost.Add(uint64(at)), int64(size))
			case 1, 2:
				src = rma.At(srcDev.Add(uint64(at)), int64(size))
			case 3:
				src = rma.DeviceMemory(user+uint64(at), int64(size))
			default:
				src = rma.Bytes(all[at : at+size])
			}
			d := dst.Add(64)
			e.save(dst, make([]byte, size+128))
			e.Barrier()
			round++
			switch way / 2 {
			case 1:
				e.OK(rma.PutLocal(e.C, d, src, to))
				e.OK(rma.Signal(e.C, sig, rma.SignalAdd, 1, to))
			case 2, 4:
				t, err := rma.PutLocalNBI(e.C, d, src, to)
				e.OK(err)
				e.OK(rma.Wait(e.Ctx, e.C, t))
				e.OK(rma.Signal(e.C, sig, rma.SignalAdd, 1, to))
			default:
				_, err := rma.PutLocalSignalNBI(e.C, d, src, sig, rma.SignalAdd, 1, to)
				e.OK(err)
			}
			e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.GE, round, rma.From(from)))
			got := e.load(dst, size+128)
			e.check(got[64:64+size], from, at, fmt.Sprintf("way %d, %d B", way, size))
			e.Equal(make([]byte, 64), got[:64])
			e.Equal(make([]byte, 64), got[64+size:])
			e.OK(rma.Quiet(e.Ctx, e.C))
			e.Barrier()
		}
	}
	v, err := rma.ReadSignal(e.C, sig)
	e.OK(err)
	e.Equal(round, v)
}

func deviceGets(e *Env) {
	const room = 6 << 20
	host, dev, own := e.Mem(room), e.Dev(room), e.Dev(room)
	all := make([]byte, room)
	fill(all, e.Rank(), 0)
	copy(e.Bytes(host, room), all)
	e.save(dev, all)
	e.Barrier()
	of := e.Next(1)
	buf := make([]byte, room)
	for _, size := range deviceSizes {
		for way, src := range [...]heap.Ref{dev, host, dev} {
			at := uint64(8 + way)
			dst := rma.At(own.Add(64), int64(size))
			if way == 2 {
				dst = rma.Bytes(buf[:size])
			}
			t, err := rma.GetLocalNBI(e.C, dst, src.Add(at), of)
			e.OK(err)
			e.OK(rma.Wait(e.Ctx, e.C, t))
			got := buf[:size]
			if way != 2 {
				got = e.load(own.Add(64), size)
			}
			e.check(got, of, int(at), fmt.Sprintf("way %d, %d B", way, size))
		}
	}
	e.OK(rma.GetMem(e.C, buf[:100], dev.Add(5), of))
	e.check(buf[:100], of, 5, "get")
}

func deviceStrided(e *Env) {
	const n = 3000
	dst, err := pe.CallocDeviceArray[uint32](e.Ctx, e.P, 5*n)
	e.OK(err)
	big, err := pe.CallocDeviceArray[uint64](e.Ctx, e.P, 400<<10)
	e.OK(err)
	src := make([]uint32, 3*n)
	for i := range src {
		src[i] = uint32(e.Rank()*1000000 + i)
	}
	to, from := e.Next(1), e.Next(-1)
	e.Barrier()
	for _, m := range []int{0, 1, n} {
		e.OK(rma.IPut(e.C, dst, src, 5, 3, m, to))
	}
	wide := make([]uint64, 200<<10) // more than staging memory takes at once
	for i := range wide {
		wide[i] = uint64(i)<<8 | uint64(e.Rank())
	}
	_, err = rma.IPutNBI(e.C, big, wide, 2, 1, len(wide), to)
	e.OK(err)
	e.OK(rma.Quiet(e.Ctx, e.C))
	e.Barrier()
	got := make([]uint32, 2*n)
	e.OK(rma.IGet(e.C, got, dst, 2, 5, n, e.Rank()))
	for i := range n {
		e.Equal(uint32(from*1000000+3*i), got[2*i])
		e.Equal(uint32(0), got[2*i+1])
	}
	clear(wide)
	e.OK(rma.IGet(e.C, wide, big, 1, 2, len(wide), e.Rank()))
	for i := range wide {
		if wide[i] != uint64(i)<<8|uint64(from) {
			e.Fatalf("element %d is %#x", i, wide[i])
		}
	}
}

// deviceBatch: the items of a batch take effect in order, overlapping ones too.
func deviceBatch(e *Env) {
	const n, size = 100, 4096
	dev, src := e.Dev(n*size), e.Dev(n*size)
	host := e.Mem(n * size)
	sig := e.Signals(1).At(0)
	all := make([]byte, n*size)
	fill(all, e.Rank(), 0)
	e.save(src, all)
	copy(e.Bytes(host, n*size), all)
	to, from := e.Next(1), e.Next(-1)
	e.Barrier()
	var items []rma.BatchItem
	for i := range n {
		at := uint64(i * size)
		it := rma.BatchItem{Dst: dev.Add(at), From: src.Add(at), N: size}
		switch i % 3 {
		case 1:
			it = rma.BatchItem{Dst: dev.Add(at), Src: all[at : at+size]}
		case 2:
			it.From = host.Add(at)
		}
		items = append(items, it)
	}
	items = append(items, rma.BatchItem{Dst: dev.Add(100), From: src, N: 1000}, rma.BatchItem{Dst: dev.Add(600), From: src.Add(3), N: 1000})
	_, err := rma.PutBatch(e.C, items, to)
	e.OK(err)
	e.OK(rma.Signal(e.C, sig, rma.SignalAdd, 1, to))
	e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.GE, 1, rma.From(from)))
	got := e.load(dev, n*size)
	e.check(got[:100], from, 0, "before")
	e.check(got[100:600], from, 0, "first")
	e.check(got[600:1600], from, 3, "second")
	e.check(got[1600:], from, 1600, "rest")
	_, err = rma.PutBatch(e.C, []rma.BatchItem{{Dst: dev, From: src, N: 1 << 40}}, to)
	e.Is(err, errs.ErrRange)
}

// deviceOrder: operations of a lane take effect in order, whoever executes them.
func deviceOrder(e *Env) {
	const rounds = 60
	dev, src := e.Dev(8*rounds), e.Dev(8*rounds)
	host := e.Mem(8)
	sig := e.Signals(2)
	to, from := e.Next(1), e.Next(-1)
	b := make([]byte, 8*rounds)
	for i := range rounds {
		binary.LittleEndian.PutUint64(b[8*i:], uint64(i+1))
	}
	e.save(src, b)
	e.save(dev, make([]byte, 8))
	e.Barrier()
	for i := range rounds {
		// The same word again and again: by copy, by store, by the CPU elsewhere.
		_, err := rma.PutLocalNBI(e.C, dev, rma.At(src.Add(uint64(8*i)), 8), to)
		e.OK(err)
		_, err = rma.PutMemNBI(e.C, dev.Add(8), b[8*i:8*i+8], to)
		e.OK(err)
		_, err = rma.PutMemNBI(e.C, host, b[8*i:8*i+8], to)
		e.OK(err)
		e.OK(rma.Signal(e.C, sig.At(0), rma.SignalSet, uint64(i+1), to))
	}
	for i := range rounds {
		e.OK(rma.WaitSignal(e.Ctx, e.C, sig.At(0), rma.GE, uint64(i+1), rma.From(from)))
		v, err := rma.ReadSignal(e.C, sig.At(0))
		e.OK(err)
		h := binary.LittleEndian.Uint64(e.Bytes(host, 8))
		d := binary.LittleEndian.Uint64(e.load(dev, 8))
		s := binary.LittleEndian.Uint64(e.load(dev.Add(8), 8))
		if min(h, d, s) < v {
			e.Fatalf("signal %d, host word %d, copied word %d, stored word %d", v, h, d, s)
		}
	}
	// A get sees every earlier put.
	for i := range rounds {
		_, err := rma.PutLocalNBI(e.C, dev.Add(16), rma.At(src.Add(uint64(8*i)), 8), to)
		e.OK(err)
		var g [8]byte
		e.OK(rma.GetMem(e.C, g[:], dev.Add(16), to))
		e.Equal(uint64(i+1), binary.LittleEndian.Uint64(g[:]))
	}
}

// deviceSignals: adds of many lanes to one signal sum up, more of them than a signal
// has cells; resets begin anew.
func deviceSignals(e *Env) {
	const contexts, rounds = 8, 20
	dev := e.Dev(64 * contexts)
	sigs := e.Signals(3)
	src := e.Dev(64)
	e.save(src, make([]byte, 64))
	ctxs := []*pe.Context{e.C}
	for range contexts - 1 {
		c, err := e.P.Team().NewContext(e.Ctx)
		e.OK(err)
		ctxs = append(ctxs, c)
	}
	for turn := range 2 {
		e.Barrier()
		for r := range rounds {
			for i, c := range ctxs {
				for to := range e.Size() {
					_, err := rma.PutLocalSignalNBI(c, dev.Add(uint64(64*i)), rma.At(src, 64), sigs.At(0), rma.SignalAdd, 2, to)
					e.OK(err)
					if r%5 == 0 { // by whoever the lane's agent is
						e.OK(rma.Signal(c, sigs.At(0), rma.SignalAdd, 1, to))
					}
				}
			}
		}
		want := uint64(e.Size() * contexts * (rounds*2 + rounds/5))
		e.OK(rma.WaitSignal(e.Ctx, e.C, sigs.At(0), rma.GE, want))
		e.OK(rma.WaitAll(e.Ctx, e.C, sigs.Slice(0, 1), nil, rma.EQ, want))
		v, err := rma.ReadSignal(e.C, sigs.At(0))
		e.OK(err)
		e.Equal(want, v)
		// Built-in words.
		e.OK(rma.PutMemNotify(e.C, dev, make([]byte, 64), 3, e.Next(1)))
		e.OK(rma.WaitSignals(e.Ctx, e.C, 1, rma.From(e.Next(-1)), rma.Index(3)))
		if turn == 0 {
			e.Barrier()
			e.OK(e.P.Team().ResetSignals(e.Ctx, sigs))
			v, err := rma.ReadSignal(e.C, sigs.At(0))
			e.OK(err)
			e.True(v <= want, "not reset")
		}
	}
	for _, c := range ctxs[1:] {
		e.OK(c.Free(e.Ctx))
	}
}

// stressPuts is how many puts the stress makes; GOSHMEM_TEST_STRESS says otherwise.
func stressPuts() int {
	if n, err := strconv.Atoi(os.Getenv("GOSHMEM_TEST_STRESS")); err == nil {
		return n
	}
	return Times(2000)
}

// deviceStress makes random puts into slots of device and host memory at the next PE,
// which checks every payload on seeing its signal.
func deviceStress(e *Env) {
	const slots, most, room = 32, 8192, 1 << 20
	src := e.Dev(room)
	dev, host := e.Dev(slots*most), e.Mem(slots*most)
	sigs := e.Signals(2)
	all := make([]byte, room)
	fill(all, e.Rank(), 0)
	e.save(src, all)
	to, from := e.Next(1), e.Next(-1)
	n := stressPuts() / e.Size()
	e.Barrier()
	shape := func(r *rand.Rand) (at, size int, toHost bool) {
		size = r.IntN(most + 1)
		if r.IntN(2) == 0 {
			size = r.IntN(65)
		}
		return r.IntN(room - size), size, r.IntN(8) != 0
	}
	other, err := e.P.Team().NewContext(e.Ctx)
	e.OK(err)
	e.Go(2, func(who int) {
		if who == 0 {
			mine := rand.New(rand.NewPCG(uint64(e.Rank()), 1))
			for i := range n {
				if i >= slots {
					e.OK(rma.WaitSignal(e.Ctx, e.C, sigs.At(1), rma.GE, uint64(i-slots+1), rma.From(to)))
				}
				at, size, toHost := shape(mine)
				dst := dev
				if toHost {
					dst = host
				}
				_, err := rma.PutLocalSignalNBI(e.C, dst.Add(uint64(i%slots*most)), rma.At(src.Add(uint64(at)), int64(size)), sigs.At(0), rma.SignalAdd, 1, to)
				e.OK(err)
			}
			return
		}
		theirs := rand.New(rand.NewPCG(uint64(from), 1))
		buf := make([]byte, most)
		for i := range n {
			e.OK(rma.WaitSignal(e.Ctx, other, sigs.At(0), rma.GE, uint64(i+1), rma.From(from)))
			at, size, toHost := shape(theirs)
			got := e.Bytes(host.Add(uint64(i%slots*most)), size)
			if !toHost {
				got = buf[:size]
				e.OK(rma.GetMem(other, got, dev.Add(uint64(i%slots*most)), e.Rank()))
			}
			e.check(got, from, at, fmt.Sprintf("put %d of %d B", i, size))
			e.OK(rma.Signal(other, sigs.At(1), rma.SignalAdd, 1, from))
		}
	})
	e.OK(other.Free(e.Ctx))
}

// deviceAMO: atomic with each other, whoever issues them.
func deviceAMO(e *Env) {
	word, err := pe.CallocDeviceArray[uint64](e.Ctx, e.P, 8)
	e.OK(err)
	small, err := pe.CallocDeviceArray[int32](e.Ctx, e.P, 8)
	e.OK(err)
	real, err := pe.CallocDeviceArray[float64](e.Ctx, e.P, 8)
	e.OK(err)
	e.Barrier()
	const rounds = 40
	for i := range rounds {
		e.OK(amo.Add(e.C, word.At(0), uint64(i), 0))
		_, err := amo.FetchAdd(e.C, small.At(0), -1, 0)
		e.OK(err)
		e.OK(amo.Add(e.C, real.At(0), 0.5, 0))
		for { // an increment by compare and swap
			old, err := amo.Fetch(e.C, word.At(1), 0)
			e.OK(err)
			have, err := amo.CompareSwap(e.C, word.At(1), old, old+1, 0)
			e.OK(err)
			if have == old {
				break
			}
		}
	}
	e.OK(rma.Quiet(e.Ctx, e.C))
	e.Barrier()
	v, err := amo.Fetch(e.C, word.At(0), 0)
	e.OK(err)
	e.Equal(uint64(e.Size()*rounds*(rounds-1)/2), v)
	v, err = amo.Fetch(e.C, word.At(1), 0)
	e.OK(err)
	e.Equal(uint64(e.Size()*rounds), v)
	s, err := amo.Fetch(e.C, small.At(0), 0)
	e.OK(err)
	e.Equal(int32(-e.Size()*rounds), s)
	f, err := amo.Fetch(e.C, real.At(0), 0)
	e.OK(err)
	e.Equal(float64(e.Size()*rounds)/2, f)
	if e.Rank() == 0 {
		old, err := amo.Swap(e.C, small.At(1), 7, 0)
		e.OK(err)
		e.Equal(int32(0), old)
		old, err = amo.FetchXor(e.C, small.At(1), 2, 0)
		e.OK(err)
		e.Equal(int32(7), old)
		old, err = amo.FetchAnd(e.C, small.At(1), 4, 0)
		e.OK(err)
		e.Equal(int32(5), old)
		old, err = amo.FetchOr(e.C, small.At(1), 1, 0)
		e.OK(err)
		e.Equal(int32(4), old)
	}
	e.OK(rma.PutValue(e.C, word.At(3), uint64(e.Rank()+9), e.Next(1)))
	e.OK(rma.Quiet(e.Ctx, e.C))
	e.Barrier()
	v, err = rma.GetValue(e.C, word.At(3), e.Rank())
	e.OK(err)
	e.Equal(uint64(e.Next(-1)+9), v)
}

func deviceErrors(e *Env) {
	dev := e.Dev(4096)
	host := e.Mem(4096)
	sig := e.Signals(1).At(0)
	to := e.Next(1)
	_, err := e.P.LocalBytes(dev, 8)
	e.Is(err, errs.ErrKind)
	e.Is(rma.PutLocal(e.C, dev, rma.At(dev, deviceHeap+1), to), errs.ErrRange)
	e.Is(rma.PutLocal(e.C, dev.Add(deviceHeap), rma.At(dev, 8), to), errs.ErrRange)
	e.Is(rma.PutLocal(e.C, host, rma.At(dev, -1), to), errs.ErrRange)
	e.Is(rma.PutLocal(e.C, dev, rma.At(host, 8), e.Size()), errs.ErrPeer)
	e.Is(rma.PutLocal(e.C, dev.Add(8), rma.At(dev, 64), e.Rank()), errs.ErrAlias)
	e.Is(rma.GetLocal(e.C, rma.At(dev.Add(8), 64), dev, e.Rank()), errs.ErrAlias)
	e.OK(rma.PutLocal(e.C, dev, rma.At(dev, 64), e.Rank())) // itself
	e.Is(rma.PutLocalSignal(e.C, dev, rma.At(dev, 8), heap.MakeSignal(dev), rma.SignalAdd, 1, to), errs.ErrKind)
	e.Is(rma.PutLocalSignal(e.C, dev, rma.At(dev, 8), sig, 9, 1, to), errs.ErrConfig)
	word := heap.MakePtr[uint64](dev)
	ctx, cancel := context.WithTimeout(e.Ctx, 0)
	defer cancel()
	e.Is(rma.WaitUntil(ctx, e.C, word, rma.EQ, 1), errs.ErrKind)
	e.Is(rma.WaitSignal(ctx, e.C, heap.MakeSignal(dev), rma.EQ, 1), errs.ErrKind)
	e.Is(amo.Add(e.C, heap.MakePtr[uint64](dev.Add(4)), 1, to), errs.ErrAlign)
	e.OK(rma.Quiet(e.Ctx, e.C))
	e.Barrier()
}

// deviceFar is offsets beyond 4 GiB, and on a GPU 1 GiB at once.
func deviceFar(e *Env) {
	n := 1 << 20
	if e.Config.DeviceDriver == "cuda" {
		n = 1 << 30
	}
	const edge = 64 << 10
	far, src := e.Dev(4<<30+1<<30), e.Dev(n)
	sig := e.Signals(1).At(0)
	b := make([]byte, edge)
	for i, at := range []int{0, n / 2, n - edge} {
		fill(b, e.Rank()+10*i, 0)
		e.save(src.Add(uint64(at)), b)
	}
	dst := far.Add(4<<30 - edge - 3)
	to, from := e.Next(1), e.Next(-1)
	e.Barrier()
	_, err := rma.PutLocalSignalNBI(e.C, dst, rma.At(src, int64(n)), sig, rma.SignalAdd, 1, to)
	e.OK(err)
	e.OK(rma.WaitSignal(e.Ctx, e.C, sig, rma.GE, 1, rma.From(from)))
	for i, at := range []int{0, n / 2, n - edge} {
		e.check(e.load(dst.Add(uint64(at)), edge), from+10*i, 0, fmt.Sprintf("at %d", at))
	}
	e.OK(rma.GetLocal(e.C, rma.At(src, int64(n)), dst, to))
	e.check(e.load(src.Add(uint64(n-edge)), edge), e.Rank()+20, 0, "got back")
	e.Barrier()
}
