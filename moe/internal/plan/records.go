package plan

import (
	"encoding/binary"
	"math"
)

// RecordBytes is the size of the record that goes with each (token, rank): the
// token, then for each choice the expert's number within the receiving rank or
// -1, then for each choice its weight or 0; 32 bits each, little-endian.
func RecordBytes(topK int) int64 { return 4 + 8*int64(topK) }

// Records writes the records of the tokens that s sends to a rank to b, which
// must have room, and returns the bytes used.
func Records(p *Params, o *Owners, s *Sent, rank int, b []byte) int64 {
	le := binary.LittleEndian
	size := RecordBytes(p.TopK)
	at := int64(0)
	for _, t := range s.To(rank) {
		rec := b[at : at+size]
		le.PutUint32(rec, uint32(t))
		locals, weights := rec[4:4+4*p.TopK], rec[4+4*p.TopK:]
		for k, e := range s.Idx[int(t)*p.TopK : (int(t)+1)*p.TopK] {
			l, w := int32(-1), float32(0)
			if e >= 0 && int(o.rank[e]) == rank {
				l, w = o.local[e], s.Weights[int(t)*p.TopK+k]
			}
			le.PutUint32(locals[4*k:], uint32(l))
			le.PutUint32(weights[4*k:], math.Float32bits(w))
		}
		at += size
	}
	return at
}
