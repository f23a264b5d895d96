package rma_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// kind is what a step of a random log does.
type kind uint8

const (
	kPut kind = iota
	kPutNBI
	kTryPut
	kGet
	kGetNBI
	kPutSignal
	kPutSignalNBI
	kSignal
	kNotify
	kPutValue
	kGetValue
	kIPut
	kIPutNBI
	kIGet
	kBatch
	kAMOSet
	kAMOAdd
	kFetchAdd
	kCompareSwap
	kFetchXorNBI
	kFence
	kQuiet
	kWait
	kCollect // garbage: what a queue holds must stay
	kinds
)

var kindNames = [kinds]string{
	"put", "put nbi", "try put", "get", "get nbi", "put signal", "put signal nbi", "signal", "notify",
	"put value", "get value", "iput", "iput nbi", "iget", "batch", "amo set", "amo add", "fetch add",
	"compare swap", "fetch xor nbi", "fence", "quiet", "wait", "collect",
}

// step is one operation of a log, by one PE. Every (source, context) has an area
// of its own at every target, so that what a PE does there is in one lane, and
// its outcome is certain.
type step struct {
	kind      kind
	ctx       int // 0 or 1
	target    int
	off, n    int // of the area, in bytes; elements of strided forms
	here, far int // strides
	word      int
	add       bool // signal op
	v, cond   uint64
	seed      int // of the bytes put
}

func (s step) String() string {
	return fmt.Sprintf("%s ctx=%d pe=%d off=%d n=%d strides=%d,%d word=%d add=%v v=%d cond=%d seed=%d",
		kindNames[s.kind], s.ctx, s.target, s.off, s.n, s.here, s.far, s.word, s.add, s.v, s.cond, s.seed)
}

// Sizes of an area.
const (
	areaBytes = 8 << 10
	areaWords = 4
	queuedAt  = 1 << 10 // InlineMax of these worlds
)

// area is the model of one area: what has been put there.
type area struct {
	data   [areaBytes]byte
	words  [areaWords]uint64
	set    uint64 // a signal that is set
	add    uint64 // one that is added to
	notify uint64
}

// generate makes the log of one PE of n.
func generate(seed uint64, rank, n, steps int) []step {
	rng := rand.New(rand.NewPCG(seed, uint64(rank)))
	log := make([]step, steps)
	for i := range log {
		s := step{
			kind: kind(rng.IntN(int(kinds))), ctx: rng.IntN(2), target: rng.IntN(n),
			word: rng.IntN(areaWords), add: rng.IntN(2) == 0, v: rng.Uint64N(5), cond: rng.Uint64N(5), seed: rng.IntN(250),
			here: 1 + rng.IntN(4), far: 1 + rng.IntN(4),
		}
		switch rng.IntN(4) {
		case 0:
			s.n = rng.IntN(9)
		case 1:
			s.n = 8
		case 2:
			s.n = rng.IntN(300)
		case 3:
			s.n = queuedAt + rng.IntN(3*queuedAt)
		}
		switch s.kind {
		case kIPut, kIPutNBI, kIGet:
			s.n = min(s.n, 500)
			s.off = rng.IntN(areaBytes-4*s.n*s.far) &^ 3
		case kPutValue, kGetValue:
			s.n = 1 << rng.IntN(4)
			s.off = rng.IntN(areaBytes/8) * 8
		default:
			s.off = rng.IntN(areaBytes - s.n + 1)
			if rng.IntN(3) == 0 {
				s.off &^= 7
			}
		}
		log[i] = s
	}
	return log
}

// bytesOfSeed is what a step puts.
func bytesOfSeed(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed + i*5 + i>>8 + 1)
	}
	return b
}

// value is the element of a value step.
func (s step) value() uint64 { return binary.LittleEndian.Uint64(bytesOfSeed(s.seed, 8)) }

// items cuts a batch: the same bytes in up to four pieces, the last one first.
func (s step) items() (offs []int, srcs [][]byte) {
	src := bytesOfSeed(s.seed, s.n)
	k := 1 + s.word
	for i := k - 1; i >= 0; i-- {
		from, to := s.n*i/k, s.n*(i+1)/k
		offs, srcs = append(offs, s.off+from), append(srcs, src[from:to])
	}
	return offs, srcs
}

// play applies a step and says what it reads: bytes of gets, the old value of
// AMOs.
func (a *area) play(s step) (read []byte, old uint64) {
	w := &a.words[s.word]
	switch s.kind {
	case kPut, kPutNBI, kTryPut, kPutSignal, kPutSignalNBI:
		copy(a.data[s.off:], bytesOfSeed(s.seed, s.n))
	case kGet, kGetNBI:
		return append([]byte(nil), a.data[s.off:s.off+s.n]...), 0
	case kPutValue:
		copy(a.data[s.off:], bytesOfSeed(s.seed, 8)[:s.n])
	case kGetValue:
		return append([]byte(nil), a.data[s.off:s.off+s.n]...), 0
	case kIPut, kIPutNBI:
		src := bytesOfSeed(s.seed, 4*s.n*s.here)
		for i := range s.n {
			copy(a.data[s.off+4*i*s.far:][:4], src[4*i*s.here:])
		}
	case kIGet:
		read = make([]byte, 4*s.n*s.here)
		for i := range s.n {
			copy(read[4*i*s.here:][:4], a.data[s.off+4*i*s.far:])
		}
		return read, 0
	case kBatch:
		offs, srcs := s.items()
		for i := range offs {
			copy(a.data[offs[i]:], srcs[i])
		}
	case kNotify:
		a.notify++
	case kAMOSet:
		*w = s.v
	case kAMOAdd, kFetchAdd:
		old, *w = *w, *w+s.v
	case kCompareSwap:
		if old = *w; old == s.cond {
			*w = s.v
		}
	case kFetchXorNBI:
		old, *w = *w, *w^s.v
	}
	switch s.kind {
	case kPutSignal, kPutSignalNBI, kSignal:
		if s.add {
			a.add += s.v
		} else {
			a.set = s.v
		}
	}
	return nil, old
}

// final is what a log leaves at a target, by context.
func final(log []step, target int) (areas [2]area) {
	for _, s := range log {
		if s.target == target {
			areas[s.ctx].play(s)
		}
	}
	return areas
}

func words32(b []byte) []uint32 {
	w := make([]uint32, len(b)/4)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return w
}

func bytes32(w []uint32) []byte {
	var b []byte
	for _, v := range w {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}
