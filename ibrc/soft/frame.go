package soft

import (
	"encoding/binary"
	"fmt"

	"goshmem/channel"
)

// A frame is a header of 16 bytes and, by its kind, operands or a payload; all
// numbers are little-endian.
//
//	kind  u8   op u8   rkey u16   length u32   offset u64
//
// Requests are counted from 1 in each direction; an ack tells how many of them
// are applied.
const headerSize = 16

type kind uint8

const (
	kWrite  kind = 1 + iota // length bytes follow, for offset of rkey
	kRead                   // length bytes of offset of rkey are wanted
	kAdd                    // 8 B follow: added to the word at offset of rkey
	kAtomic                 // 16 B follow: operand, compare; op on an element of type length
	kFetch                  // the same; the old value is wanted
	kData                   // length bytes follow: the answer to the oldest kRead
	kOld                    // offset is the old value: the answer to the oldest kFetch
	kAck                    // offset requests are applied
	kBye                    // nothing follows: the sender closes in order
)

type header struct {
	kind   kind
	op     uint8
	rkey   uint16
	length uint32
	off    uint64
}

func (h *header) put(b []byte) {
	_ = b[15]
	binary.LittleEndian.PutUint64(b, uint64(h.kind)|uint64(h.op)<<8|uint64(h.rkey)<<16|uint64(h.length)<<32)
	binary.LittleEndian.PutUint64(b[8:], h.off)
}

func (h *header) get(b []byte) {
	_ = b[15]
	v := binary.LittleEndian.Uint64(b)
	h.kind, h.op, h.rkey, h.length = kind(v), uint8(v>>8), uint16(v>>16), uint32(v>>32)
	h.off = binary.LittleEndian.Uint64(b[8:])
}

// operands is how many bytes of operands follow the header.
func (k kind) operands() int {
	switch k {
	case kAdd:
		return 8
	case kAtomic, kFetch:
		return 16
	}
	return 0
}

// badFrame is what a peer must not send.
func badFrame(h *header, what string) error {
	return broken("protocol", fmt.Errorf("frame kind %d op %d rkey %d length %d offset %#x: %s", h.kind, h.op, h.rkey, h.length, h.off, what))
}

// atomic is the operation and element of a kAtomic or kFetch.
func (h *header) atomic() (op channel.Op, e channel.Elem, ok bool) {
	op, e = channel.Op(h.op), channel.Elem(h.length)
	return op, e, op.IsAMO() && h.length < 256 && e.Valid() && (e.Size() == 4 || e.Size() == 8)
}
