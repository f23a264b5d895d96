package memcopy

import (
	"fmt"
	"testing"
	"unsafe"

	"goshmem/internal/libc"
	"goshmem/internal/shm"
)

// shared maps n bytes of a fresh segment and touches them.
func shared(b *testing.B, n int) unsafe.Pointer {
	b.Helper()
	seg, err := shm.Create("memcopy-bench", int64(n), false)
	if err != nil {
		b.Fatal(err)
	}
	rng, err := shm.Reserve(int64(n))
	if err != nil {
		b.Fatal(err)
	}
	p, err := rng.Map(seg.FD(), 0, 0, seg.Size())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = rng.Unmap(), seg.Close() })
	mem := unsafe.Slice((*byte)(p), n)
	for i := range mem {
		mem[i] = byte(i * 7)
	}
	return p
}

// BenchmarkCopy compares with the built-in copy, with every method alone and
// with libc, between two shared mappings. "hot" repeats one pair of buffers,
// "cold" walks through 256 MiB.
func BenchmarkCopy(b *testing.B) {
	const total = 256 << 20
	dst, src := shared(b, total), shared(b, total)
	type way struct {
		name string
		f    func(dst, src unsafe.Pointer, n uintptr)
		loop func(dst, src unsafe.Pointer, n uintptr, iters int) // hot only, nil: call f
	}
	ways := []way{{"goshmem", Copy, nil}, {"builtin", builtin, nil}}
	if lib, err := libc.Load(); err == nil {
		ways = append(ways, way{"libc", func(d, s unsafe.Pointer, n uintptr) { lib.MemcpyN(d, s, n, 1) }, lib.MemcpyN})
	}
	for m, name := range []string{repMovsb: "movsb", nonTemporal: "nt"} {
		if m := method(m); m != plain && available(m) {
			ways = append(ways, way{name, func(d, s unsafe.Pointer, n uintptr) {
				for ; n > 0; d, s = unsafe.Add(d, min(n, Piece)), unsafe.Add(s, min(n, Piece)) {
					k := min(n, Piece)
					move(m, d, s, k)
					n -= k
				}
			}, nil})
		}
	}
	for _, size := range []int{8, 64, 4 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 6 << 20, 8 << 20, 16 << 20, 64 << 20} {
		for _, w := range ways {
			b.Run(fmt.Sprintf("hot/%d/%s", size, w.name), func(b *testing.B) {
				b.SetBytes(int64(size))
				if w.loop != nil {
					w.loop(dst, src, uintptr(size), b.N)
					return
				}
				for b.Loop() {
					w.f(dst, src, uintptr(size))
				}
			})
			if size < 1<<20 {
				continue
			}
			b.Run(fmt.Sprintf("cold/%d/%s", size, w.name), func(b *testing.B) {
				b.SetBytes(int64(size))
				at := 0
				for b.Loop() {
					w.f(unsafe.Add(dst, at), unsafe.Add(src, at), uintptr(size))
					if at += size; at+size > total {
						at = 0
					}
				}
			})
		}
	}
}
