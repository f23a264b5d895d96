package channel

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"goshmem/internal/errs"
)

// SlotWords is the number of 8-byte words of a descriptor in word encoding.
const SlotWords = 8

// wordVersion is the version of the encoding, carried by every slot.
const wordVersion = 1

const (
	lapBit   = uint64(1) << 63
	topsMask = uint64(1)<<7 - 1 // bits 0..6 of word 7
	verShift = 8                // bits 8..15 of word 7
)

// fields is a descriptor without Seq as seven words, as it lies in the memory of
// a little-endian machine. This order is what both encodings share.
func (d *Desc) fields() [7]uint64 {
	return [7]uint64{
		uint64(d.Op) | uint64(d.Flags)<<8 | uint64(d.SigOp)<<16 | uint64(d.Type)<<24 | uint64(d.PE)<<32,
		uint64(d.Ctx) | uint64(d.DstRegion)<<32 | uint64(d.SrcRegion)<<48,
		d.DstOff, d.SrcOff, d.Size, d.SigOff, d.SigVal,
	}
}

func (d *Desc) setFields(f *[7]uint64) {
	d.Op, d.Flags, d.SigOp, d.Type = Op(f[0]), Flags(f[0]>>8), SigOp(f[0]>>16), Elem(f[0]>>24)
	d.PE = uint32(f[0] >> 32)
	d.Ctx, d.DstRegion, d.SrcRegion = uint32(f[1]), uint16(f[1]>>32), uint16(f[1]>>48)
	d.DstOff, d.SrcOff, d.Size, d.SigOff, d.SigVal = f[2], f[3], f[4], f[5], f[6]
}

// lapFlag is the flag of a lap, at its place: set in lap 0, so that zeroed
// memory is unwritten, and in every other lap after it.
func lapFlag(lap uint64) uint64 { return (lap&1 ^ 1) << 63 }

// EncodeWords is d, without Seq, in word encoding for the given lap of the ring.
// Let f[0..6] be the seven words of d as they lie in memory. Then
//
//	word i (0..6)  bits 0..62  the low 63 bits of f[i]
//	word 7         bits 0..6   bit 63 of f[0] .. f[6]
//	               bits 8..15  version of the encoding, 1
//	               the rest    0
//	every word     bit 63      1 in laps 0, 2, 4, …; 0 in laps 1, 3, 5, …
func EncodeWords(d *Desc, lap uint64) [SlotWords]uint64 {
	flag := lapFlag(lap)
	last := uint64(wordVersion)<<verShift | flag
	var w [SlotWords]uint64
	for i, f := range d.fields() {
		w[i] = f&^lapBit | flag
		last |= f >> 63 << i
	}
	w[7] = last
	return w
}

// DecodeWords is the inverse of EncodeWords. It is not ok while any word is of
// another lap: not written yet. A slot that is complete but of another version
// gives an error, a *DescError with ErrUnsupported. The fields themselves are
// not checked: see Desc.ValidateForeign.
func DecodeWords(w *[SlotWords]uint64, lap uint64) (d Desc, ok bool, err error) {
	flag := lapFlag(lap)
	var differ uint64
	for _, x := range w {
		differ |= x ^ flag
	}
	if differ&lapBit != 0 {
		return Desc{}, false, nil
	}
	last := w[7] &^ lapBit
	var f [7]uint64
	for i := range f {
		f[i] = w[i]&^lapBit | last>>i<<63
	}
	d.setFields(&f)
	if last&^topsMask != wordVersion<<verShift {
		return d, true, d.bad("word 7", w[7], errs.ErrUnsupported)
	}
	return d, true, nil
}

// Where things lie in the memory of a WordRing, in words.
const (
	// WordRingReserved is the number of positions reserved so far.
	WordRingReserved = 0
	// WordRingConsumed is the last position whose slot is free again.
	WordRingConsumed = 16
	// WordRingSlots is where the slots begin, SlotWords words each.
	WordRingSlots = 32
)

// WordRing is a bounded queue of descriptors in word encoding, for producers
// that store single words and cannot order them cheaply: threads of a GPU. Its
// memory is the caller's (pinned, mapped), and all that producers and consumer
// share: two counters on lines of their own, then the slots.
//
// A producer
//
//  1. reserves: a fetch-add of 1 on word WordRingReserved gives n, and its
//     position is n+1. From here it cannot give up. Producers that share a
//     cheaper counter of their own, in device memory, may use that instead, all
//     of them;
//  2. waits for room: until its position ≤ word WordRingConsumed + slots;
//  3. makes what the descriptor refers to visible (a system-scope fence);
//  4. stores the eight words of EncodeWords into slot n mod slots for lap
//     n / slots, each by one 8-byte store, in any order. A power of two of slots
//     makes that a mask and a shift.
//
// The consumer takes a slot when all eight words are of the lap that it expects:
// a store it has not seen yet is a word of the lap before, so no order among the
// stores is needed and every payload is legal.
//
// A slot reserved and never written stops the ring; the ring of a producer that
// died is given up as a whole. A producer that breaks the protocol spoils its
// requests and no memory: slots are read once, whole, and checked.
//
// Front, Advance and Release are the consumer's, one goroutine at a time with a
// happens-before edge between them; Reserve, HasRoom and Write are a host
// producer's, any number at once.
type WordRing struct {
	mem   []uint64 // header
	slots []uint64
	n     uint64 // number of slots

	// The consumer's own, which no producer can touch.
	head uint64 // last position consumed
	slot uint64 // head mod n
	next uint64 // a word of a slot further on
	lap  uint64 // head / n
}

// NewWordRing makes a ring of mem, which it clears: WordRingSlots words and a
// multiple of SlotWords, at least one slot, aligned to 64 bytes. No producer may
// begin before it returns.
func NewWordRing(mem []uint64) (*WordRing, error) { return newWordRingAt(mem, 0) }

// newWordRingAt makes a ring whose first position is start+1.
func newWordRingAt(mem []uint64, start uint64) (*WordRing, error) {
	words := len(mem) - WordRingSlots
	if words < SlotWords || words%SlotWords != 0 || words/SlotWords > MaxRing {
		return nil, fmt.Errorf("channel: word ring of %d words, not %d and %d for each of 1 to %d slots: %w",
			len(mem), WordRingSlots, SlotWords, MaxRing, errs.ErrConfig)
	}
	if uintptr(unsafe.Pointer(&mem[0]))%DescSize != 0 {
		return nil, fmt.Errorf("channel: word ring at %p, not on a line of %d bytes: %w", mem, DescSize, errs.ErrAlign)
	}
	n := uint64(words / SlotWords)
	r := &WordRing{mem: mem[:WordRingSlots], slots: mem[WordRingSlots:], n: n,
		head: start, slot: start % n, lap: start / n}
	for i := range n {
		lap := r.lap // the lap that the slot's next request belongs to
		if i < r.slot {
			lap++
		}
		for w := range uint64(SlotWords) {
			atomic.StoreUint64(&r.slots[i*SlotWords+w], lapFlag(lap+1))
		}
	}
	for i := range r.mem {
		atomic.StoreUint64(&r.mem[i], 0)
	}
	atomic.StoreUint64(&r.mem[WordRingReserved], start)
	atomic.StoreUint64(&r.mem[WordRingConsumed], start)
	return r, nil
}

// Cap is the number of slots.
func (r *WordRing) Cap() int { return int(r.n) }

// Reserve takes the next position, which then must be written.
func (r *WordRing) Reserve() (pos uint64) {
	return atomic.AddUint64(&r.mem[WordRingReserved], 1)
}

// HasRoom reports whether a reserved position may be written. Once it may, it
// stays so.
func (r *WordRing) HasRoom(pos uint64) bool {
	return int64(pos-atomic.LoadUint64(&r.mem[WordRingConsumed])) <= int64(r.n)
}

// Write stores d, without Seq, at a reserved position that has room.
func (r *WordRing) Write(pos uint64, d *Desc) {
	slot := r.slotOf(pos)
	for i, w := range EncodeWords(d, (pos-1)/r.n) {
		storeRelease(&slot[i], w)
	}
}

func (r *WordRing) slotOf(pos uint64) *[SlotWords]uint64 {
	return (*[SlotWords]uint64)(r.slots[(pos-1)%r.n*SlotWords:])
}

// Front is the oldest unread request, with Seq its position, if all of it has
// arrived. With an error (a *DescError: another version, or refused by
// ValidateForeign) the request is there and is to be consumed, not carried out.
func (r *WordRing) Front() (d Desc, ok bool, err error) {
	slot := (*[SlotWords]uint64)(r.slots[r.slot*SlotWords:])
	// The request after the next few is on its way from memory while this one is
	// looked at.
	const ahead = 8
	if at := r.slot + ahead; at < r.n {
		r.next = atomic.LoadUint64(&r.slots[at*SlotWords])
	}
	var w [SlotWords]uint64
	// From the end: the last word is the likeliest to be missing.
	for i := SlotWords - 1; i >= 0; i-- {
		w[i] = atomic.LoadUint64(&slot[i])
		if (w[i]^lapFlag(r.lap))&lapBit != 0 {
			return Desc{}, false, nil
		}
	}
	d, ok, err = DecodeWords(&w, r.lap)
	d.Seq = r.head + 1
	if err == nil {
		err = d.ValidateForeign()
	}
	return d, ok, err
}

// Advance consumes what Front returned. Its slot is free after Release.
func (r *WordRing) Advance() {
	r.head++
	if r.slot++; r.slot == r.n {
		r.slot = 0
		r.lap++
	}
}

// Release frees the slots of everything consumed, in one store.
func (r *WordRing) Release() { atomic.StoreUint64(&r.mem[WordRingConsumed], r.head) }

// Consumed is the last position consumed, released or not.
func (r *WordRing) Consumed() uint64 { return r.head }
