package bench

import (
	"bytes"
	"encoding/binary"
)

// pattern fills b with bytes that depend on their place and on a seed, so that a
// copy that is shifted, short or old shows.
func pattern(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b[i:], x)
	}
	for ; i < len(b); i++ {
		b[i] = byte(x >> (8 * (i % 8)))
	}
}

// samePattern compares b with what pattern would have written.
func samePattern(b []byte, seed uint64) bool {
	want := make([]byte, len(b))
	pattern(want, seed)
	return bytes.Equal(b, want)
}

// stamp marks a payload as number seq; stamped reports whether it is that.
func stamp(b []byte, seq uint64) {
	if len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, seq)
	} else if len(b) > 0 {
		b[0] = byte(seq)
	}
}

func stamped(b []byte, seq uint64) bool {
	if len(b) >= 8 {
		return binary.LittleEndian.Uint64(b) == seq
	}
	return len(b) == 0 || b[0] == byte(seq)
}
