package heap

import (
	"fmt"
	"math/bits"
	"slices"
)

// model is the allocator as one would describe it: a list of what is taken, and
// everything else looked up by walking over it.
type model struct {
	base  uint64
	size  int64
	taken []span // in order of offset
}

// gaps is the free blocks in order of offset.
func (m *model) gaps() []span {
	var out []span
	at := m.base
	for _, s := range m.taken {
		if s.off > at {
			out = append(out, span{at, int64(s.off - at)})
		}
		at = s.end()
	}
	if end := m.base + uint64(m.size); end > at {
		out = append(out, span{at, int64(end - at)})
	}
	return out
}

func (m *model) largest() int64 {
	var n int64
	for _, g := range m.gaps() {
		n = max(n, g.size)
	}
	return n
}

func (m *model) inUse() int64 {
	var n int64
	for _, s := range m.taken {
		n += s.size
	}
	return n
}

// alloc takes the best gap; false if none holds the part.
func (m *model) alloc(size, align int64) (uint64, bool) {
	for size == 0 || size%MinAlign != 0 {
		size++
	}
	align = max(align, MinAlign)
	found, best, at := false, int64(0), uint64(0)
	for _, g := range m.gaps() {
		off := g.off
		if r := off % uint64(align); r != 0 {
			off += uint64(align) - r
		}
		if off+uint64(size) <= g.end() && (!found || g.size < best) {
			found, best, at = true, g.size, off
		}
	}
	if found {
		m.taken = append(m.taken, span{at, size})
		slices.SortFunc(m.taken, cmpOff)
	}
	return at, found
}

func (m *model) free(off uint64) bool {
	for i, s := range m.taken {
		if s.off == off {
			m.taken = slices.Delete(m.taken, i, i+1)
			return true
		}
	}
	return false
}

// compare says in what the allocator differs from the model, and checks what
// must always hold.
func (m *model) compare(a *Allocator) error {
	gaps := m.gaps()
	if !slices.Equal(gaps, a.byOff) {
		return fmt.Errorf("free blocks %v, want %v", a.byOff, gaps)
	}
	slices.SortFunc(gaps, cmpSize)
	if !slices.Equal(gaps, a.bySize) {
		return fmt.Errorf("free blocks by size %v, want %v", a.bySize, gaps)
	}
	if len(a.used) != len(m.taken) {
		return fmt.Errorf("%d blocks used, want %d", len(a.used), len(m.taken))
	}
	if a.InUse() != m.inUse() || a.LargestFree() != m.largest() || a.Size() != m.size {
		return fmt.Errorf("in use %d, largest %d, size %d; want %d, %d, %d",
			a.InUse(), a.LargestFree(), a.Size(), m.inUse(), m.largest(), m.size)
	}
	for i, s := range m.taken {
		if size, ok := a.SizeOf(s.off); !ok || size != s.size {
			return fmt.Errorf("block at %#x: %d B, want %d", s.off, size, s.size)
		}
		if s.off < m.base || s.end() > m.base+uint64(m.size) || i > 0 && m.taken[i-1].end() > s.off {
			return fmt.Errorf("block %v overlaps or leaves the region", s)
		}
	}
	return nil
}

// op is one call of an operation log.
type op struct {
	free  bool
	index int   // of the block to free, among those taken; out of range: a foreign offset
	size  int64 // to allocate
	align int64
}

// decodeOps reads an operation log: two bytes an operation, any bytes are legal.
// The first: bit 7 free, bits 0..4 the alignment's exponent; the second: the
// block, or the size in a few magnitudes.
func decodeOps(log []byte) []op {
	var ops []op
	for ; len(log) >= 2; log = log[2:] {
		a, b := log[0], int64(log[1])
		if a&0x80 != 0 {
			ops = append(ops, op{free: true, index: int(b)})
			continue
		}
		o := op{size: b >> 2 << (6 * (b & 3))}
		if exp := a & 0x1f; exp > 0 {
			o.align = 1 << (exp - 1)
		}
		ops = append(ops, o)
	}
	return ops
}

// encodeOps is the inverse for seeds and for replaying a found log.
func encodeOps(ops []op) []byte {
	var log []byte
	for _, o := range ops {
		if o.free {
			log = append(log, 0x80, byte(o.index))
			continue
		}
		magnitude := 0
		for o.size>>(6*magnitude) > 63 {
			magnitude++
		}
		log = append(log, byte(bits.Len64(uint64(o.align))), byte(o.size>>(6*magnitude)<<2|int64(magnitude)))
	}
	return log
}
