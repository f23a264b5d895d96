package moe

import (
	"encoding/binary"
	"math"

	"goshmem/moe/bf16"
)

// add adds len(acc) elements of elem bytes, little-endian, to acc.
func add(acc []float32, src []byte, elem int64) {
	if elem == bf16.Size {
		src = src[:bf16.Size*len(acc)]
		for len(acc) >= 4 && len(src) >= 8 {
			v := binary.LittleEndian.Uint64(src)
			acc[0] += math.Float32frombits(uint32(v) << 16)
			acc[1] += math.Float32frombits(uint32(v) & 0xffff0000)
			acc[2] += math.Float32frombits(uint32(v>>32) << 16)
			acc[3] += math.Float32frombits(uint32(v>>32) & 0xffff0000)
			acc, src = acc[4:], src[8:]
		}
		for i := range acc {
			acc[i] += bf16.ToFloat32(binary.LittleEndian.Uint16(src[bf16.Size*i:]))
		}
		return
	}
	src = src[:4*len(acc)]
	for i := range acc {
		acc[i] += math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// addScaled adds len(acc) elements of elem bytes times w to acc. The product is
// rounded to float32 before it is added: the conversion forbids the compiler to
// fuse the two.
func addScaled(acc []float32, src []byte, elem int64, w float32) {
	if elem == bf16.Size {
		src = src[:bf16.Size*len(acc)]
		for len(acc) >= 4 && len(src) >= 8 {
			v := binary.LittleEndian.Uint64(src)
			acc[0] += float32(math.Float32frombits(uint32(v)<<16) * w)
			acc[1] += float32(math.Float32frombits(uint32(v)&0xffff0000) * w)
			acc[2] += float32(math.Float32frombits(uint32(v>>32)<<16) * w)
			acc[3] += float32(math.Float32frombits(uint32(v>>32)&0xffff0000) * w)
			acc, src = acc[4:], src[8:]
		}
		for i := range acc {
			acc[i] += float32(bf16.ToFloat32(binary.LittleEndian.Uint16(src[bf16.Size*i:])) * w)
		}
		return
	}
	src = src[:4*len(acc)]
	for i := range acc {
		acc[i] += float32(math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:])) * w)
	}
}
