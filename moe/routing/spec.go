package routing

import (
	"fmt"
	"math"
)

// Kind is a distribution of experts.
type Kind int

// The distributions.
const (
	Uniform   Kind = iota // TopK different experts, all alike
	Zipf                  // the i-th most popular expert is drawn in proportion to 1/i^Exponent
	Hot                   // Hot experts together draw the share HotShare, the others the rest
	OneRank               // only the experts that rank Target of Ranks owns
	OneExpert             // expert Target as first choice, nothing else
	Nothing               // no expert at all
)

var kindNames = [...]string{"uniform", "zipf", "hot", "one-rank", "one-expert", "nothing"}

func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind(%d)", int(k))
	}
	return kindNames[k]
}

// Spec describes tokens to draw. The zero value of a field that its Kind does
// not use is fine.
type Spec struct {
	Kind    Kind
	Experts int // at least 1
	TopK    int // 1..Experts
	Seed    uint64

	Exponent float64 // Zipf: at least 0
	Hot      int     // Hot: 1..Experts
	HotShare float64 // Hot: 0..1
	Ranks    int     // OneRank: how many ranks share the experts
	Target   int     // OneRank: a rank; OneExpert: an expert

	Holes float64 // share of choices replaced by -1, in 0..1
	Blank float64 // share of tokens whose every choice is -1, in 0..1
}

// Validate reports the first field that is out of bounds (ErrConfig).
func (s Spec) Validate() error {
	switch {
	case s.Experts < 1 || s.Experts > math.MaxInt32:
		return configError("Experts = %d", s.Experts)
	case s.TopK < 1 || s.TopK > s.Experts:
		return configError("TopK = %d with %d experts", s.TopK, s.Experts)
	case !share(s.Holes):
		return configError("Holes = %g", s.Holes)
	case !share(s.Blank):
		return configError("Blank = %g", s.Blank)
	}
	switch s.Kind {
	case Uniform, Nothing:
	case Zipf:
		if !(s.Exponent >= 0) || math.IsInf(s.Exponent, 0) {
			return configError("Exponent = %g", s.Exponent)
		}
	case Hot:
		if s.Hot < 1 || s.Hot > s.Experts {
			return configError("Hot = %d with %d experts", s.Hot, s.Experts)
		}
		if !share(s.HotShare) {
			return configError("HotShare = %g", s.HotShare)
		}
	case OneRank:
		if s.Ranks < 1 {
			return configError("Ranks = %d", s.Ranks)
		}
		if s.Target < 0 || s.Target >= s.Ranks {
			return configError("Target = %d of %d ranks", s.Target, s.Ranks)
		}
	case OneExpert:
		if s.Target < 0 || s.Target >= s.Experts {
			return configError("Target = %d of %d experts", s.Target, s.Experts)
		}
	default:
		return configError("Kind = %d", int(s.Kind))
	}
	return nil
}

func share(x float64) bool { return x >= 0 && x <= 1 }
