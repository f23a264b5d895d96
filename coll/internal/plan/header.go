package plan

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// magic begins every header: what was in the memory before is no header.
const magic uint32 = 0x32767247

// Entry is what a header says of one destination.
type Entry struct {
	Total  int64 // bytes from the source to it in the whole call, whatever way they go
	Offset int64 // where in these the slot's piece begins
	Bytes  int64 // of the piece; 0: none in this slot
}

// Header is how a slot begins. Its entries are those of all ranks of the relay's
// node, by local index; the pieces follow in that order without gaps.
type Header struct {
	Call    uint64
	Round   int
	Source  int // rank
	Sub     int
	Subs    int
	Sum     uint32 // of the pieces' bytes, in debug builds
	Entries []Entry
}

// HeaderError says why a slot's header is not what it must be: the peer does not
// follow the protocol, or its slot was overwritten.
type HeaderError struct {
	What       string
	Want, Have int64
}

func (e *HeaderError) Error() string {
	return fmt.Sprintf("relay slot: %s is %d, want %d", e.What, e.Have, e.Want)
}

// Encode writes a header; b must have room for it. It returns its length.
func (h *Header) Encode(b []byte) int {
	n := h.encodeFixed(b, len(h.Entries))
	le := binary.LittleEndian
	for i := range h.Entries {
		e, at := &h.Entries[i], b[fixedBytes+i*entryBytes:]
		le.PutUint64(at, uint64(e.Total))
		le.PutUint64(at[8:], uint64(e.Offset))
		le.PutUint64(at[16:], uint64(e.Bytes))
	}
	return n
}

// encodeFixed writes the fixed part of a header of n entries and returns the
// length of the whole.
func (h *Header) encodeFixed(b []byte, entries int) int {
	n := int(headerBytes(entries))
	b = b[:n]
	le := binary.LittleEndian
	le.PutUint32(b, magic)
	le.PutUint32(b[4:], uint32(entries))
	le.PutUint64(b[8:], h.Call)
	le.PutUint32(b[16:], uint32(h.Round))
	le.PutUint32(b[20:], uint32(h.Source))
	le.PutUint64(b[24:], uint64(h.Sub))
	le.PutUint64(b[32:], uint64(h.Subs))
	le.PutUint32(b[40:], h.Sum)
	clear(b[44:fixedBytes])
	return n
}

// EncodeTo is Encode of a header for n ranks whose entries follow from the totals
// for each and from the pieces in this slot.
func (h *Header) EncodeTo(b []byte, n int, total func(local int) int64, pieces []Piece) int {
	length := h.encodeFixed(b, n)
	le, next := binary.LittleEndian, 0
	for d := range n {
		at := b[fixedBytes+d*entryBytes:]
		le.PutUint64(at, uint64(total(d)))
		var p Piece
		if next < len(pieces) && pieces[next].Dst == d {
			p = pieces[next]
			next++
		}
		le.PutUint64(at[8:], uint64(p.Offset))
		le.PutUint64(at[16:], uint64(p.Bytes))
	}
	return length
}

// Bytes is how long the header is in its slot: where the pieces begin.
func (h *Header) Bytes() int64 { return headerBytes(len(h.Entries)) }

// Decode reads the header of a slot into h, whose Entries tell how many there
// must be. It checks that the header makes sense in itself: numbers in range,
// pieces within their totals and within payload.
func (h *Header) Decode(b []byte, payload int64) error {
	n := len(h.Entries)
	if len(b) < int(headerBytes(n)) {
		return &HeaderError{"length", headerBytes(n), int64(len(b))}
	}
	le := binary.LittleEndian
	if m := le.Uint32(b); m != magic {
		return &HeaderError{"magic", int64(magic), int64(m)}
	}
	if have := le.Uint32(b[4:]); have != uint32(n) {
		return &HeaderError{"number of entries", int64(n), int64(have)}
	}
	h.Call = le.Uint64(b[8:])
	round, source := le.Uint32(b[16:]), le.Uint32(b[20:])
	sub, subs := le.Uint64(b[24:]), le.Uint64(b[32:])
	h.Sum = le.Uint32(b[40:])
	const most = 1<<63 - 1
	switch {
	case round > 1<<31-1:
		return &HeaderError{"round", 0, int64(round)}
	case source > 1<<31-1:
		return &HeaderError{"source", 0, int64(source)}
	case subs < 1 || subs > most:
		return &HeaderError{"number of sub-rounds", 1, int64(subs)}
	case sub >= subs:
		return &HeaderError{"sub-round", int64(subs) - 1, int64(sub)}
	}
	h.Round, h.Source, h.Sub, h.Subs = int(round), int(source), int(sub), int(subs)
	left := payload
	for i := range h.Entries {
		at := b[fixedBytes+i*entryBytes:]
		total, offset, bytes := le.Uint64(at), le.Uint64(at[8:]), le.Uint64(at[16:])
		switch {
		case total > most:
			return &HeaderError{"total", most, -1}
		case offset > total || bytes > total-offset:
			return &HeaderError{"end of a piece", int64(total), int64(offset)}
		case int64(bytes) > left:
			return &HeaderError{"bytes of a piece", left, int64(bytes)}
		}
		left -= int64(bytes)
		h.Entries[i] = Entry{int64(total), int64(offset), int64(bytes)}
	}
	return nil
}

// Expect is what a relay knows of the slot that it looks at next.
type Expect struct {
	Call   uint64
	Round  int
	Source int
	Sub    int
}

// Check compares a decoded header with what the relay expects, and everything
// that follows from the totals with what they make of it: a header has no freedom
// but its totals. relayed and pieces are scratch, for as many ranks as the node
// has.
func (h *Header) Check(x Expect, z *Sizes, c *Chooser, node int, relayed []int64, pieces []Piece) error {
	for _, f := range [...]struct {
		what       string
		want, have int64
	}{
		{"call", int64(x.Call), int64(h.Call)},
		{"round", int64(x.Round), int64(h.Round)},
		{"source", int64(x.Source), int64(h.Source)},
		{"sub-round", int64(x.Sub), int64(h.Sub)},
	} {
		if f.want != f.have {
			return &HeaderError{f.what, f.want, f.have}
		}
	}
	sum := int64(0)
	for i := range h.Entries {
		if h.Entries[i].Total > 1<<62-1-sum {
			return &HeaderError{"total", 1<<62 - 1, h.Entries[i].Total}
		}
		sum += h.Entries[i].Total
	}
	sum = c.Relayed(relayed, h.Source, node, func(d int) int64 { return h.Entries[d].Total })
	if want := z.Subs(sum); h.Subs != want {
		return &HeaderError{"number of sub-rounds", int64(want), int64(h.Subs)}
	}
	at := 0
	pieces = z.Cut(pieces[:0], relayed, h.Sub)
	for i := range h.Entries {
		want := Piece{Dst: i}
		if at < len(pieces) && pieces[at].Dst == i {
			want = pieces[at]
			at++
		}
		e := &h.Entries[i]
		if e.Bytes != want.Bytes {
			return &HeaderError{"bytes of a piece", want.Bytes, e.Bytes}
		}
		if e.Bytes > 0 && e.Offset != want.Offset {
			return &HeaderError{"offset of a piece", want.Offset, e.Offset}
		}
	}
	return nil
}

// Checksum is what Header.Sum holds in debug builds.
func Checksum(sum uint32, b []byte) uint32 { return crc32.Update(sum, crc32.IEEETable, b) }
