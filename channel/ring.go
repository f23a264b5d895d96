package channel

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"goshmem/internal/errs"
)

// MaxRing is the largest capacity of a ring, in slots.
const MaxRing = 1 << 24

// line keeps hot words apart: two cache lines, as processors fetch them in pairs.
const line = 128

// Local is the part of a request that the collector must see: Go memory is held
// here, and only here, from Publish until the consumer's Advance. It is read
// only where the descriptor has FlagLocalPtr.
type Local struct {
	Ptr unsafe.Pointer // the local side
}

// Ring is a bounded lock-free queue of descriptors with many producers and one
// consumer at a time. Positions count from 1 and are dense. A producer claims a
// position only while fewer than the capacity are claimed and not released, so
// a claim never waits and a full ring costs the producer nothing; a claimed
// position must be published, for the consumer takes positions in order.
//
// A slot is committed by storing its position into Desc.Seq, which is no part of
// the payload: every payload is legal. As positions never repeat, marks of
// earlier laps cannot be mistaken.
//
// The consumer's methods (Front, Peek, Advance, Release) may be called by any
// goroutine, one at a time, with a happens-before edge from one to the next.
type Ring struct {
	slots    []Desc
	locals   []Local
	mask     uint64
	capacity uint64
	_        [line]byte

	// The producers' line. limit is the last position that may be claimed for
	// all that producers know, a copy that spares them the consumer's line. It
	// may fall back when two producers refresh it at once: any value it ever had
	// was a lower bound, and stays one.
	tail  atomic.Uint64 // last position claimed
	limit atomic.Uint64
	_     [line - 16]byte

	// The consumer's line.
	head uint64 // last position consumed
	_    [line - 8]byte

	// Written by the consumer once a batch, read by producers that run out of
	// limit.
	released atomic.Uint64 // last position whose slot is free again
	_        [line - 8]byte
}

// NewRing makes a ring of exactly capacity slots, from 1 to MaxRing.
func NewRing(capacity int) (*Ring, error) { return newRingAt(capacity, 0) }

// newRingAt makes a ring whose first position is start+1.
func newRingAt(capacity int, start uint64) (*Ring, error) {
	if capacity < 1 || capacity > MaxRing {
		return nil, fmt.Errorf("channel: ring of %d slots, not 1 to %d: %w", capacity, MaxRing, errs.ErrConfig)
	}
	// Indexing by a mask needs a power of two; the slots beyond the capacity
	// take turns, and limit alone says how many are in flight.
	n := 1 << bits.Len(uint(capacity-1))
	r := &Ring{
		slots:    alignedDescs(n),
		locals:   make([]Local, n),
		mask:     uint64(n - 1),
		capacity: uint64(capacity),
		head:     start,
	}
	for i := range r.slots {
		r.slots[i].Seq = start
	}
	r.tail.Store(start)
	r.limit.Store(start + r.capacity)
	r.released.Store(start)
	return r, nil
}

// Cap is the ring's capacity.
func (r *Ring) Cap() int { return int(r.capacity) }

// TryClaim takes the next position if a slot is free. The caller fills the
// slot, except Seq, and where it sets FlagLocalPtr also r.Local(pos), and then
// must call Publish. A claim is a full memory barrier.
func (r *Ring) TryClaim() (pos uint64, slot *Desc, ok bool) {
	for {
		t := r.tail.Load()
		if int64(r.limit.Load()-t) <= 0 && !r.moreRoom(t) {
			return 0, nil, false
		}
		if r.tail.CompareAndSwap(t, t+1) {
			return t + 1, &r.slots[t&r.mask], true
		}
	}
}

// moreRoom reads how far the consumer is, and says whether t+1 may be claimed.
func (r *Ring) moreRoom(t uint64) bool {
	limit := r.released.Load() + r.capacity
	if int64(limit-t) <= 0 {
		return false
	}
	r.limit.Store(limit)
	return true
}

// Local is the reference beside the slot of a claimed, unpublished position.
func (r *Ring) Local(pos uint64) *Local { return &r.locals[(pos-1)&r.mask] }

// Publish commits a claimed position. What the caller wrote before is visible
// to the consumer that sees it. It is a release store and no full barrier: to
// learn whether the consumer sleeps, rest on the claim (see Empty).
func (r *Ring) Publish(pos uint64) { storeRelease(&r.slots[(pos-1)&r.mask].Seq, pos) }

// TryPush claims, copies d and, where d has FlagLocalPtr, local, and publishes.
// The position is the request's number; false means that the ring was full.
// d.Seq is not read.
func (r *Ring) TryPush(d *Desc, local Local) (pos uint64, ok bool) {
	pos, slot, ok := r.TryClaim()
	if !ok {
		return 0, false
	}
	copyBody(slot, d)
	if d.Flags&FlagLocalPtr != 0 {
		*r.Local(pos) = local
	}
	r.Publish(pos)
	return pos, true
}

// Front is the oldest unread request, in place, if it is published. Slot and
// reference belong to the consumer until Advance.
func (r *Ring) Front() (d *Desc, local *Local, pos uint64, ok bool) { return r.Peek(0) }

// Peek is Front for the request i places later; it is there only if every one
// before it has been seen there.
func (r *Ring) Peek(i int) (d *Desc, local *Local, pos uint64, ok bool) {
	at := r.head + uint64(i)
	d = &r.slots[at&r.mask]
	if atomic.LoadUint64(&d.Seq) != at+1 {
		return nil, nil, 0, false
	}
	return d, &r.locals[at&r.mask], at + 1, true
}

// Advance consumes what Front returned and drops its reference. The slot is
// free for producers only after Release.
func (r *Ring) Advance() {
	i := r.head & r.mask
	if r.slots[i].Flags&FlagLocalPtr != 0 {
		r.locals[i] = Local{}
	}
	r.head++
}

// Release frees the slots of everything consumed, in one store. It is a full
// memory barrier, so that a look for waiting producers may follow.
func (r *Ring) Release() {
	if r.released.Load() != r.head {
		r.released.Store(r.head)
	}
}

// Claimed is the last position claimed, published or not; 0 for none.
func (r *Ring) Claimed() uint64 { return r.tail.Load() }

// Consumed is the last position released; 0 for none.
func (r *Ring) Consumed() uint64 { return r.released.Load() }

// Empty reports whether everything claimed has been released. Anybody may ask.
//
// It counts claims, not commits, so that a consumer can go to sleep safely: it
// announces that it sleeps (an atomic store), then sleeps only if Empty. A
// producer claims, and after Publish looks whether the consumer sleeps. Claim
// and announcement are full barriers, so one of the two sees the other.
func (r *Ring) Empty() bool { return r.released.Load() == r.tail.Load() }
