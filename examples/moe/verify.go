package main

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"goshmem/moe/oracle"
)

// vectors are the values of a PE's tokens: n bf16 between -2 and 2, the same on
// every machine.
func vectors(rank, n int) []byte {
	b := make([]byte, 0, 2*n)
	s := uint32(rank)*2654435761 + 12345
	for range n {
		s = s*1664525 + 1013904223
		v := float32(int32(s)>>16) / 16384
		b = binary.LittleEndian.AppendUint16(b, oracle.Round(v))
	}
	return b
}

// factor is what the stand-in of an expert multiplies by.
func factor(expert int) float32 { return 0.5 + float32(expert%64)/64 }

// scale is the stand-in of an expert: y = x * f, in bf16.
func scale(y, x []byte, f float32) {
	for i := 0; i+1 < len(x); i += 2 {
		v := oracle.Widen(binary.LittleEndian.Uint16(x[i:])) * f
		binary.LittleEndian.PutUint16(y[i:], oracle.Round(v))
	}
}

// verify compares the rows received and the sums with the oracle, every byte.
func (l *layer) verify() error {
	want := oracle.RankMajor(l.in, l.p.Rank())
	row := l.in.RowBytes
	if l.d.Len() != len(want.Rows) {
		return fmt.Errorf("pe %d: %d rows dispatched, the oracle has %d", l.p.Rank(), l.d.Len(), len(want.Rows))
	}
	for i, r := range want.Rows {
		if !bytes.Equal(l.d.Rows[i*row:(i+1)*row], r.X) {
			return fmt.Errorf("pe %d: row %d (pe %d token %d) differs from the oracle", l.p.Rank(), i, r.Source, r.Token)
		}
		if int(l.d.Source[i]) != r.Source || int(l.d.Token[i]) != r.Token {
			return fmt.Errorf("pe %d: row %d is from pe %d token %d, the oracle says %d, %d", l.p.Rank(), i, l.d.Source[i], l.d.Token[i], r.Source, r.Token)
		}
		for k, n := range r.Local {
			at := i*l.in.TopK + k
			if int(l.d.Local[at]) != n || l.d.Weights[at] != r.Weights[k] {
				return fmt.Errorf("pe %d: row %d choice %d is expert %d weight %v, the oracle says %d, %v", l.p.Rank(), i, k, l.d.Local[at], l.d.Weights[at], n, r.Weights[k])
			}
		}
	}
	y := make([]byte, row)
	made := make([]float32, l.hidden)
	output := func(s, t, k int) []float32 {
		scale(y, l.in.X[s][t*row:(t+1)*row], factor(int(l.in.Idx[s][t*l.in.TopK+k])))
		for h := range made {
			made[h] = oracle.Widen(binary.LittleEndian.Uint16(y[2*h:]))
		}
		return made
	}
	for t, sums := range oracle.CombineAtSource(l.in, l.p.Rank(), l.hidden, output, nil) {
		for h, v := range sums {
			if have := binary.LittleEndian.Uint16(l.out[(t*l.hidden+h)*2:]); have != v {
				return fmt.Errorf("pe %d: token %d element %d combines to %#04x, the oracle says %#04x", l.p.Rank(), t, h, have, v)
			}
		}
	}
	return nil
}
