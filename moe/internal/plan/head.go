package plan

import "encoding/binary"

// Head is the fixed part of what each rank tells every other one at the start of
// a call. A dispatch appends its counts.
type Head struct {
	Seq   uint64 // number of the call in its slot
	Call  uint32
	T     uint32
	Plan  uint64 // the routing used by a cached dispatch or combine
	Fault Fault
}

// Encode writes h to the first headFixed bytes of b.
func (h *Head) Encode(b []byte) {
	_ = b[headFixed-1]
	le := binary.LittleEndian
	le.PutUint64(b[0:], h.Seq)
	le.PutUint32(b[8:], h.Call)
	le.PutUint32(b[12:], h.T)
	le.PutUint64(b[16:], h.Plan)
	le.PutUint32(b[24:], uint32(h.Fault.Code))
	le.PutUint32(b[28:], 0)
	le.PutUint64(b[32:], uint64(h.Fault.A))
	le.PutUint64(b[40:], uint64(h.Fault.B))
	le.PutUint64(b[48:], uint64(h.Fault.C))
	le.PutUint64(b[56:], 0)
}

// DecodeHead reads what Encode wrote. ok is false for too few bytes or an
// unknown code.
func DecodeHead(b []byte) (h Head, ok bool) {
	if len(b) < headFixed {
		return h, false
	}
	le := binary.LittleEndian
	h.Seq = le.Uint64(b[0:])
	h.Call = le.Uint32(b[8:])
	h.T = le.Uint32(b[12:])
	h.Plan = le.Uint64(b[16:])
	h.Fault = Fault{
		Code: Code(le.Uint32(b[24:])),
		A:    int64(le.Uint64(b[32:])), B: int64(le.Uint64(b[40:])), C: int64(le.Uint64(b[48:])),
	}
	return h, h.Fault.Code.Known()
}

// ShortHead is the length of a head without counts.
const ShortHead = headFixed

// EncodeCounts appends the counts of s to the head in b, which is HeadBytes
// long.
func EncodeCounts(b []byte, s *Sent) {
	at := headFixed
	for _, counts := range [2][]uint32{s.Rows, s.Pairs} {
		for _, n := range counts {
			binary.LittleEndian.PutUint32(b[at:], n)
			at += 4
		}
	}
}
