package libc

import (
	"bytes"
	"errors"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"goshmem/internal/dl"
	"goshmem/internal/errs"
)

// load skips only where the build has no library to load.
func load(t testing.TB) *Lib {
	t.Helper()
	l, err := Load()
	if errors.Is(err, errs.ErrUnsupported) && !dl.Loadable {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestMemcpy(t *testing.T) {
	l := load(t)
	for _, n := range []int{0, 1, 7, 8, 63, 64, 4096, 1<<20 + 3} {
		src, dst := make([]byte, n+2), make([]byte, n+2)
		for i := range src {
			src[i] = byte(i*7 + 1)
		}
		for _, iters := range []int{-1, 0, 1, 2, 3} {
			clear(dst)
			l.MemcpyN(unsafe.Pointer(&dst[1]), unsafe.Pointer(&src[1]), uintptr(n), iters)
			want := make([]byte, n+2)
			if iters > 0 {
				copy(want[1:n+1], src[1:n+1])
			}
			if !bytes.Equal(dst, want) {
				t.Errorf("%d B, %d times: wrong bytes", n, iters)
			}
		}
	}
}

// The loop keeps the registers and the stack that its caller counts on, also
// with collections and stack growth around it.
func TestMemcpyFromManyGoroutines(t *testing.T) {
	l := load(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			src := bytes.Repeat([]byte{byte(g + 1)}, 1000)
			dst := make([]byte, 1000)
			for i := range 100 {
				clear(dst)
				deep(g*i%50, func() {
					l.MemcpyN(unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), 1000, 1+i%5)
				})
				if !bytes.Equal(src, dst) {
					t.Error("wrong bytes")
					return
				}
			}
		})
	}
	for range 5 {
		runtime.GC()
	}
	wg.Wait()
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

func BenchmarkCrossing(b *testing.B) {
	l := load(b)
	for b.Loop() {
		l.MemcpyN(nil, nil, 0, 1)
	}
}

func BenchmarkLoopTurn(b *testing.B) {
	load(b).MemcpyN(nil, nil, 0, b.N)
}
