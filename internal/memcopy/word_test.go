package memcopy

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

func TestWord(t *testing.T) {
	src := [...]uint64{0x8877665544332211, 0xffeeddccbbaa9988, 0}
	at := func(a *[3]uint64, off uintptr) unsafe.Pointer { return unsafe.Add(unsafe.Pointer(a), off) }
	bytes := func(a *[3]uint64) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(a)), len(a)*8) }
	for n := range uintptr(18) {
		for d := range uintptr(8) {
			for s := range uintptr(8) {
				var dst [3]uint64
				could := Word(at(&dst, d), at(&src, s), n)
				word := n == 1 || n == 2 || n == 4 || n == 8
				assert.Equal(t, word && d%n == 0 && s%n == 0, could, "%d B from %d to %d", n, s, d)
				var want [3]uint64
				if could {
					copy(bytes(&want)[d:], bytes(&src)[s:s+n])
				}
				assert.Equal(t, want, dst, "%d B from %d to %d", n, s, d)
			}
		}
	}
	assert.False(t, Word(nil, nil, 0))
}
