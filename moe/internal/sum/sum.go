package sum

import (
	"encoding/binary"
	"math"

	"goshmem/moe/bf16"
)

// Add adds len(acc) elements of elem bytes (2: bfloat16, 4: float32,
// little-endian) to acc. src has at least so many.
func Add(acc []float32, src []byte, elem int64) {
	if elem == bf16.Size {
		src = src[:bf16.Size*len(acc)]
		n := addBF16Bulk(acc, src)
		addBF16(acc[n:], src[bf16.Size*n:])
		return
	}
	src = src[:4*len(acc)]
	n := addFP32Bulk(acc, src)
	addFP32(acc[n:], src[4*n:])
}

// AddScaled adds len(acc) elements of elem bytes, each times w, to acc.
func AddScaled(acc []float32, src []byte, elem int64, w float32) {
	if elem == bf16.Size {
		src = src[:bf16.Size*len(acc)]
		n := addScaledBF16Bulk(acc, src, w)
		addScaledBF16(acc[n:], src[bf16.Size*n:], w)
		return
	}
	src = src[:4*len(acc)]
	n := addScaledFP32Bulk(acc, src, w)
	addScaledFP32(acc[n:], src[4*n:], w)
}

// Encode writes acc to dst as elements of elem bytes, rounded to nearest even
// where they are bfloat16.
func Encode(dst []byte, acc []float32, elem int64) {
	if elem == bf16.Size {
		dst = dst[:bf16.Size*len(acc)]
		n := encodeBF16Bulk(dst, acc)
		bf16.Encode(dst[bf16.Size*n:], acc[n:])
		return
	}
	dst = dst[:4*len(acc)]
	for i, v := range acc {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
}

func addBF16(acc []float32, src []byte) {
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
}

func addFP32(acc []float32, src []byte) {
	for i := range acc {
		acc[i] += math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// The conversions of the products to float32, which they are, forbid the
// compiler to fuse multiplication and addition.

func addScaledBF16(acc []float32, src []byte, w float32) {
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
}

func addScaledFP32(acc []float32, src []byte, w float32) {
	for i := range acc {
		acc[i] += float32(math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:])) * w)
	}
}
