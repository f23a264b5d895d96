package memcopy

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// box is memory with guard bytes around every window that a test copies into.
type box struct {
	dst, src, guards []byte
}

const guard = 0xa5

func newBox(n int) *box {
	b := &box{make([]byte, n), make([]byte, n), bytes.Repeat([]byte{guard}, n)}
	for i := range b.src {
		b.src[i] = byte(i*131 + i>>8*17 + 3)
	}
	copy(b.dst, b.guards)
	return b
}

// check copies n bytes from src+so to dst+do by f, and looks at every byte of
// the window and at 256 bytes on both sides.
func (b *box) check(t *testing.T, name string, f func(d, s unsafe.Pointer, n uintptr), do, so, n int) {
	t.Helper()
	const around = 256
	f(unsafe.Pointer(&b.dst[do]), unsafe.Pointer(&b.src[so]), uintptr(n))
	if string(b.dst[do:do+n]) != string(b.src[so:so+n]) {
		t.Fatalf("%s: %d B from %d to %d: wrong bytes", name, n, so, do)
	}
	for i := max(0, do-around); i < do; i++ {
		if b.dst[i] != guard {
			t.Fatalf("%s: %d B from %d to %d: wrote before the destination", name, n, so, do)
		}
	}
	for i := do + n; i < min(len(b.dst), do+n+around); i++ {
		if b.dst[i] != guard {
			t.Fatalf("%s: %d B from %d to %d: wrote past the destination", name, n, so, do)
		}
	}
	copy(b.dst[do:do+n], b.guards)
}

func TestSmall(t *testing.T) {
	b := newBox(2048)
	for n := range 301 {
		for off := range 9 {
			b.check(t, "Copy", Copy, 512+off, 512+off*7%64, n)
		}
	}
}

func TestNilAndZero(t *testing.T) {
	Copy(nil, nil, 0)
	var x byte
	Copy(unsafe.Pointer(&x), nil, 0)
	Copy(nil, unsafe.Pointer(&x), 0)
}

func TestAllMethods(t *testing.T) {
	for m := plain; m < methodsCount; m++ {
		if !available(m) {
			continue
		}
		t.Run(fmt.Sprint(m), func(t *testing.T) {
			f := func(d, s unsafe.Pointer, n uintptr) { move(m, d, s, n) }
			b := newBox(8192)
			for n := range 700 {
				b.check(t, "move", f, 512+n%64, 512+n*5%64, n)
			}
			for do := range 64 {
				for so := range 64 {
					b.check(t, "move", f, 512+do, 512+so, 256+do)
					b.check(t, "move", f, 512+do, 512+so, 1027)
				}
			}
		})
	}
}

// Sizes around every threshold, and one of many pieces with an odd end.
func TestThresholds(t *testing.T) {
	const most = 33<<20 + 3
	b := newBox(most + 1024)
	for _, edge := range []int{4096, 64 << 10, 512 << 10, RepMin, 2 * RepMin, NTMin, NTMin + Piece} {
		for _, n := range []int{edge - 1, edge, edge + 1, edge + 63, edge + ntSmall, edge + ntSmall - 1} {
			b.check(t, "Copy", Copy, 256+n%61, 256+n%7, n)
		}
	}
	b.check(t, "Copy", Copy, 259, 256, most)
	b.check(t, "Copy", Copy, 256, 261, most)
}

// ntSmall is where the end of a large copy turns to the built-in copy.
const ntSmall = 256

// Any size at any place, with sizes spread over all magnitudes.
func TestAnyCopy(t *testing.T) {
	b := newBox(NTMin + 3*Piece)
	rapid.Check(t, func(r *rapid.T) {
		magnitude := rapid.IntRange(0, 22).Draw(r, "magnitude")
		n := rapid.IntRange(0, 2<<magnitude).Draw(r, "n")
		do := rapid.IntRange(256, 256+4096).Draw(r, "dst")
		so := rapid.IntRange(0, 4096).Draw(r, "src")
		b.check(t, "Copy", Copy, do, so, n)
	})
}

// Below RepMin the two may overlap.
func TestOverlap(t *testing.T) {
	for _, shift := range []int{-65, -1, 1, 63, 4096} {
		const n = RepMin - 1
		mem := make([]byte, n+2*8192)
		for i := range mem {
			mem[i] = byte(i * 31)
		}
		want := append([]byte(nil), mem[8192:8192+n]...)
		Copy(unsafe.Pointer(&mem[8192+shift]), unsafe.Pointer(&mem[8192]), n)
		if string(mem[8192+shift:8192+shift+n]) != string(want) {
			t.Errorf("shift %d: wrong bytes", shift)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	b := newBox(NTMin + 1)
	for _, n := range []int{8, 4096, RepMin - 1, RepMin + 5, NTMin + 1} {
		if a := testing.AllocsPerRun(3, func() {
			Copy(unsafe.Pointer(&b.dst[0]), unsafe.Pointer(&b.src[0]), uintptr(n))
		}); a != 0 {
			t.Errorf("%d B: %v allocations", n, a)
		}
	}
}

// A garbage collection gets past goroutines that copy without end.
func TestCanBeStopped(t *testing.T) {
	for _, n := range []int{RepMin, NTMin} {
		b := newBox(n)
		var stop atomic.Bool
		done, finished := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for !stop.Load() {
				Copy(unsafe.Pointer(&b.dst[0]), unsafe.Pointer(&b.src[0]), uintptr(n))
			}
		}()
		go func() {
			defer close(finished)
			for range 3 {
				runtime.GC()
			}
		}()
		select {
		case <-finished:
		case <-time.After(time.Minute):
			t.Errorf("%d B: garbage collection did not get past the copy", n)
		}
		stop.Store(true)
		<-done
	}
}

// A fault in the middle of any method is one that debug.SetPanicOnFault turns
// into a panic, as it does for plain Go accesses.
func TestFaultIsRecoverable(t *testing.T) {
	const size = 1 << 20
	mem, err := unix.Mmap(-1, 0, 2*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	if err := unix.Mprotect(mem[size/2:size], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	hole, whole := unsafe.Pointer(&mem[0]), unsafe.Pointer(&mem[size])
	for m := plain; m < methodsCount; m++ {
		if !available(m) {
			continue
		}
		for _, way := range []struct {
			name     string
			dst, src unsafe.Pointer
		}{{"store", hole, whole}, {"load", whole, hole}} {
			func() {
				defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
				defer func() {
					if _, ok := recover().(runtime.Error); !ok {
						t.Errorf("method %d, %s: no fault", m, way.name)
					}
				}()
				move(m, way.dst, way.src, size)
			}()
		}
	}
}
