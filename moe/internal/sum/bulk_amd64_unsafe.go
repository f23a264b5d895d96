//go:build amd64 && !race

package sum

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// step is the number of elements of one turn of the assembly loops.
const step = 16

// bulk is how many of n elements the assembly does.
func bulk(n int) int {
	if !cpu.X86.HasAVX2 {
		return 0
	}
	return n &^ (step - 1)
}

// The assembly takes n > 0 elements, a multiple of step, at any alignment. Its
// callers have cut both slices to the same number of elements.

//go:noescape
func addBF16AVX2(acc *float32, src *byte, n uintptr)

//go:noescape
func addFP32AVX2(acc *float32, src *byte, n uintptr)

//go:noescape
func addScaledBF16AVX2(acc *float32, src *byte, n uintptr, w float32)

//go:noescape
func addScaledFP32AVX2(acc *float32, src *byte, n uintptr, w float32)

//go:noescape
func encodeBF16AVX2(dst *byte, acc *float32, n uintptr)

func addBF16Bulk(acc []float32, src []byte) int {
	n := bulk(len(acc))
	if n > 0 {
		addBF16AVX2(unsafe.SliceData(acc), unsafe.SliceData(src), uintptr(n))
	}
	return n
}

func addFP32Bulk(acc []float32, src []byte) int {
	n := bulk(len(acc))
	if n > 0 {
		addFP32AVX2(unsafe.SliceData(acc), unsafe.SliceData(src), uintptr(n))
	}
	return n
}

func addScaledBF16Bulk(acc []float32, src []byte, w float32) int {
	n := bulk(len(acc))
	if n > 0 {
		addScaledBF16AVX2(unsafe.SliceData(acc), unsafe.SliceData(src), uintptr(n), w)
	}
	return n
}

func addScaledFP32Bulk(acc []float32, src []byte, w float32) int {
	n := bulk(len(acc))
	if n > 0 {
		addScaledFP32AVX2(unsafe.SliceData(acc), unsafe.SliceData(src), uintptr(n), w)
	}
	return n
}

func encodeBF16Bulk(dst []byte, acc []float32) int {
	n := bulk(len(acc))
	if n > 0 {
		encodeBF16AVX2(unsafe.SliceData(dst), unsafe.SliceData(acc), uintptr(n))
	}
	return n
}
