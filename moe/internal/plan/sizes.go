package plan

import "math"

// headFixed is the part of a message head that is there for every call.
const headFixed = 64

// line is what areas are aligned to: a cache line, and the neighbour that is
// fetched with it.
const line = 128

// Sizes says how large everything is and where it lies in the one symmetric
// allocation of an engine. Every slot has the same areas; offsets are from the
// start of the slot.
type Sizes struct {
	HeadBytes   int64 // of one rank's head
	RecordBytes int64 // of one record
	RecordCap   int64 // records that one rank can receive
	RowCap      int64 // rows that one rank can receive, padding included
	BackCap     int64 // rows of a combine that one rank can receive
	ListRoom    int64 // of one source's list of forwards; 0: nothing is passed on

	Heads, Records, Lists, Rows, Scales, Back int64 // offsets
	Slot                                      int64 // bytes of a slot
	Total                                     int64 // bytes in all
}

// Measure computes the sizes. ok is false where one exceeds 2^63-1.
func Measure(p *Params) (s Sizes, ok bool) {
	c := calc{}
	ranks, experts, topK := int64(p.Ranks), int64(p.Experts), int64(p.TopK)
	perRank := ceilDiv(experts, ranks)

	s.RecordCap = c.mul(ranks, p.MaxTokens)
	s.RowCap = s.RecordCap
	if p.ExpertMajor {
		pairs := c.mul(s.RecordCap, min(topK, perRank))
		s.RowCap = c.add(pairs, c.mul(perRank, p.Alignment-1))
	}
	if p.MaxRows > 0 {
		s.RowCap = min(s.RowCap, p.MaxRows)
		s.RecordCap = min(s.RecordCap, p.MaxRows)
	}
	choices := topK
	if p.AtExpert {
		choices = min(topK, ranks)
	}
	s.BackCap = c.mul(p.MaxTokens, choices)

	s.HeadBytes = c.round(c.add(headFixed, c.mul(4, c.add(ranks, experts))), 64)
	s.RecordBytes = RecordBytes(p.TopK)
	if p.Fan > 0 {
		s.ListRoom = c.round(c.add(listHead, c.mul(c.mul(p.MaxTokens, p.Fan), forwardBytes)), 64)
	}

	end := int64(0)
	area := func(n, size int64) int64 {
		at := end
		end = c.round(c.add(at, c.mul(n, size)), line)
		return at
	}
	s.Heads = area(c.mul(2, ranks), s.HeadBytes)
	s.Records = area(s.RecordCap, s.RecordBytes)
	s.Lists = area(ranks, s.ListRoom)
	s.Rows = area(s.RowCap, p.RowBytes)
	s.Scales = area(s.RowCap, p.ScaleBytes)
	s.Back = area(s.BackCap, c.mul(p.Hidden, max(p.YBytes, p.PartialBytes)))
	s.Slot = end
	s.Total = c.mul(end, int64(p.Slots))
	return s, !c.over
}

// RowAt is the offset of row i of the receive buffer within a slot.
func (s *Sizes) RowAt(p *Params, i int64) int64 { return s.Rows + i*p.RowBytes }

// ScalesAt is the offset of the scales of row i within a slot.
func (s *Sizes) ScalesAt(p *Params, i int64) int64 { return s.Scales + i*p.ScaleBytes }

// RecordAt is the offset of record i within a slot.
func (s *Sizes) RecordAt(i int64) int64 { return s.Records + i*s.RecordBytes }

// ListAt is the offset of a source's list of forwards within a slot.
func (s *Sizes) ListAt(source int) int64 { return s.Lists + int64(source)*s.ListRoom }

// BackAt is the offset of row i of the combine buffer within a slot.
func (s *Sizes) BackAt(p *Params, i int64) int64 { return s.Back + i*p.BackBytes() }

// HeadAt is the offset of a rank's head within a slot. There are two sets, used
// in turn.
func (s *Sizes) HeadAt(parity uint64, ranks, rank int) int64 {
	return s.Heads + (int64(parity&1)*int64(ranks)+int64(rank))*s.HeadBytes
}

// calc is arithmetic on non-negative int64 that remembers an overflow.
type calc struct{ over bool }

func (c *calc) mul(a, b int64) int64 {
	if a < 0 || b < 0 || a != 0 && b > math.MaxInt64/a {
		c.over = true
		return 0
	}
	return a * b
}

func (c *calc) add(a, b int64) int64 {
	if a < 0 || b < 0 || a > math.MaxInt64-b {
		c.over = true
		return 0
	}
	return a + b
}

func (c *calc) round(a, unit int64) int64 {
	return c.add(a, unit-1) / unit * unit
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// roundUp is for numbers that Measure has bounded.
func roundUp(a, unit int64) int64 { return (a + unit - 1) / unit * unit }
