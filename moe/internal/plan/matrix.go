package plan

import "encoding/binary"

// Matrix has the counts of all ranks: every rank knows what every rank sends to
// every other, and so computes the same positions and the same verdict on
// capacity.
type Matrix struct {
	T     []int64  // by source
	Rows  []uint32 // [source*Ranks+rank]
	Pairs []uint32 // [source*Experts+expert]
}

// Reset makes m fit p.
func (m *Matrix) Reset(p *Params) {
	m.T = resized(m.T, p.Ranks)
	m.Rows = resized(m.Rows, p.Ranks*p.Ranks)
	m.Pairs = resized(m.Pairs, p.Ranks*p.Experts)
}

// Decode takes the counts of a source from the head it sent. They come from
// another process: counts that contradict each other are a Fault, so that no
// position computed from them lies outside a buffer.
func (m *Matrix) Decode(p *Params, o *Owners, source int, h Head, b []byte) Fault {
	bad := Fault{Corrupt, int64(source), 0, 0}
	if int64(h.T) > p.MaxTokens || len(b) < headFixed+4*(p.Ranks+p.Experts) {
		return bad
	}
	m.T[source] = int64(h.T)
	rows := m.RowsOf(p, source)
	pairs := m.PairsOf(p, source)
	at := headFixed
	for _, counts := range [2][]uint32{rows, pairs} {
		for i := range counts {
			n := binary.LittleEndian.Uint32(b[at:])
			if n > h.T {
				return bad
			}
			counts[i] = n
			at += 4
		}
	}
	// A row carries at least one choice and at most TopK.
	total := int64(0)
	for r, n := range rows {
		sum := int64(0)
		for first, end := o.Block(r); first < end; first++ {
			sum += int64(pairs[first])
		}
		if sum < int64(n) || sum > int64(n)*int64(p.TopK) {
			return bad
		}
		total += sum
	}
	if total > int64(h.T)*int64(p.TopK) {
		return bad
	}
	return Fault{}
}

// RowsOf is how many rows a source sends to each rank.
func (m *Matrix) RowsOf(p *Params, source int) []uint32 {
	return m.Rows[source*p.Ranks : (source+1)*p.Ranks]
}

// PairsOf is how many choices of each expert a source has.
func (m *Matrix) PairsOf(p *Params, source int) []uint32 {
	return m.Pairs[source*p.Experts : (source+1)*p.Experts]
}
