package rma

import "fmt"

// Cmp is a comparison of a word with a value.
type Cmp uint8

// The comparisons of OpenSHMEM.
const (
	EQ Cmp = iota // equal
	NE            // not equal
	GT            // greater than
	GE            // greater or equal
	LT            // less than
	LE            // less or equal
	numCmp
)

func (c Cmp) String() string {
	if c < numCmp {
		return [...]string{"==", "!=", ">", ">=", "<", "<="}[c]
	}
	return fmt.Sprintf("cmp(%d)", uint8(c))
}

func holds[T ~int32 | ~int64 | ~int | ~uint32 | ~uint64 | ~uint](have T, c Cmp, want T) bool {
	switch c {
	case EQ:
		return have == want
	case NE:
		return have != want
	case GT:
		return have > want
	case GE:
		return have >= want
	case LT:
		return have < want
	default:
		return have <= want
	}
}
