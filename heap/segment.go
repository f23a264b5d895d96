package heap

import (
	"fmt"
	"math"

	"goshmem/internal/errs"
)

// PageSize is what regions are aligned to inside a segment.
const PageSize = 4096

// The header page of a segment, at the start of region 1. The words that a
// sleeper and its wakers share have a pair of lines of their own (two, since
// the CPU fetches lines in pairs), away from what is only read.
const (
	HeaderMagic   = 0   // uint64: SegmentMagic
	HeaderVersion = 8   // uint32: SegmentVersion
	HeaderPID     = 12  // uint32: the owner's process number
	HeaderArmed   = 128 // uint32: how many waiters are about to sleep
	HeaderBell    = 132 // uint32: what they sleep on
	HeaderSize    = PageSize
)

// What the first words of a segment hold, so that a peer that maps something
// else notices.
const (
	SegmentMagic   uint64 = 0x006d_656d_6873_6f67 // "goshmem", little-endian
	SegmentVersion uint32 = 1
)

const (
	signalWord = 8   // one built-in signal word
	slotTail   = 128 // barrier word and release word, a line each
	maxOffset  = math.MaxInt64
)

// LayoutConfig is what a layout depends on. It must be the same on every PE.
type LayoutConfig struct {
	HeapSize         int64 // bytes of region 0; rounded up to PageSize
	PEs              int   // PEs of the world
	Contexts         int   // context slots
	IndicesPerSource int   // built-in signal words per (slot, source PE)
	Stage            int64 // bytes that each source PE gets for data on its way through this host's memory; 0: none
}

// Layout says where everything lies in one PE's segment. A segment is region 1
// (the runtime's: the header page, then the context slots) and behind it region 0
// (the heap). A slot is one line of built-in signal words per source PE, or more
// lines if there are more than eight words, and a line each for its barrier word
// and its release word.
//
//	0            HeaderSize                         HeapOffset            Total
//	| header     | slot 0 | slot 1 | … | stages     | heap      | padding |
//	             | source 0 | source 1 | … | barrier | release |
type Layout struct {
	sourceStride uint64 // bytes between two sources of a slot
	slotStride   uint64 // bytes between two slots
	slotTail     uint64 // offset of the barrier word in its slot
	pes          int
	contexts     int
	indices      int
	stage        uint64 // offset of the PEs' staging memory
	stageSize    uint64 // of each
	runtime      int64  // size of region 1
	heap         int64  // size of region 0
}

// PlanLayout computes the layout. Counts and sizes that are not positive are
// ErrConfig; a segment too large for a file is ErrRange.
func PlanLayout(c LayoutConfig) (Layout, error) {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"heap size", c.HeapSize},
		{"number of PEs", int64(c.PEs)},
		{"number of contexts", int64(c.Contexts)},
		{"number of signal indices", int64(c.IndicesPerSource)},
	} {
		if f.value < 1 {
			return Layout{}, fmt.Errorf("heap: %s %d: want 1 or more: %w", f.name, f.value, errs.ErrConfig)
		}
	}
	p := planner{}
	source := p.roundUp(p.mul(int64(c.IndicesPerSource), signalWord), SignalSize)
	tail := p.roundUp(p.mul(source, int64(c.PEs)), slotTail)
	slot := p.add(tail, slotTail)
	stage := p.roundUp(p.add(HeaderSize, p.mul(slot, int64(c.Contexts))), PageSize)
	runtime := p.add(stage, p.mul(p.roundUp(max(c.Stage, 0), PageSize), int64(c.PEs)))
	heap := p.roundUp(c.HeapSize, PageSize)
	p.add(runtime, heap)
	if p.over {
		return Layout{}, fmt.Errorf("heap: segment of %d B heap, %d PEs, %d contexts, %d indices exceeds 2^63 B: %w",
			c.HeapSize, c.PEs, c.Contexts, c.IndicesPerSource, errs.ErrRange)
	}
	return Layout{
		sourceStride: uint64(source),
		slotStride:   uint64(slot),
		slotTail:     uint64(tail),
		pes:          c.PEs,
		contexts:     c.Contexts,
		indices:      c.IndicesPerSource,
		stage:        uint64(stage),
		stageSize:    uint64(p.roundUp(max(c.Stage, 0), PageSize)),
		runtime:      runtime,
		heap:         heap,
	}, nil
}

// Total is the size of the segment in bytes, a multiple of PageSize.
func (l Layout) Total() int64 { return l.runtime + l.heap }

// RuntimeSize is the size of region 1, which starts the segment.
func (l Layout) RuntimeSize() int64 { return l.runtime }

// HeapOffset is where region 0 starts in the segment.
func (l Layout) HeapOffset() int64 { return l.runtime }

// HeapSize is the size of region 0, a multiple of PageSize.
func (l Layout) HeapSize() int64 { return l.heap }

// Contexts is the number of context slots.
func (l Layout) Contexts() int { return l.contexts }

// Stage is the offset in region 1 of the staging memory of a source PE. false: there
// is none.
func (l Layout) Stage(source int) (uint64, bool) {
	if l.stageSize == 0 || uint(source) >= uint(l.pes) {
		return 0, false
	}
	return l.stage + uint64(source)*l.stageSize, true
}

// StageSize is the bytes of it.
func (l Layout) StageSize() int64 { return int64(l.stageSize) }

// SourceWord is the offset in region 1 of a built-in signal word: the one that
// PE source adds to for the context in slot. false: no such word.
func (l Layout) SourceWord(slot, source, index int) (uint64, bool) {
	if uint(slot) >= uint(l.contexts) || uint(source) >= uint(l.pes) || uint(index) >= uint(l.indices) {
		return 0, false
	}
	return HeaderSize + uint64(slot)*l.slotStride + uint64(source)*l.sourceStride + uint64(index)*signalWord, true
}

// BarrierWord is the offset in region 1 of a slot's barrier counter, an AMO
// word. false: no such slot.
func (l Layout) BarrierWord(slot int) (uint64, bool) {
	if uint(slot) >= uint(l.contexts) {
		return 0, false
	}
	return HeaderSize + uint64(slot)*l.slotStride + l.slotTail, true
}

// ReleaseWord is the offset in region 1 of the word that releases a slot's
// barrier, on a line of its own. false: no such slot.
func (l Layout) ReleaseWord(slot int) (uint64, bool) {
	off, ok := l.BarrierWord(slot)
	return off + SignalSize, ok
}

// NICCell is the offset in region 1 of the word that adapters add to for the signal
// at off: the release word's, which several PEs change, has a cell for them; a
// built-in word is changed by one PE and by one path.
func (l Layout) NICCell(off uint64) uint64 {
	if off >= HeaderSize && (off-HeaderSize)%l.slotStride == l.slotTail+SignalSize {
		return off + NICCell
	}
	return off
}

// SlotRange is the part of region 1 that belongs to a slot: what is zeroed
// before the slot is used again. false: no such slot.
func (l Layout) SlotRange(slot int) (off, size uint64, ok bool) {
	if uint(slot) >= uint(l.contexts) {
		return 0, 0, false
	}
	return HeaderSize + uint64(slot)*l.slotStride, l.slotStride, true
}

// planner does sums that remember whether one left int64. Operands are not
// negative.
type planner struct{ over bool }

func (p *planner) add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		p.over = true
		return 0
	}
	return a + b
}

func (p *planner) mul(a, b int64) int64 {
	if b != 0 && a > math.MaxInt64/b {
		p.over = true
		return 0
	}
	return a * b
}

func (p *planner) roundUp(a, to int64) int64 {
	return p.add(a, to-1) / to * to
}
