package dl

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
	"goshmem/internal/raceflag"
)

func libc(t testing.TB, fn string) uintptr {
	t.Helper()
	l, err := Open("libc.so.6")
	if errors.Is(err, errs.ErrUnsupported) && !Loadable {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.Sym(fn)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// offHeap is memory that is not Go's.
func offHeap(t testing.TB) unsafe.Pointer {
	t.Helper()
	b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return unsafe.Pointer(unsafe.SliceData(b))
}

func TestOpenSaysWhatItLookedFor(t *testing.T) {
	_, err := Open("libnosuch.so.1", "libnosuch.so.2")
	if !errors.Is(err, errs.ErrUnsupported) || !strings.Contains(err.Error(), "libnosuch.so.1, libnosuch.so.2") {
		t.Error(err)
	}
	libc(t, "memcpy")
	l, err := Open("libnosuch.so.1", "libc.so.6")
	if err != nil || l.Name() != "libc.so.6" {
		t.Fatal(l, err)
	}
	if _, err := l.Sym("no_such_function"); !errors.Is(err, errs.ErrUnsupported) || !strings.Contains(err.Error(), "no_such_function") {
		t.Error(err)
	}
}

func TestCallGivesErrno(t *testing.T) {
	if r, errno := Call(libc(t, "close"), ^uintptr(0)); int32(r) != -1 || errno != unix.EBADF {
		t.Error(int32(r), errno)
	}
}

// The arguments arrive in order, the result comes back, from many goroutines and
// with collections and growing stacks around.
func TestFrame(t *testing.T) {
	memmove, strtoul := libc(t, "memmove"), libc(t, "strtoul")
	var wg sync.WaitGroup
	for g := range 4 {
		mem := offHeap(t)
		wg.Go(func() {
			f := (*Frame)(mem)
			text := unsafe.Slice((*byte)(unsafe.Add(mem, 256)), 64)
			for i := range 200 {
				copy(text, "7f"+string(rune('0'+g))+"\x00")
				*f = Frame{Fn: strtoul, Args: [4]uintptr{uintptr(unsafe.Pointer(&text[0])), 0, 16}}
				deep(i%50, func() { f.Call() })
				if f.Result != uintptr(0x7f0+g) {
					t.Errorf("got %#x", f.Result)
					return
				}
				*f = Frame{Fn: memmove, Args: [4]uintptr{uintptr(unsafe.Pointer(&text[32])), uintptr(unsafe.Pointer(&text[0])), 4}}
				if f.Call() != f.Args[0] || string(text[32:35]) != string(text[:3]) {
					t.Error("memmove")
					return
				}
			}
		})
	}
	for range 5 {
		runtime.GC()
	}
	wg.Wait()
	if got := String(unsafe.Pointer(unsafe.StringData("abc\x00"))); got != "abc" || String(nil) != "" {
		t.Error(got)
	}
}

func deep(n int, f func()) {
	var frame [512]byte
	if n == 0 {
		f()
	} else {
		deep(n-1, f)
	}
	runtime.KeepAlive(&frame)
}

func TestFrameDoesNotAllocate(t *testing.T) {
	f := (*Frame)(offHeap(t))
	f.Fn = libc(t, "abs")
	if n := testing.AllocsPerRun(100, func() { f.Call() }); n != 0 && !raceflag.Enabled && !slow {
		t.Error(n, "allocations a call")
	}
}

func BenchmarkFrame(b *testing.B) {
	f := (*Frame)(offHeap(b))
	f.Fn = libc(b, "abs")
	for b.Loop() {
		f.Call()
	}
}
