package heap

// SignalSize is the size and the alignment of a signal object in bytes: a cache
// line of its own.
const SignalSize = 64

// A signal's line holds its cells, whose sum is the signal's value: the first is
// changed by CPUs, each of the others by one stream of copies (a source PE and
// context), which cannot add and so stores its running total. The last word counts
// the cells that streams took.
const (
	SignalCells  = 7 // cells of a signal, the CPUs' one included
	SignalClaims = 8 * SignalCells
)

// Signal is one signal object: the line that holds its cells. Only the signal
// operations of rma touch it. The zero Signal is refused by every operation
// (ErrBadRef).
type Signal struct{ ref Ref }

// MakeSignal is the signal object at ref. Users get theirs from allocations;
// this is for allocators and tests.
func MakeSignal(ref Ref) Signal { return Signal{ref} }

// Ref is the address of the object.
func (s Signal) Ref() Ref { return s.ref }

func (s Signal) String() string { return s.ref.String() }

// Signals is an array of signal objects, one after the other.
type Signals struct {
	ref Ref
	n   int
}

// MakeSignals is n signal objects from ref on. A negative n, or an end past the
// offsets there are, gives an array without objects whose address every
// operation refuses with ErrRange.
func MakeSignals(ref Ref, n int) Signals {
	end := ref.move(int64(n), SignalSize)
	if n < 0 || end.OutOfRange() || end.off > maxOffset {
		return Signals{ref: ref.asBad()}
	}
	return Signals{ref: ref, n: n}
}

// At is object i. Out of range it is a signal that every operation refuses with
// ErrRange.
func (s Signals) At(i int) Signal {
	if uint(i) >= uint(s.n) {
		return Signal{s.ref.asBad()}
	}
	s.ref.off += uint64(i) * SignalSize
	return Signal{s.ref}
}

// Slice is the part [i, j). Out of range it is an array without objects whose
// address every operation refuses with ErrRange.
func (s Signals) Slice(i, j int) Signals {
	if uint(i) > uint(j) || uint(j) > uint(s.n) {
		return Signals{ref: s.ref.asBad()}
	}
	s.ref.off += uint64(i) * SignalSize
	s.n = j - i
	return s
}

// Len is the number of objects.
func (s Signals) Len() int { return s.n }

// Ref is the address of the first object.
func (s Signals) Ref() Ref { return s.ref }

// Bytes is the length in bytes.
func (s Signals) Bytes() int64 { return int64(s.n) * SignalSize }
