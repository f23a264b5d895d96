package bf16

import (
	"math"
	"math/rand/v2"
	"testing"
)

// nearest is the definition: of the two bfloat16 values around f, the closer
// one, the even one of a tie; distances are exact in float64.
func nearest(f float32) uint16 {
	if f != f {
		return NaN
	}
	u := math.Float32bits(f)
	down := uint16(u >> 16) // towards zero
	if u&0xffff == 0 {
		return down
	}
	up := down + 1 // away from zero; past the largest finite value: infinity
	lo := math.Abs(float64(ToFloat32(down)))
	hi := math.Abs(float64(ToFloat32(up)))
	if math.IsInf(hi, 0) {
		hi = math.Ldexp(1, 128) // the value that infinity stands for in rounding
	}
	x := math.Abs(float64(f))
	switch dLo, dHi := x-lo, hi-x; {
	case dLo < dHi:
		return down
	case dHi < dLo:
		return up
	case down&1 == 0:
		return down
	default:
		return up
	}
}

func TestEveryBfloat16SurvivesTheRoundTrip(t *testing.T) {
	for i := 0; i <= 0xffff; i++ {
		b := uint16(i)
		f := ToFloat32(b)
		if math.Float32bits(f) != uint32(b)<<16 {
			t.Fatalf("ToFloat32(%#04x) = %#08x", b, math.Float32bits(f))
		}
		want := b
		if b&0x7fff > 0x7f80 {
			want = NaN
		}
		if got := FromFloat32(f); got != want {
			t.Fatalf("FromFloat32(ToFloat32(%#04x)) = %#04x, want %#04x", b, got, want)
		}
	}
}

func TestRoundingAroundEveryBfloat16(t *testing.T) {
	lows := []uint32{0, 1, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff}
	for i := 0; i <= 0xffff; i++ {
		for _, low := range lows {
			f := math.Float32frombits(uint32(i)<<16 | low)
			if got, want := FromFloat32(f), nearest(f); got != want {
				t.Fatalf("FromFloat32(%#08x) = %#04x, want %#04x", math.Float32bits(f), got, want)
			}
		}
	}
}

func TestRandomFloats(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2_000_000 {
		f := math.Float32frombits(rng.Uint32())
		if got, want := FromFloat32(f), nearest(f); got != want {
			t.Fatalf("FromFloat32(%#08x) = %#04x, want %#04x", math.Float32bits(f), got, want)
		}
	}
}

func TestNamedValues(t *testing.T) {
	for _, c := range []struct {
		name string
		in   float32
		want uint16
	}{
		{"one", 1, 0x3f80},
		{"minus zero", float32(math.Copysign(0, -1)), 0x8000},
		{"tie goes to even, down", math.Float32frombits(0x3f808000), 0x3f80},
		{"tie goes to even, up", math.Float32frombits(0x3f818000), 0x3f82},
		{"largest float32 overflows", math.MaxFloat32, 0x7f80},
		{"smallest subnormal", math.SmallestNonzeroFloat32, 0},
		{"infinity", float32(math.Inf(-1)), 0xff80},
		{"signalling NaN", math.Float32frombits(0xff800001), NaN},
	} {
		if got := FromFloat32(c.in); got != c.want {
			t.Errorf("%s: %#04x, want %#04x", c.name, got, c.want)
		}
	}
}

func TestSlices(t *testing.T) {
	in := []float32{0, 1, -2.5, 3.140625, 1e38, -1e-40}
	buf := make([]byte, Size*len(in))
	if n := Encode(buf, in); n != len(buf) {
		t.Fatalf("Encode wrote %d bytes", n)
	}
	out := make([]float32, len(in))
	if n := Decode(out, buf); n != len(buf) {
		t.Fatalf("Decode read %d bytes", n)
	}
	for i := range in {
		if want := ToFloat32(FromFloat32(in[i])); out[i] != want {
			t.Errorf("value %d: %g, want %g", i, out[i], want)
		}
	}
}
