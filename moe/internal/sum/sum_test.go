package sum

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"goshmem/moe/bf16"
)

// same compares float32 by their bits, all NaNs alike.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// noise is any bits at all for the elements, infinities, NaNs and subnormals
// among them.
func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func floats(b []byte) []float32 {
	f := make([]float32, len(b)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return f
}

func element(src []byte, elem int64, i int) float32 {
	if elem == 2 {
		return bf16.ToFloat32(binary.LittleEndian.Uint16(src[2*i:]))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
}

// Every length around the steps of the loops, at odd addresses, compared with
// one element at a time; what lies behind stays as it is.
func TestAgainstOneAtATime(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range 100 {
		for _, elem := range []int64{2, 4} {
			acc := floats(noise(rng, 4*(n+1)))
			src := noise(rng, int(elem)*n+1)[1:]
			w := math.Float32frombits(rng.Uint32())
			if n%3 > 0 {
				w = rng.Float32() - 0.5
			}
			added, scaled := append([]float32(nil), acc...), append([]float32(nil), acc...)
			Add(added[:n], src, elem)
			AddScaled(scaled[:n], src, elem, w)
			enc := noise(rng, int(elem)*n+2)[1:]
			last := enc[len(enc)-1]
			Encode(enc, acc[:n], elem)
			for i := range n {
				v := element(src, elem, i)
				if want := acc[i] + v; !same(added[i], want) {
					t.Fatalf("add %d of %d (%d B): %g, want %g", i, n, elem, added[i], want)
				}
				product := v * w
				if want := acc[i] + product; !same(scaled[i], want) {
					t.Fatalf("add scaled %d of %d (%d B): %g + %g*%g = %g, want %g", i, n, elem, acc[i], v, w, scaled[i], want)
				}
				want := acc[i]
				if elem == 2 {
					want = bf16.ToFloat32(bf16.FromFloat32(acc[i]))
				}
				if have := element(enc, elem, i); !same(have, want) {
					t.Fatalf("encode %d of %d (%d B): %g, want %g", i, n, elem, have, want)
				}
			}
			if !same(added[n], acc[n]) || !same(scaled[n], acc[n]) || enc[len(enc)-1] != last {
				t.Fatalf("%d elements of %d B: wrote past the end", n, elem)
			}
		}
	}
}

// Rounding to bfloat16 in bulk is that of package bf16, bit for bit: around every
// bfloat16, NaNs included.
func TestEncodeEveryBfloat16(t *testing.T) {
	lows := []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff}
	acc := make([]float32, 0, 1<<16*len(lows))
	for i := range uint32(1 << 16) {
		for _, low := range lows {
			acc = append(acc, math.Float32frombits(i<<16|low))
		}
	}
	have, want := make([]byte, 2*len(acc)), make([]byte, 2*len(acc))
	Encode(have, acc, 2)
	bf16.Encode(want, acc)
	for i := range acc {
		if have[2*i] != want[2*i] || have[2*i+1] != want[2*i+1] {
			t.Fatalf("%#08x: %x, want %x", math.Float32bits(acc[i]), have[2*i:2*i+2], want[2*i:2*i+2])
		}
	}
}

// The product loses its last bits before it is added; see the oracle's test of
// the same.
func TestNotFused(t *testing.T) {
	x := float32(1 + 1.0/(1<<12))
	for _, n := range []int{1, 16, 17} {
		acc, src := make([]float32, n), make([]byte, 4*n)
		for i := range acc {
			acc[i] = -(1 + 1.0/(1<<11))
			binary.LittleEndian.PutUint32(src[4*i:], math.Float32bits(x))
		}
		AddScaled(acc, src, 4, x)
		for i, v := range acc {
			if v != 0 {
				t.Fatalf("element %d of %d: %g", i, n, v)
			}
		}
	}
}

func BenchmarkAddScaledBF16(b *testing.B) {
	acc, src := make([]float32, 7168), make([]byte, 2*7168)
	b.SetBytes(2 * 7168)
	for b.Loop() {
		AddScaled(acc, src, 2, 0.5)
	}
}

func BenchmarkEncodeBF16(b *testing.B) {
	acc, dst := make([]float32, 7168), make([]byte, 2*7168)
	b.SetBytes(2 * 7168)
	for b.Loop() {
		Encode(dst, acc, 2)
	}
}
