package moe_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"goshmem/moe"
	"goshmem/moe/fp8"
)

// The device's casts give the bits of package fp8, for any row.
func TestDeviceCast(t *testing.T) {
	b := device(t)
	for _, hidden := range []int{8, 100, 128, 130, 2880, 7176} {
		const rows = 5
		cfg := moe.Config{Experts: 1, TopK: 1, Hidden: hidden, MaxTokens: 1}
		deviceEngine(t, b, 1, cfg, moe.DeviceOptions{}, func(ctx context.Context, e *moe.DeviceEngine, d *desk) error {
			x := make([]byte, 2*rows*hidden)
			rng := rand.NewChaCha8([32]byte{byte(hidden)})
			_, _ = rng.Read(x[:len(x)/2]) // any bits, NaN and infinity too
			for i := len(x) / 2; i < len(x); i += 2 {
				x[i], x[i+1] = byte(rng.Uint64()), 0x3c+byte(rng.Uint64()&3)|byte(rng.Uint64()&0x80)
			}
			q, s, back := make([]uint8, rows*hidden), make([]float32, rows*fp8.Scales(hidden)), make([]byte, len(x))
			fp8.Encode(q, s, x, hidden)
			fp8.Decode(back, q, s, hidden)
			xAt, qAt, sAt, backAt := up(d, x), d.alloc(len(q)), d.alloc(4*len(s)), d.alloc(len(x))
			if err := e.Cast(d.stream, xAt, qAt, sAt, rows); err != nil {
				return err
			}
			if err := e.Uncast(d.stream, qAt, sAt, backAt, rows); err != nil {
				return err
			}
			for _, c := range []struct {
				what       string
				have, want []byte
			}{
				{"codes", down[uint8](d, qAt, int64(len(q))), q},
				{"scales", raw(down[float32](d, sAt, int64(len(s)))), raw(s)},
				{"values", down[byte](d, backAt, int64(len(x))), back},
			} {
				if !slices.Equal(c.have, c.want) {
					for i := range c.have {
						if c.have[i] != c.want[i] {
							return fmt.Errorf("hidden %d: %s byte %d: %#x, want %#x", hidden, c.what, i, c.have[i], c.want[i])
						}
					}
				}
			}
			return nil
		})
	}
}
