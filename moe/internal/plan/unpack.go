package plan

import (
	"encoding/binary"
	"math"
)

// Arrived says what the received rows are. In rank-major a row is a record; in
// expert-major a row is one choice of a record, or padding.
type Arrived struct {
	Source []int32 // by row: the rank it came from; -1: padding
	Token  []int32 // by row: its token there; -1: padding
	Choice []int32 // by row, expert-major: its k there; -1: padding

	// Rank-major: [row*TopK+k]; expert-major: by row. The number of the expert
	// within this rank, or -1, and the weight, or 0.
	Local  []int32
	Weight []float32

	// By record, and the end: its first choice. Rank-major: the choices are those
	// with Local >= 0, by row, then k.
	PairStart []int64
	// By choice, in the order of PairStart, expert-major: the row it is in.
	PairRow []int64
	// By choice, in the same order: the weight.
	PairWeight []float32
}

// Unpack reads the records of all sources. They were written by other processes:
// one that contradicts the counts is a Fault naming its source.
func Unpack(p *Params, pl *Placement, records []byte, a *Arrived) Fault {
	rows := int(pl.Rows)
	perRow := p.TopK
	if p.ExpertMajor {
		perRow = 1
	}
	a.Source = filled(a.Source, rows, -1)
	a.Token = filled(a.Token, rows, -1)
	a.Local = filled(a.Local, rows*perRow, -1)
	a.Weight = zeroed(a.Weight, rows*perRow)
	a.PairStart = zeroed(a.PairStart, int(pl.Records)+1)
	a.PairWeight = resized(a.PairWeight, int(pl.Pairs))
	if p.ExpertMajor {
		a.Choice = filled(a.Choice, rows, -1)
		a.PairRow = resized(a.PairRow, int(pl.Pairs))
	}
	u := unpacker{p: p, pl: pl, a: a, next: append([]int64(nil), pl.Offsets...)}
	size := RecordBytes(p.TopK)
	for s := range p.Ranks {
		before, last := u.pair, int64(-1)
		for i := pl.From[s]; i < pl.From[s+1]; i++ {
			rec := records[i*size : (i+1)*size]
			t := int64(binary.LittleEndian.Uint32(rec))
			if t <= last || t >= p.MaxTokens || !u.record(i, s, rec) {
				return Fault{Corrupt, int64(s), 1, i}
			}
			last = t
		}
		if u.pair-before != pl.PairsBy[s] {
			return Fault{Corrupt, int64(s), 2, u.pair - before}
		}
	}
	return Fault{}
}

type unpacker struct {
	p    *Params
	pl   *Placement
	a    *Arrived
	next []int64 // by local expert: its next row
	pair int64   // choices so far
}

// record takes in record i, from source s.
func (u *unpacker) record(i int64, s int, rec []byte) bool {
	le := binary.LittleEndian
	a, topK := u.a, u.p.TopK
	token := int32(le.Uint32(rec))
	locals, weights := rec[4:4+4*topK], rec[4+4*topK:]
	first := u.pair
	if !u.p.ExpertMajor {
		a.Source[i], a.Token[i] = int32(s), token
	}
	for k := range topK {
		l := int32(le.Uint32(locals[4*k:]))
		if l == -1 {
			continue
		}
		if l < 0 || int(l) >= len(u.pl.Counts) || u.pair >= u.pl.Pairs {
			return false
		}
		w := math.Float32frombits(le.Uint32(weights[4*k:]))
		if u.p.ExpertMajor {
			row := u.next[l]
			if row >= u.pl.Offsets[l]+u.pl.Counts[l] {
				return false
			}
			u.next[l]++
			a.Source[row], a.Token[row], a.Choice[row] = int32(s), token, int32(k)
			a.Local[row], a.Weight[row] = l, w
			a.PairRow[u.pair] = row
		} else {
			a.Local[int(i)*topK+k], a.Weight[int(i)*topK+k] = l, w
		}
		a.PairWeight[u.pair] = w
		u.pair++
	}
	a.PairStart[i+1] = u.pair
	return u.pair > first
}

func filled(s []int32, n int, v int32) []int32 {
	s = resized(s, n)
	for i := range s {
		s[i] = v
	}
	return s
}
