package memcopy

import (
	"unsafe"

	"goshmem/internal/raceflag"
	"goshmem/internal/spin"
)

// Thresholds, measured between two different memfd mappings, already touched,
// on two cores of an EPYC of family 25 model 17 (L2 1 MiB, L3 32 MiB), GB/s;
// "hot" repeats one pair of buffers, "cold" walks through 256 MiB:
//
//	size           libc   copy   REP MOVSB   non-temporal
//	4 KiB   hot     99*    107          82              7
//	64 KiB  hot     46      55          54             23
//	256 KiB hot     43      49          47             26
//	512 KiB hot     39      45          42             25
//	1000 KiB hot    36      41          40             25
//	1 MiB   hot     42      26          42             25
//	2 MiB   hot     38      25          38             25
//	4 MiB   hot     33      24          34             23
//	4 MiB   cold     9      13          11             16
//	6 MiB   hot     15      25          19             26
//	8 MiB   hot     22      25          25             24
//	8 MiB   cold     9      17          11             16
//	16 MiB  hot     11      19          13             21
//	16 MiB  cold    10      16          11             16
//	64 MiB  cold     9      17          12             16
//
// (* from C.) The built-in copy turns to non-temporal stores at 1 MiB by itself,
// too early for data that its reader takes from the cache. Four pages
// interleaved, prefetching and AVX-512 stores gained nothing.
const (
	// RepMin is the first size copied by REP MOVSB, and the size from which
	// source and destination must not overlap.
	RepMin = 1 << 20
	// NTMin is the first size copied by non-temporal stores.
	NTMin = 6 << 20
	// Piece is the most that is copied between two preemption points. (A
	// garbage collection waits for one: 1 MiB takes 25 to 100 us.)
	Piece = 1 << 20
)

// Copy copies n bytes from src to dst. Below [RepMin] the two may overlap, as
// with the built-in copy; from there on they must not. n = 0 touches nothing
// and the pointers may be nil. It never allocates. Memory without access
// raises the fault that any Go access raises.
func Copy(dst, src unsafe.Pointer, n uintptr) {
	if raceflag.Enabled && (n == 4 || n == 8) {
		raceflag.Release(dst) // it may be a word that its owner waits for
	}
	if n < RepMin {
		copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
		return
	}
	large(dst, src, n)
}

// large keeps Copy small enough to be inlined.
//
//go:noinline
func large(dst, src unsafe.Pointer, n uintptr) { pieces(route(n), dst, src, n) }

// pieces cuts a copy of n > 0 bytes, with a safepoint between two pieces.
func pieces(how method, dst, src unsafe.Pointer, n uintptr) {
	for {
		k := min(n, Piece)
		move(how, dst, src, k)
		n -= k
		if n == 0 {
			return
		}
		dst, src = unsafe.Add(dst, k), unsafe.Add(src, k)
		spin.Safepoint()
	}
}

// method is a way to copy one piece.
type method uint8

const (
	plain        method = iota // the built-in copy
	repMovsb                   // REP MOVSB
	nonTemporal                // VMOVNTDQ and SFENCE
	methodsCount               // for tests
)

// builtin copies one piece by the built-in copy.
func builtin(dst, src unsafe.Pointer, n uintptr) {
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}
