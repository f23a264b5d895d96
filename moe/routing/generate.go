package routing

import (
	"math"
	"math/rand/v2"
)

// Batch draws tokens for one rank. Every rank has its own stream of the seed, so
// ranks may draw in any order, and the first tokens of a longer batch are those
// of a shorter one.
//
// Weights of a token are positive and sum to about 1 over its valid choices.
func (s Spec) Batch(rank, tokens int) (Batch, error) {
	if err := s.Validate(); err != nil {
		return Batch{}, err
	}
	if rank < 0 || tokens < 0 {
		return Batch{}, configError("rank %d, %d tokens", rank, tokens)
	}
	if tokens > math.MaxInt/s.TopK/8 {
		return Batch{}, configError("%d tokens of %d choices", tokens, s.TopK)
	}
	b := Batch{
		TopK:    s.TopK,
		Idx:     make([]int32, tokens*s.TopK),
		Weights: make([]float32, tokens*s.TopK),
	}
	rng := rand.New(rand.NewPCG(s.Seed, uint64(rank)))
	pick := s.picker()
	for t := range tokens {
		row := b.Idx[t*s.TopK : (t+1)*s.TopK]
		pick(rng, row)
		// Holes are drawn whether or not they apply, which keeps the stream of
		// the experts independent of the two shares.
		blank := rng.Float64() < s.Blank
		for k := range row {
			if hole := rng.Float64() < s.Holes; hole || blank {
				row[k] = -1
			}
		}
		weigh(rng, row, b.Weights[t*s.TopK:(t+1)*s.TopK])
	}
	return b, nil
}

// picker returns a function that fills one token's choices.
func (s Spec) picker() func(*rand.Rand, []int32) {
	switch s.Kind {
	case Zipf:
		return weighted(zipfLogs(s.Experts, s.Exponent, s.Seed))
	case Hot:
		return weighted(hotLogs(s.Experts, s.Hot, s.HotShare, s.Seed))
	case OneRank:
		first, n := block(s.Experts, s.Ranks, s.Target)
		return distinct(first, n)
	case OneExpert:
		return func(_ *rand.Rand, row []int32) {
			fill(row)
			row[0] = int32(s.Target)
		}
	case Nothing:
		return func(_ *rand.Rand, row []int32) { fill(row) }
	default:
		return distinct(0, s.Experts)
	}
}

// distinct picks different experts of [first, first+n), all alike; choices for
// which none is left are -1.
func distinct(first, n int) func(*rand.Rand, []int32) {
	pool := make([]int32, n)
	for i := range pool {
		pool[i] = int32(first + i)
	}
	return func(rng *rand.Rand, row []int32) {
		fill(row)
		// The head of a Fisher-Yates shuffle; the pool stays a permutation.
		for k := range min(len(row), n) {
			j := k + rng.IntN(n-k)
			pool[k], pool[j] = pool[j], pool[k]
			row[k] = pool[k]
		}
	}
}

// weighted draws without replacement in proportion to exp(logs[e]): the experts
// with the largest logs[e] + Gumbel noise, in that order.
func weighted(logs []float64) func(*rand.Rand, []int32) {
	keys := make([]float64, len(logs))
	return func(rng *rand.Rand, row []int32) {
		for e, l := range logs {
			keys[e] = l - math.Log(rng.ExpFloat64())
		}
		for k := range row {
			best := -1
			for e, key := range keys {
				if !math.IsNaN(key) && (best < 0 || key > keys[best]) {
					best = e
				}
			}
			row[k] = int32(best)
			keys[best] = math.NaN()
		}
	}
}

// zipfLogs gives every expert a place in a popularity order that the seed fixes
// for all ranks.
func zipfLogs(experts int, exponent float64, seed uint64) []float64 {
	logs := make([]float64, experts)
	for place, e := range order(experts, seed) {
		logs[e] = -exponent * math.Log(float64(place+1))
	}
	return logs
}

func hotLogs(experts, hot int, share float64, seed uint64) []float64 {
	// The smallest share that is drawn at all: with none, a token that needs more
	// experts than one side has could not be filled.
	const least = 1e-12
	logs := make([]float64, experts)
	for place, e := range order(experts, seed) {
		if place < hot {
			logs[e] = math.Log(max(share, least) / float64(hot))
		} else {
			logs[e] = math.Log(max(1-share, least) / float64(experts-hot))
		}
	}
	return logs
}

// order is a permutation of the experts that only the seed decides.
func order(experts int, seed uint64) []int {
	return rand.New(rand.NewPCG(seed, ^uint64(0))).Perm(experts)
}

// block is the contiguous range of experts that a rank owns: the first
// experts%ranks ranks own one more than the others.
func block(experts, ranks, rank int) (first, n int) {
	each, more := experts/ranks, experts%ranks
	first = rank*each + min(rank, more)
	n = each
	if rank < more {
		n++
	}
	return first, n
}

// weigh gives the valid choices of a token random positive weights that sum to
// about 1.
func weigh(rng *rand.Rand, row []int32, w []float32) {
	var sum float64
	for k, e := range row {
		x := rng.ExpFloat64() + 1e-3
		w[k] = 0
		if e >= 0 {
			w[k] = float32(x)
			sum += x
		}
	}
	if sum == 0 {
		return
	}
	for k := range w {
		w[k] = float32(float64(w[k]) / sum)
	}
}

func fill(row []int32) {
	for k := range row {
		row[k] = -1
	}
}

// Ragged draws token counts of 0..most for the ranks; each is 0 with the given
// chance.
func Ragged(seed uint64, ranks, most int, zero float64) ([]int, error) {
	if ranks < 0 || most < 0 || most == math.MaxInt || !share(zero) {
		return nil, configError("%d ranks, at most %d tokens, zero %g", ranks, most, zero)
	}
	rng := rand.New(rand.NewPCG(seed, 0x7a99ed))
	counts := make([]int, ranks)
	for r := range counts {
		n := rng.IntN(most + 1)
		if rng.Float64() < zero {
			n = 0
		}
		counts[r] = n
	}
	return counts, nil
}
