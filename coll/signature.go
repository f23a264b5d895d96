package coll

import (
	"fmt"

	"goshmem/pe"
)

// signature is what the members of a call must have alike.
type signature struct {
	what  uint64
	count uint64
}

// kind is a collective, as it travels: an index of callNames.
type kind uint8

const (
	kindBroadcast kind = iota + 3
	kindFCollect
	kindCollect
	kindGather
	kindScatter
	kindAllToAll
	kindAllToAllS
	kindAllToAllV
	kindReduce
	kindAllReduce
	kindReduceScatter
	kindScan
	kindExclusiveScan

	kindBarrier kind = 1
	kindSync    kind = 2
)

func (k kind) String() string {
	if n := callNames(); int(k) < len(n) {
		return n[k]
	}
	return fmt.Sprintf("call %d", uint8(k))
}

// sign makes a call's signature.
func sign(k kind, op, typ uint8, root int, count int) signature {
	return signature{
		what:  uint64(k) | uint64(op)<<8 | uint64(typ)<<16 | uint64(uint32(root))<<32,
		count: uint64(count),
	}
}

// differs compares a message with what this PE called; nil if they agree.
func (c *Comm) differs(l *link, h *header) error {
	s := &c.core.sig
	if h.call == c.calls && h.what&^flagMask == s.what && h.count == s.count {
		return nil
	}
	return c.mismatch(l, h)
}

func (c *Comm) mismatch(l *link, h *header) error {
	s := &c.core.sig
	bad := func(field string, want, have any) error {
		return &pe.MismatchError{PE: c.world[l.pe], Field: field, Want: fmt.Sprint(want), Have: fmt.Sprint(have)}
	}
	switch mine, theirs := s.what, h.what; {
	case h.call != c.calls:
		return bad("call", fmt.Sprintf("number %d, %v", c.calls, kind(mine)), fmt.Sprintf("number %d, %v", h.call, kind(theirs)))
	case kind(mine) != kind(theirs):
		return bad("call", kind(mine), kind(theirs))
	case uint8(mine>>8) != uint8(theirs>>8):
		return bad("operation", Op(mine>>8), Op(theirs>>8))
	case uint8(mine>>16) != uint8(theirs>>16):
		return bad("type", typeName(kind(mine), uint8(mine>>16)), typeName(kind(theirs), uint8(theirs>>16)))
	case mine>>32 != theirs>>32:
		return bad("root", mine>>32, theirs>>32)
	}
	return bad("count", s.count, h.count)
}

// The word that a member shows of its latest call: the call's number (16 bits),
// kind (6), operation (4), type (4), digests of root (9) and count (24), and
// whether it is in it. Members read it where something went wrong, or may have.
const inCall uint64 = 1

// shown are the word's fields.
func shown() []struct {
	name        string
	shift, bits int
} {
	return []struct {
		name        string
		shift, bits int
	}{{"call", 42, 6}, {"operation", 38, 4}, {"type", 34, 4}, {"root", 25, 9}, {"count", 1, 24}}
}

// word packs a signature.
func (s signature) word(call uint32) uint64 {
	cut := func(v uint64, bits int) uint64 { return v & (1<<bits - 1) }
	digest := func(v uint64, bits int) uint64 { return v * 0x9e3779b97f4a7c15 >> (64 - bits) }
	return uint64(uint16(call))<<48 | cut(s.what, 6)<<42 | cut(s.what>>8, 4)<<38 | cut(s.what>>16, 4)<<34 |
		digest(s.what>>32, 9)<<25 | digest(s.count, 24)<<1
}
