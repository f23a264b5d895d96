package memcopy

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// Sizes around every threshold, at odd addresses: the bytes arrive and their
// neighbours stay.
func TestStream(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, n := range []int{0, 1, 255, 256, StreamMin - 1, StreamMin, StreamMin + 1, 14336, Piece - 1, Piece, Piece + 1, Piece + 100, 3*Piece + 7} {
		for _, at := range []int{0, 1, 31, 64} {
			src := make([]byte, n+at, n+at+1) // a pointer behind the last byte stays inside
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			dst := bytes.Repeat([]byte{0xa5}, n+at+1)
			Stream(unsafe.Add(unsafe.Pointer(unsafe.SliceData(dst)), at), unsafe.Add(unsafe.Pointer(unsafe.SliceData(src)), at), uintptr(n))
			want := append(append(bytes.Repeat([]byte{0xa5}, at), src[at:]...), 0xa5)
			if !bytes.Equal(dst, want) {
				t.Fatalf("%d bytes at +%d", n, at)
			}
		}
	}
	Stream(nil, nil, 0)
}
