package devicetest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"goshmem/channel"
	"goshmem/internal/errs"
	"goshmem/nvlink/device"
)

// Conform runs the tests on device 0 of a driver, with each way of sharing.
func Conform(t *testing.T, drv device.Driver, shares ...device.Share) {
	all, err := drv.Devices()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	require.NotEmpty(t, all[0].UUID)
	_, err = drv.Open(len(all))
	require.Error(t, err)
	p, err := drv.Pair(0, 0)
	require.NoError(t, err)
	require.True(t, p.Access && p.Atomics)
	for _, share := range shares {
		for _, c := range []struct {
			name string
			run  func(*rig)
		}{
			{"copies", copies}, {"rows", rows}, {"batch", batch}, {"behind", behind},
			{"words", words}, {"waits", waits}, {"atomics", atomics}, {"totals", totals}, {"sums", sums},
			{"resident", resident}, {"exchanges", exchanges}, {"export", export}, {"far", far}, {"wrap", wrap},
		} {
			t.Run(fmt.Sprintf("%s/%s", share, c.name), func(t *testing.T) { c.run(newRig(t, drv, share)) })
		}
	}
	t.Run("again", func(t *testing.T) { // a device outlives its users
		d, err := drv.Open(0)
		require.NoError(t, err)
		for range 2 {
			s, err := drv.NewSpace([]device.Device{d}, 1, 4096, shares[0])
			require.NoError(t, err)
			_, err = s.Create(0, d, false)
			require.NoError(t, err)
			require.NoError(t, s.Close())
		}
		require.NoError(t, d.Close())
		require.NoError(t, d.Close())
	})
}

const heapSize = 4 << 20

// rig is a device with two slots of memory, a stream and pinned memory.
type rig struct {
	*testing.T
	drv   device.Driver
	dev   device.Device
	space device.Space
	s     device.Stream
	a, b  uint64 // the slots
	host  []byte // pinned
	addr  uint64 // of host
}

func newRig(t *testing.T, drv device.Driver, share device.Share) *rig {
	r := &rig{T: t, drv: drv}
	var err error
	r.dev, err = drv.Open(0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.dev.Close()) })
	r.space, err = drv.NewSpace([]device.Device{r.dev}, 2, heapSize, share)
	require.NoError(t, err)
	require.Equal(t, share, r.space.Share())
	t.Cleanup(func() { require.NoError(t, r.space.Close()) })
	for i := range 2 {
		h, err := r.space.Create(i, r.dev, false)
		require.NoError(t, err)
		require.Equal(t, -1, h.FD)
	}
	r.a, r.b = r.space.Addr(0), r.space.Addr(1)
	base, addr, err := r.dev.Pinned(2 * heapSize)
	require.NoError(t, err)
	r.host, r.addr = unsafe.Slice((*byte)(base), 2*heapSize), addr
	r.s = r.stream()
	return r
}

func (r *rig) stream() device.Stream {
	s, err := r.dev.NewStream()
	require.NoError(r, err)
	r.Cleanup(func() { r.in(s.Close) })
	return s
}

// in makes a call with the device current.
func (r *rig) in(f func() error) {
	r.Helper()
	require.NoError(r, r.dev.Enter())
	defer r.dev.Leave()
	require.NoError(r, f())
}

// idle waits until a stream has done everything.
func (r *rig) idle(s device.Stream) {
	r.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		var err error
		r.in(func() error { err = s.Poll(); return nil })
		if err == nil {
			return
		}
		require.ErrorIs(r, err, errs.ErrWouldBlock)
		require.True(r, time.Now().Before(end), "the stream's work does not end")
	}
}

func (r *rig) word(off int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&r.host[off])) }

// await waits until a word of pinned memory is v.
func (r *rig) await(off int, v uint64) {
	r.Helper()
	for end := time.Now().Add(20 * time.Second); r.word(off).Load() != v; {
		require.True(r, time.Now().Before(end), "word %#x is %d, want %d", off, r.word(off).Load(), v)
	}
}

func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*31 + i>>8 + seed*7 + 1)
	}
}

func copies(r *rig) {
	for _, n := range []int{0, 1, 7, 8, 9, 4096, 4097, 65536, 1 << 20, 3<<20 + 1} {
		for _, skew := range []uint64{0, 8, 3} {
			in, out := r.host[:n], r.host[heapSize:heapSize+n]
			pattern(in, n)
			clear(out)
			r.in(func() error { return r.s.Copy(r.a+skew, r.addr, uint64(n)) })
			r.in(func() error { return r.s.Copy(r.b+2*skew, r.a+skew, uint64(n)) })
			r.in(func() error { return r.s.Copy(r.addr+heapSize, r.b+2*skew, uint64(n)) })
			r.idle(r.s)
			require.Equal(r, in, out)
		}
	}
	r.in(func() error { return r.s.Fill(r.a, 0x77, 100) })
	r.in(func() error { return r.s.Copy(r.addr, r.a, 101) })
	r.idle(r.s)
	require.Equal(r, byte(0x77), r.host[99])
	require.NotEqual(r, byte(0x77), r.host[100])
}

func rows(r *rig) {
	pattern(r.host[:heapSize], 1)
	clear(r.host[heapSize:])
	r.in(func() error { return r.s.Copy(r.a, r.addr, heapSize) })
	r.in(func() error { return r.s.Copy(r.b, r.addr+heapSize, heapSize) })
	r.in(func() error { return r.s.CopyRows(r.b, r.a, 12, 20, 4, 1000) })
	r.in(func() error { return r.s.CopyRows(r.b+1<<20, r.a, 8, 24, 8, 1) })
	r.in(func() error { return r.s.CopyRows(r.b, r.a, 12, 20, 4, 0) })
	r.in(func() error { return r.s.Copy(r.addr+heapSize, r.b, heapSize) })
	r.idle(r.s)
	for i := range 1000 {
		require.Equal(r, r.host[20*i:20*i+4], r.host[heapSize+12*i:heapSize+12*i+4])
		require.Equal(r, make([]byte, 8), r.host[heapSize+12*i+4:heapSize+12*i+12])
	}
	require.Equal(r, r.host[:8], r.host[heapSize+1<<20:][:8])
}

func batch(r *rig) {
	pattern(r.host[:heapSize], 2)
	r.in(func() error { return r.s.Copy(r.a, r.addr, heapSize) })
	b := &device.Batch{}
	for i := range uint64(64) {
		b.Add(r.b+8192*i, r.a+8192*(63-i), 4096+i)
	}
	require.True(r, b.Overlaps(r.b+4000, 200, false))
	require.False(r, b.Overlaps(r.b+4096+4, 100, false))
	require.True(r, b.Overlaps(r.a+8192*63, 1, true))
	for range 3 {
		r.in(func() error { return r.s.CopyBatch(b) })
	}
	r.in(func() error { return r.s.Copy(r.addr+heapSize, r.b, heapSize) })
	r.idle(r.s)
	for i := range 64 {
		require.Equal(r, r.host[8192*(63-i):][:4096+i], r.host[heapSize+8192*i:][:4096+i])
	}
	b.Reset()
	r.in(func() error { return r.s.CopyBatch(b) })
	b.Add(r.b, r.a+5, 77)
	r.in(func() error { return r.s.CopyBatch(b) })
	r.in(func() error { return r.s.Copy(r.addr+heapSize, r.b, 77) })
	r.idle(r.s)
	require.Equal(r, r.host[5:82], r.host[heapSize:heapSize+77])
}

// Words behind a copy show the whole copy.
func behind(r *rig) {
	b := &device.Batch{}
	for _, n := range []uint64{0, 1, 8, 100, 4096, 10000, 65536} {
		for round := range 20 {
			v := n<<8 + uint64(round) + 1
			pattern(r.host[4096:4096+n], int(v))
			out := r.host[heapSize : heapSize+n]
			clear(out)
			r.in(func() error { return r.s.Copy(r.a, r.addr+4096, n) })
			ws := []device.Word{{Addr: r.addr, Value: v, Wide: true}, {Addr: r.addr + 8, Value: v + 1, Wide: true}}
			b.Reset()
			b.Add(r.addr+heapSize, r.a, n)
			r.in(func() error { return r.s.CopyWrite(b, ws) })
			r.await(8, v+1)
			require.Equal(r, v, r.word(0).Load())
			require.Equal(r, r.host[4096:4096+n], out)
			r.idle(r.s) // the source is written next
		}
	}
	// Many at once.
	pattern(r.host[:heapSize], 3)
	r.in(func() error { return r.s.Copy(r.a, r.addr, heapSize) })
	r.in(func() error { return r.s.Fill(r.b, 0, heapSize) })
	b.Reset()
	for i := range uint64(device.MaxKernelCopies) {
		b.Add(r.b+i*40000, r.a+i*40001, i*1000)
	}
	r.in(func() error { return r.s.CopyWrite(b, nil) })
	r.in(func() error { return r.s.CopyWrite(b, nil) })
	r.in(func() error { return r.s.Copy(r.addr+heapSize, r.b, heapSize) })
	r.idle(r.s)
	for i := range device.MaxKernelCopies {
		require.Equal(r, r.host[i*40001:][:i*1000], r.host[heapSize+i*40000:][:i*1000])
		require.Zero(r, r.host[heapSize+i*40000+i*1000])
	}
	b.Add(r.b, r.a, 1)
	require.ErrorIs(r, r.s.CopyWrite(b, nil), errs.ErrRange)
	b.Reset()
	r.in(func() error { return r.s.CopyWrite(b, []device.Word{{Addr: r.addr, Value: 5, Wide: true}}) })
	r.await(0, 5)
}

func words(r *rig) {
	ws := make([]device.Word, 20)
	for i := range ws {
		ws[i] = device.Word{Addr: r.a + uint64(8*i), Value: uint64(i) | 1<<40, Wide: i%2 == 0}
	}
	r.in(func() error { return r.s.Fill(r.a, 0, 4096) })
	r.in(func() error { return r.s.Write(ws) })
	r.in(func() error { return r.s.Write([]device.Word{{Addr: r.addr + 800, Value: 1 << 50, Wide: true}}) })
	r.in(func() error { return r.s.Write(nil) })
	r.in(func() error { return r.s.Copy(r.addr, r.a, 160) })
	r.idle(r.s)
	for i := range 20 {
		want := uint64(i)
		if i%2 == 0 {
			want |= 1 << 40
		}
		require.Equal(r, want, r.word(8*i).Load())
	}
	require.Equal(r, uint64(1<<50), r.word(800).Load())
}

// A stream that waits holds up nobody else, and goes on behind its word.
func waits(r *rig) {
	other := r.stream()
	r.word(0).Store(0)
	r.word(8).Store(0)
	r.in(func() error { return r.s.WaitGE(r.addr, 3) })
	r.in(func() error { return r.s.Write([]device.Word{{Addr: r.addr + 8, Value: 9, Wide: true}}) })
	r.in(func() error { return other.Write([]device.Word{{Addr: r.addr + 16, Value: 5, Wide: true}}) })
	r.await(16, 5)
	require.Zero(r, r.word(8).Load())
	r.in(func() error { require.ErrorIs(r, r.s.Poll(), errs.ErrWouldBlock); return nil })
	r.word(0).Store(4)
	r.await(8, 9)
	r.idle(r.s)
}

func atomics(r *rig) {
	const fetch, set, add, swap, cas, and, or, xor = 7, 8, 9, 10, 11, 12, 13, 14
	do := func(op, size uint32, float bool, v, cond uint64) uint64 {
		r.in(func() error {
			return r.s.AMO(&device.AMO{Op: op, Size: size, Float: float, Addr: r.a + 64, Operand: v, Cond: cond, Old: r.addr})
		})
		r.idle(r.s)
		return r.word(0).Load()
	}
	for _, size := range []uint32{8, 4} {
		r.in(func() error { return r.s.Fill(r.a, 0, 4096) })
		require.Equal(r, uint64(0), do(add, size, false, 5, 0))
		require.Equal(r, uint64(5), do(fetch, size, false, 0, 0))
		require.Equal(r, uint64(5), do(swap, size, false, 12, 0))
		require.Equal(r, uint64(12), do(cas, size, false, 1, 13))
		require.Equal(r, uint64(12), do(cas, size, false, 14, 12))
		require.Equal(r, uint64(14), do(and, size, false, 6, 0))
		require.Equal(r, uint64(6), do(or, size, false, 9, 0))
		require.Equal(r, uint64(15), do(xor, size, false, 3, 0))
		require.Equal(r, uint64(12), do(set, size, false, 0, 0))
	}
	do(set, 8, true, 0x3ff8000000000000, 0) // 1.5
	do(add, 8, true, 0x3fe0000000000000, 0) // 0.5
	require.Equal(r, uint64(0x4000000000000000), do(fetch, 8, true, 0, 0))
	do(set, 4, true, 0x3fc00000, 0)
	do(add, 4, true, 0x3f000000, 0)
	require.Equal(r, uint64(0x40000000), do(fetch, 4, true, 0, 0))
	// Many streams, one word.
	r.in(func() error { return r.s.Fill(r.a, 0, 4096) })
	r.idle(r.s)
	streams := []device.Stream{r.stream(), r.stream(), r.stream()}
	for range 50 {
		for _, s := range streams {
			r.in(func() error { return s.AMO(&device.AMO{Op: add, Size: 8, Addr: r.a + 64, Operand: 2}) })
		}
	}
	for _, s := range streams {
		r.idle(s)
	}
	require.Equal(r, uint64(300), do(fetch, 8, false, 0, 0))
}

func totals(r *rig) {
	total, err := r.dev.Alloc(64)
	require.NoError(r, err)
	r.word(0).Store(0)
	for i := range 10 {
		r.in(func() error { return r.s.Add(total, r.addr, uint64(i)) })
	}
	r.idle(r.s)
	require.Equal(r, uint64(45), r.word(0).Load())
	sum := uint64(45)
	for i, n := range []int{0, 1, 8, 4097, 65536} {
		pattern(r.host[4096:4096+n], i)
		in := r.addr + 4096
		r.in(func() error { return r.s.Copy(r.a, in, uint64(n)) })
		r.in(func() error { return r.s.CopyAdd(r.addr+heapSize, r.a, uint64(n), total, r.addr, uint64(n+1)) })
		sum += uint64(n + 1)
		r.await(0, sum)
		require.Equal(r, r.host[4096:4096+n], r.host[heapSize:heapSize+n])
		r.idle(r.s) // the source is written next
	}
}

func sums(r *rig) {
	base, err := r.dev.Alloc(64)
	require.NoError(r, err)
	clear(r.host[:4096])
	sum := &device.Sum{Cells: r.addr, N: 7, Cmp: 3, Value: 5, Base: base, Consume: true, Stop: r.addr + 256, Failed: r.addr + 320, Limit: uint64(20 * time.Second)}
	behind := func(v uint64) {
		r.in(func() error { return r.s.WaitSum(sum) })
		r.in(func() error { return r.s.Write([]device.Word{{Addr: r.addr + 512, Value: v, Wide: true}}) })
	}
	behind(1)
	r.word(0).Store(2)
	r.word(56).Store(100) // counts claims: no part of the value
	require.Zero(r, r.word(512).Load())
	r.word(48).Store(3)
	r.await(512, 1)
	behind(2) // for five more than those
	r.word(8).Store(5)
	r.await(512, 2)
	require.Zero(r, r.word(320).Load())
	behind(3)
	r.word(256).Store(1)
	r.await(512, 3)
	require.Equal(r, uint64(1), r.word(320).Load())
	r.word(256).Store(0)
	r.word(320).Store(0)
	sum.Limit = uint64(time.Millisecond)
	behind(4)
	r.await(512, 4)
	require.Equal(r, uint64(1), r.word(320).Load())
}

// What is exported is a descriptor or bytes, never both or nothing; a descriptor
// can be imported in the same process too.
func export(r *rig) {
	s, err := r.drv.NewSpace([]device.Device{r.dev}, 2, heapSize, r.space.Share())
	require.NoError(r, err)
	h, err := s.Create(0, r.dev, true)
	require.NoError(r, err)
	require.NotEqual(r, h.FD >= 0, len(h.Data) > 0)
	if h.FD >= 0 {
		bad := h
		bad.Size++
		require.ErrorIs(r, s.Import(1, r.dev, bad), errs.ErrMismatch)
		require.NoError(r, s.Import(1, r.dev, h))
		require.NoError(r, unix.Close(h.FD))
		pattern(r.host[:4096], 4)
		r.in(func() error { return r.s.Copy(s.Addr(0), r.addr, 4096) })
		r.in(func() error { return r.s.Copy(r.addr+heapSize, s.Addr(1), 4096) })
		r.idle(r.s)
		require.Equal(r, r.host[:4096], r.host[heapSize:heapSize+4096])
	}
	require.NoError(r, s.Close())
}

// Offsets beyond 4 GiB.
func far(r *rig) {
	const size = 5 << 30
	s, err := r.drv.NewSpace([]device.Device{r.dev}, 1, size, r.space.Share())
	require.NoError(r, err)
	_, err = s.Create(0, r.dev, false)
	require.NoError(r, err)
	pattern(r.host[:4096], 5)
	at := s.Addr(0) + size - 4096
	r.in(func() error { return r.s.Fill(s.Addr(0), 0, 4096) })
	r.in(func() error { return r.s.Copy(at, r.addr, 4096) })
	r.in(func() error { return r.s.Copy(r.addr+heapSize, at, 4096) })
	r.in(func() error { return r.s.Copy(r.addr+heapSize+4096, s.Addr(0)+size-4096-(1<<32), 1) })
	r.idle(r.s)
	require.Equal(r, r.host[:4096], r.host[heapSize:heapSize+4096])
	require.NoError(r, s.Close())
}

func wrap(r *rig) {
	w, err := r.dev.Wrap(r.s.Handle())
	require.NoError(r, err)
	on, err := w.Capturing()
	require.NoError(r, err)
	require.False(r, on)
	r.in(func() error { return w.Write([]device.Word{{Addr: r.addr, Value: 11, Wide: true}}) })
	r.in(func() error { return w.Close() })
	r.in(func() error { return r.s.Write([]device.Word{{Addr: r.addr + 8, Value: 12, Wide: true}}) })
	r.await(8, 12)
	require.Equal(r, uint64(11), r.word(0).Load())
}

// A resident kernel serves puts of every size and alignment in order, ends when none
// comes, and goes on where the last one stopped.
func resident(r *rig) {
	const slots, rounds, page = 8, 300, 4096
	words := channel.WordRingSlots + slots*channel.SlotWords
	ring, err := channel.NewWordRing(unsafe.Slice((*uint64)(unsafe.Pointer(&r.host[0])), words))
	require.NoError(r, err)
	ended, served := r.word(page), r.word(8*channel.WordRingConsumed)
	ended.Store(0)
	pattern(r.host[2*page:2*page+80<<10], 6)
	pos, runs := uint64(0), uint64(0)
	serve := func() {
		runs++
		r.in(func() error {
			return r.s.Serve(&device.Resident{Ring: r.addr, Slots: slots, Start: served.Load(), Ended: r.addr + page, Run: runs, Idle: uint64(20 * time.Millisecond)})
		})
	}
	until := func(what string, cond func() bool) {
		for end := time.Now().Add(20 * time.Second); !cond(); {
			require.True(r, time.Now().Before(end), what)
			if ended.Load() == runs && served.Load() != pos { // this test was not run for as long as it waits
				serve()
			}
		}
	}
	await := func(what string, w *atomic.Uint64, v uint64) {
		until(what, func() bool { return w.Load() == v })
	}
	for _, burst := range []int{1, rounds, slots + 1} {
		serve()
		for i := range uint64(burst) {
			n, skew := i*37%4097*(1+i%5/4*16), []uint64{0, 8, 3}[i%3]
			src, dst := r.addr+2*page+skew, r.a+1<<20+skew*(i%2)
			// There and back, and behind it a word whose top bit is set.
			for _, d := range []channel.Desc{
				{Op: channel.OpPut, DstOff: dst, SrcOff: src, Size: n},
				{Op: channel.OpPut, DstOff: r.addr + heapSize, SrcOff: dst, Size: n, SigOff: r.addr + page + 64, SigVal: 1<<63 | i},
			} {
				until("no room", func() bool { return ring.HasRoom(pos + 1) })
				pos++
				ring.Write(pos, &d)
			}
			await("no signal", r.word(page+64), 1<<63|i)
			require.Equal(r, r.host[2*page+skew:][:n], r.host[heapSize:][:n])
		}
		await("not served", served, pos)
		until("it does not end", func() bool { return ended.Load() == runs })
	}
	r.idle(r.s)
}
