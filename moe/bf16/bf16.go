package bf16

import (
	"encoding/binary"
	"math"
)

// Size is the length of one value in bytes.
const Size = 2

// NaN is the bit pattern that FromFloat32 gives for every NaN.
const NaN uint16 = 0x7fc0

// ToFloat32 widens b. It is exact.
func ToFloat32(b uint16) float32 {
	return math.Float32frombits(uint32(b) << 16)
}

// FromFloat32 rounds f to nearest, ties to even.
func FromFloat32(f float32) uint16 {
	u := math.Float32bits(f)
	if u&0x7fffffff > 0x7f800000 {
		return NaN
	}
	// Adding half a unit, less one when the kept half is even, carries into the
	// kept half exactly when rounding goes up.
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// Encode rounds src into dst, little-endian, and returns the number of bytes
// written: 2*len(src). dst must be that long.
func Encode(dst []byte, src []float32) int {
	dst = dst[:Size*len(src)]
	for i, f := range src {
		binary.LittleEndian.PutUint16(dst[Size*i:], FromFloat32(f))
	}
	return len(dst)
}

// Decode widens len(dst) values of src, little-endian, into dst and returns the
// number of bytes read. src must be that long.
func Decode(dst []float32, src []byte) int {
	src = src[:Size*len(dst)]
	for i := range dst {
		dst[i] = ToFloat32(binary.LittleEndian.Uint16(src[Size*i:]))
	}
	return len(src)
}
