package oracle

import (
	"math"
	"slices"
)

// Output gives the vector that the expert chosen by (s, t, k) made of its row,
// hidden elements widened to float32.
type Output func(s, t, k int) []float32

// CombineAtSource is the combine with weights at the source, for rank s: [t][h]
// as bfloat16. bias has hidden elements, or is nil for none.
func CombineAtSource(in Input, s, hidden int, y Output, bias []float32) [][]uint16 {
	out := make([][]uint16, in.Tokens(s))
	for t := range out {
		acc := start(bias, hidden)
		for k := range in.TopK {
			if in.expert(s, t, k) < 0 {
				continue
			}
			for h, v := range y(s, t, k) {
				product := float32(v * in.weight(s, t, k))
				acc[h] = float32(acc[h] + product)
			}
		}
		out[t] = roundAll(acc)
	}
	return out
}

// CombineAtExpert is the combine with weights at the expert, for rank s: every
// rank that has experts of the token adds up its share and sends it, rounded to
// bfloat16 if asked; the shares are added by ascending rank.
func CombineAtExpert(in Input, s, hidden int, y Output, bias []float32, roundShares bool) [][]uint16 {
	out := make([][]uint16, in.Tokens(s))
	for t := range out {
		acc := start(bias, hidden)
		for d := range in.Ranks {
			block := Experts(in.Ranks, in.Experts, d)
			share := make([]float32, hidden)
			any := false
			for k := range in.TopK {
				if !slices.Contains(block, in.expert(s, t, k)) {
					continue
				}
				any = true
				for h, v := range y(s, t, k) {
					product := float32(v * in.weight(s, t, k))
					share[h] = float32(share[h] + product)
				}
			}
			if !any {
				continue
			}
			for h, v := range share {
				if roundShares {
					v = Widen(Round(v))
				}
				acc[h] = float32(acc[h] + v)
			}
		}
		out[t] = roundAll(acc)
	}
	return out
}

func start(bias []float32, hidden int) []float32 {
	acc := make([]float32, hidden)
	copy(acc, bias)
	return acc
}

func roundAll(acc []float32) []uint16 {
	out := make([]uint16, len(acc))
	for h, v := range acc {
		out[h] = Round(v)
	}
	return out
}

// Widen gives the value of a bfloat16.
func Widen(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// Round gives the nearest bfloat16, the even one of two equally near: 0x7fc0
// for what is not a number. A bfloat16 has the upper 16 bits of a float32, so
// the lower 16 bits say how far it is to the one below, in units of which the
// next one is 0x10000 away.
func Round(f float32) uint16 {
	if math.IsNaN(float64(f)) {
		return 0x7fc0
	}
	bits := math.Float32bits(f)
	below, rest := uint16(bits/0x10000), bits%0x10000
	nearerAbove := rest > 0x8000
	tie := rest == 0x8000
	odd := below%2 == 1
	if nearerAbove || tie && odd {
		return below + 1
	}
	return below
}
