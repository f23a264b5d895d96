package plan

import "math"

// Sent is what one rank dispatches: a copy of its routing and what follows from
// it alone. It is reused from call to call.
type Sent struct {
	T       int
	Idx     []int32   // [t*TopK+k]
	Weights []float32 // [t*TopK+k]
	Rows    []uint32  // by rank: tokens with at least one expert there
	Pairs   []uint32  // by expert: choices of it

	tokens []int32 // tokens by rank, ascending within each
	start  []int   // by rank, and the end: where its tokens begin
	seen   []int64 // by expert: the last token that chose it, plus one
	at     []int64 // by rank, likewise
}

// Route checks a rank's input and fills s. idx has T*TopK choices and weights as
// many; both are copied. On a Fault s is unusable until the next Route.
func Route(p *Params, o *Owners, idx []int32, weights []float32, s *Sent) Fault {
	if len(idx)%p.TopK != 0 {
		return Fault{BadArgument, ArgIdx, int64(len(idx)), int64(roundUp(int64(len(idx)), int64(p.TopK)))}
	}
	s.T = len(idx) / p.TopK
	if int64(s.T) > p.MaxTokens {
		return Fault{TooMany, int64(s.T), p.MaxTokens, 0}
	}
	if len(weights) != len(idx) {
		return Fault{BadArgument, ArgWeights, int64(len(weights)), int64(len(idx))}
	}
	s.Rows = zeroed(s.Rows, p.Ranks)
	s.Pairs = zeroed(s.Pairs, p.Experts)
	s.seen = zeroed(s.seen, p.Experts)
	s.at = zeroed(s.at, p.Ranks)
	for t := range s.T {
		mark := int64(t) + 1
		for k, e := range idx[t*p.TopK : (t+1)*p.TopK] {
			if e == -1 {
				continue
			}
			if e < 0 || int64(e) >= int64(p.Experts) {
				return Fault{BadExpert, int64(t), int64(k), int64(e)}
			}
			if s.seen[e] == mark {
				return Fault{Duplicate, int64(t), int64(k), int64(e)}
			}
			s.seen[e] = mark
			s.Pairs[e]++
			if r := o.rank[e]; s.at[r] != mark {
				s.at[r] = mark
				s.Rows[r]++
			}
		}
	}
	s.Idx = append(s.Idx[:0], idx...)
	s.Weights = append(s.Weights[:0], weights...)
	s.byRank(p, o)
	return Fault{}
}

// byRank lists the tokens that go to each rank.
func (s *Sent) byRank(p *Params, o *Owners) {
	s.start = zeroed(s.start, p.Ranks+1)
	for r, n := range s.Rows {
		s.start[r+1] = s.start[r] + int(n)
	}
	s.tokens = resized(s.tokens, s.start[p.Ranks])
	s.at = zeroed(s.at, p.Ranks) // now: the last token listed for the rank, plus one
	next := s.start[:p.Ranks]
	for t := range s.T {
		mark := int64(t) + 1
		for _, e := range s.Idx[t*p.TopK : (t+1)*p.TopK] {
			if e < 0 {
				continue
			}
			if r := o.rank[e]; s.at[r] != mark {
				s.at[r] = mark
				s.tokens[next[r]] = int32(t)
				next[r]++
			}
		}
	}
	// Filling moved each rank's start to the next one's.
	copy(s.start[1:], s.start[:p.Ranks])
	s.start[0] = 0
}

// To lists the tokens that go to a rank, ascending.
func (s *Sent) To(rank int) []int32 { return s.tokens[s.start[rank]:s.start[rank+1]] }

// Records is the number of records that s sends to all ranks together.
func (s *Sent) Records() int { return len(s.tokens) }

// MaxTokens is the most tokens a rank may ever be configured for: token numbers
// are 32-bit where they travel.
const MaxTokens = math.MaxInt32

// zeroed is s with length n and all zero, reusing its memory.
func zeroed[T any](s []T, n int) []T {
	s = resized(s, n)
	clear(s)
	return s
}

// resized is s with length n and unspecified content, reusing its memory.
func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
