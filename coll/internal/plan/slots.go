package plan

import "math"

// Bytes of a slot's header: a fixed part and one entry a rank of the node.
const (
	fixedBytes = 64
	entryBytes = 24
)

// Bytes of what goes before the data.
const (
	CreditBytes = 32 // what an entry credit brings
	CountBytes  = 8  // and for each rank of the node, a first grant
	RowBytes    = 16 // what a rank tells a relay of its node of one source
)

// GatherMax is the most bytes of a sub-round that are collected behind the header
// for one put; longer ones are put from where they are.
const GatherMax = 16 << 10

// HeaderBytes is the length of a slot's header for a node of so many ranks.
func HeaderBytes(ranks int) int64 { return headerBytes(ranks) }

// Params shapes the slots of a relay.
type Params struct {
	Banks     int   // W, 1 or more
	Slots     int   // T, 1 or more: slots of a stream
	SlotBytes int64 // of one slot, header included
}

// Sizes is where the slots of a relay lie; the same at every member.
type Sizes struct {
	Params
	Header  int64 // H, the header's part of a slot
	Payload int64 // C, what is left for segments
	Arena   int64 // all slots
	streams int
}

// MinSlot is the smallest slot: a header and 64 bytes.
func MinSlot(t *Topology) int64 { return headerBytes(t.most) + 64 }

func headerBytes(ranks int) int64 { return fixedBytes + entryBytes*int64(ranks) }

// Measure lays slots out; false: parameters out of bounds, or a sum that
// overflows. A team on one node has no slots.
func Measure(t *Topology, p Params) (Sizes, bool) {
	z := Sizes{Params: p, Header: headerBytes(t.most), streams: t.streams}
	z.Payload = p.SlotBytes - z.Header
	if p.Banks < 1 || p.Slots < 1 || z.Payload < 64 {
		return Sizes{}, false
	}
	z.Arena = p.SlotBytes
	for _, n := range [...]int{p.Banks, p.Slots, t.streams} {
		if n > 0 && z.Arena > math.MaxInt64/int64(n) {
			return Sizes{}, false
		}
		z.Arena *= int64(n)
	}
	return z, true
}

// Bank is the bank that round k uses.
func (z *Sizes) Bank(k int) int { return (k - 1) % z.Banks }

// At is the offset of the slot for sub-round sub of a stream in round k.
func (z *Sizes) At(k, stream, sub int) int64 {
	slot := (z.Bank(k)*z.streams+stream)*z.Slots + sub%z.Slots
	return int64(slot) * z.SlotBytes
}

// Subs is the number of sub-rounds that carry n bytes: at least one, so that a
// data signal flows in every round.
func (z *Sizes) Subs(n int64) int {
	return int(max(1, (n+z.Payload-1)/z.Payload))
}

// Piece is a part of the bytes from one source to one destination.
type Piece struct {
	Dst    int   // local index of the destination on its node
	Offset int64 // in the bytes for that destination
	Bytes  int64
}

// Cut appends the pieces that sub-round sub carries: of the bytes relayed to each
// destination of a node (by local index), laid end to end, the sub-th Payload.
func (z *Sizes) Cut(dst []Piece, relayed []int64, sub int) []Piece {
	begin := int64(sub) * z.Payload
	end := begin + z.Payload
	at := int64(0)
	for d, n := range relayed {
		if from, to := max(at, begin), min(at+n, end); from < to {
			dst = append(dst, Piece{Dst: d, Offset: from - at, Bytes: to - from})
		}
		if at += n; at >= end {
			break
		}
	}
	return dst
}
