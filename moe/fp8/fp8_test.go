package fp8

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Codes worked out by hand, and all codes there and back.
func TestCodes(t *testing.T) {
	for f, want := range map[float32]uint8{
		0: 0, 1: 0x38, -1: 0xb8, 448: 0x7e, 1000: 0x7e, -500: 0xfe, 1.0 / 64: 8, 1.0 / 512: 1,
		1.0 / 1024: 0, 3.0 / 1024: 2, 1.0625: 0x38, 1.1875: 0x3a, 17: 0x58, 440: 0x7e, 0.0155: 8,
	} {
		require.Equal(t, want, FromFloat32(f), f)
	}
	require.Equal(t, NaN, FromFloat32(float32(math.NaN())))
	require.Equal(t, uint8(0x7e), FromFloat32(float32(math.Inf(1))))
	for q := range 256 {
		f := ToFloat32(uint8(q))
		if q&0x7f == 0x7f {
			require.True(t, math.IsNaN(float64(f)))
			continue
		}
		require.Equal(t, uint8(q), FromFloat32(f))
	}
}

// The nearest of all codes, the even one of two, over many values.
func TestNearest(t *testing.T) {
	for u := uint32(0x38000000); u < 0x43f00000; u += 0x1357 {
		f := math.Float32frombits(u)
		got := FromFloat32(f)
		best, dist := uint8(0), math.Inf(1)
		for q := range uint8(0x7f) {
			d := math.Abs(float64(ToFloat32(q)) - float64(f))
			if d < dist || d == dist && q%2 == 0 {
				best, dist = q, d
			}
		}
		require.Equal(t, best, got, f)
	}
}

func TestBlocks(t *testing.T) {
	const hidden = 130 // a block and two more
	x := make([]byte, 2*2*hidden)
	set := func(i int, bits uint16) { binary.LittleEndian.PutUint16(x[2*i:], bits) }
	set(0, 0x4000)        // 2
	set(5, 0xc080)        // -4
	set(128, 0x3f80)      // 1, of the second block
	set(hidden+3, 0x2edb) // about 1e-10: under the floor
	q, s := make([]uint8, 2*hidden), make([]float32, 4)
	Encode(q, s, x, hidden)
	require.Equal(t, []float32{4.0 / 448, 1.0 / 448, Floor / 448, Floor / 448}, s)
	require.Equal(t, uint8(0x76), q[0]) // 224
	require.Equal(t, uint8(0xfe), q[5])
	require.Equal(t, uint8(0x7e), q[128])
	back := make([]byte, len(x))
	Decode(back, q, s, hidden)
	require.Equal(t, x[:2*hidden], back[:2*hidden])
}
