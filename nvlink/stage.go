package nvlink

import "unsafe"

// stage is pinned memory through which data of other host memory passes: a ring
// whose pieces are given back in order, when the stream is past them and what was
// to be copied out has been.
type stage struct {
	base       unsafe.Pointer
	addr       uint64
	size       uint64
	head, tail uint64 // bytes given out, and given back, so far
	marks      []*mark
}

// mark ends a piece.
type mark struct {
	end  uint64 // head behind it
	seq  uint64 // of the group that uses it
	held bool   // something is to be copied out of it
}

func newStage(base unsafe.Pointer, addr, size uint64) *stage {
	return &stage{base: base, addr: addr, size: size}
}

// take is n bytes, at most the size, for the group seq; nil where there is no room.
func (s *stage) take(n, seq uint64, held bool) (p unsafe.Pointer, addr uint64, m *mark) {
	const align = 64
	n = (n + align - 1) &^ (align - 1)
	at := s.head % s.size
	skip := uint64(0)
	if at+n > s.size {
		skip = s.size - at
	}
	if s.head+skip+n-s.tail > s.size {
		return nil, 0, nil
	}
	s.head += skip + n
	m = &mark{end: s.head, seq: seq, held: held}
	s.marks = append(s.marks, m)
	at = (s.head - n) % s.size
	return unsafe.Add(s.base, at), s.addr + at, m
}

// reclaim gives back what groups up to done used.
func (s *stage) reclaim(done uint64) {
	if s == nil { // a pipe's end has none
		return
	}
	n := 0
	for n < len(s.marks) && !s.marks[n].held && int64(done-s.marks[n].seq) >= 0 {
		s.tail = s.marks[n].end
		n++
	}
	if n > 0 {
		s.marks = append(s.marks[:0], s.marks[n:]...)
	}
}
