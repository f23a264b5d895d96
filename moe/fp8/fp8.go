// Package fp8 casts rows of bfloat16 to e4m3 with a float32 scale for each block of
// 128 channels, and back: a value is its code times the scale of its block.
//
// The scale is max(amax, 1e-4) / 448, amax being the largest magnitude of the block;
// a code is the value times 448 / max(amax, 1e-4), rounded to nearest even and
// saturated. Every step is float32, so that a device computes the same bits.
package fp8

import (
	"encoding/binary"
	"math"

	"goshmem/moe/bf16"
)

// Block is the number of channels that share a scale; the last block of a row may
// have fewer.
const Block = 128

// Most is the largest finite value of e4m3, Floor the least amax of a block.
const (
	Most  float32 = 448
	Floor float32 = 1e-4
)

// NaN is the code that every NaN gets.
const NaN uint8 = 0x7f

// Scales is the number of scales of a row.
func Scales(hidden int) int { return (hidden + Block - 1) / Block }

// FromFloat32 rounds to nearest even, saturating.
func FromFloat32(f float32) uint8 {
	u := math.Float32bits(f)
	sign, m := uint8(u>>24)&0x80, u&0x7fffffff
	switch {
	case m > 0x7f800000:
		return NaN
	case m >= math.Float32bits(Most):
		return sign | 0x7e
	case m < math.Float32bits(1.0/64): // subnormal: in units of 2^-9
		return sign | uint8(math.RoundToEven(float64(math.Float32frombits(m))*512))
	}
	m += 0x7ffff + m>>20&1
	return sign | uint8(m>>20-120<<3)
}

// ToFloat32 is exact.
func ToFloat32(q uint8) float32 {
	e, m := uint32(q>>3&15), uint32(q&7)
	var v float32
	switch {
	case q&0x7f == NaN:
		return float32(math.NaN())
	case e == 0:
		v = float32(m) / 512
	default:
		v = math.Float32frombits((e+120)<<23 | m<<20)
	}
	if q&0x80 != 0 {
		return -v
	}
	return v
}

// Encode casts rows of hidden bfloat16, little-endian, to q and scales, of
// len(x)/2 codes and Scales(hidden) scales a row.
func Encode(q []uint8, scales []float32, x []byte, hidden int) {
	at := 0
	for from := 0; from < len(x)/bf16.Size; from += hidden {
		for h := 0; h < hidden; h += Block {
			end := min(h+Block, hidden)
			most := float32(0)
			for i := h; i < end; i++ {
				if v := value(x, from+i); v > most {
					most = v
				} else if -v > most {
					most = -v
				}
			}
			most = max(most, Floor)
			down := Most / most
			for i := h; i < end; i++ {
				q[from+i] = FromFloat32(float32(value(x, from+i) * down))
			}
			scales[at] = most / Most
			at++
		}
	}
}

// Decode is the way back.
func Decode(x []byte, q []uint8, scales []float32, hidden int) {
	per := Scales(hidden)
	for i, c := range q {
		s := scales[i/hidden*per+i%hidden/Block]
		binary.LittleEndian.PutUint16(x[bf16.Size*i:], bf16.FromFloat32(float32(ToFloat32(c)*s)))
	}
}

func value(x []byte, i int) float32 {
	return bf16.ToFloat32(binary.LittleEndian.Uint16(x[bf16.Size*i:]))
}
