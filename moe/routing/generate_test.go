package routing

import (
	"errors"
	"math"
	"slices"
	"testing"

	"goshmem/internal/errs"

	"pgregory.net/rapid"
)

func anySpec() *rapid.Generator[Spec] {
	return rapid.Custom(func(t *rapid.T) Spec {
		s := Spec{
			Kind:     Kind(rapid.IntRange(0, len(kindNames)-1).Draw(t, "kind")),
			Experts:  rapid.IntRange(1, 70).Draw(t, "experts"),
			Seed:     rapid.Uint64().Draw(t, "seed"),
			Exponent: rapid.Float64Range(0, 3).Draw(t, "exponent"),
			HotShare: rapid.Float64Range(0, 1).Draw(t, "share"),
			Ranks:    rapid.IntRange(1, 9).Draw(t, "ranks"),
			Holes:    rapid.SampledFrom([]float64{0, 0.2, 1}).Draw(t, "holes"),
			Blank:    rapid.SampledFrom([]float64{0, 0.2, 1}).Draw(t, "blank"),
		}
		s.TopK = rapid.IntRange(1, s.Experts).Draw(t, "topk")
		s.Hot = rapid.IntRange(1, s.Experts).Draw(t, "hot")
		s.Target = rapid.IntRange(0, min(s.Ranks, s.Experts)-1).Draw(t, "target")
		return s
	})
}

// What every batch promises: right lengths, ids in range and different within a
// token, weights that sum to 1 over the valid choices, the same again for the
// same seed, and prefixes of longer batches.
func TestBatchProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySpec().Draw(t, "spec")
		rank := rapid.IntRange(0, 5).Draw(t, "rank")
		tokens := rapid.IntRange(0, 20).Draw(t, "tokens")
		b, err := s.Batch(rank, tokens)
		if err != nil {
			t.Fatal(err)
		}
		if b.Tokens() != tokens || len(b.Weights) != tokens*s.TopK {
			t.Fatalf("%d tokens, %d weights", b.Tokens(), len(b.Weights))
		}
		for tok := range tokens {
			seen := map[int32]bool{}
			var sum float64
			for k := range s.TopK {
				e, w := b.Idx[tok*s.TopK+k], b.Weights[tok*s.TopK+k]
				if e == -1 {
					if w != 0 {
						t.Fatalf("no expert has weight %g", w)
					}
					continue
				}
				if e < 0 || int(e) >= s.Experts || seen[e] || !(w > 0) {
					t.Fatalf("token %d: expert %d, weight %g", tok, e, w)
				}
				seen[e] = true
				sum += float64(w)
			}
			if len(seen) > 0 && math.Abs(sum-1) > 1e-4 {
				t.Fatalf("token %d: weights sum to %g", tok, sum)
			}
		}
		longer, err := s.Batch(rank, tokens+3)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(b.Idx, longer.Idx[:len(b.Idx)]) || !slices.Equal(b.Weights, longer.Weights[:len(b.Weights)]) {
			t.Fatal("another batch for the same seed")
		}
	})
}

func TestRanksDrawDifferentTokens(t *testing.T) {
	s := Spec{Experts: 64, TopK: 4, Seed: 3}
	a, _ := s.Batch(0, 50)
	b, _ := s.Batch(1, 50)
	if slices.Equal(a.Idx, b.Idx) {
		t.Fatal("ranks 0 and 1 drew the same")
	}
}

func TestDistributions(t *testing.T) {
	const experts, tokens = 32, 4000
	loads := func(s Spec) []int {
		s.Experts, s.TopK, s.Seed = experts, 4, 9
		b, err := s.Batch(0, tokens)
		if err != nil {
			t.Fatal(err)
		}
		l := b.Loads(experts)
		slices.Sort(l)
		slices.Reverse(l)
		return l
	}
	sum := func(l []int) (n int) {
		for _, x := range l {
			n += x
		}
		return n
	}
	if l := loads(Spec{}); l[0] > 600 || l[experts-1] < 400 {
		t.Errorf("uniform: %v", l)
	}
	if l := loads(Spec{Kind: Zipf, Exponent: 1}); l[0] < 3*l[15] || l[0] <= l[1] {
		t.Errorf("zipf: %v", l)
	}
	if l := loads(Spec{Kind: Hot, Hot: 2, HotShare: 0.9}); l[1] < 3500 || l[2] > 600 {
		t.Errorf("hot: %v", l)
	}
	if l := loads(Spec{Kind: OneRank, Ranks: 5, Target: 4}); sum(l) != 4*tokens || l[5] != 4*tokens/6 && l[6] != 0 {
		t.Errorf("one rank: %v", l)
	}
	if l := loads(Spec{Kind: OneExpert, Target: 7}); l[0] != tokens || l[1] != 0 {
		t.Errorf("one expert: %v", l)
	}
	if l := loads(Spec{Kind: Nothing}); sum(l) != 0 {
		t.Errorf("nothing: %v", l)
	}
	if l := loads(Spec{Holes: 0.25}); sum(l) < 11400 || sum(l) > 12600 {
		t.Errorf("holes: %d choices", sum(l))
	}
	if l := loads(Spec{Blank: 0.5}); sum(l)%4 != 0 || sum(l) < 7000 || sum(l) > 9000 {
		t.Errorf("blank: %d choices", sum(l))
	}
}

// A rank that owns fewer experts than a token wants gives what it has.
func TestOneRankWithFewExperts(t *testing.T) {
	s := Spec{Kind: OneRank, Experts: 5, TopK: 4, Ranks: 3, Target: 2}
	b, err := s.Batch(0, 10)
	if err != nil {
		t.Fatal(err)
	}
	for tok := range 10 {
		if !slices.Equal(b.Idx[4*tok:4*tok+4], []int32{4, -1, -1, -1}) {
			t.Fatalf("token %d: %v", tok, b.Idx[4*tok:4*tok+4])
		}
	}
}

func TestSpecRefuses(t *testing.T) {
	good := Spec{Experts: 8, TopK: 2}
	nan := math.NaN()
	for name, change := range map[string]func(*Spec){
		"no experts":      func(s *Spec) { s.Experts = 0 },
		"too many":        func(s *Spec) { s.Experts = math.MaxInt },
		"no choices":      func(s *Spec) { s.TopK = 0 },
		"k over experts":  func(s *Spec) { s.TopK = 9 },
		"holes":           func(s *Spec) { s.Holes = 1.5 },
		"blank":           func(s *Spec) { s.Blank = nan },
		"kind":            func(s *Spec) { s.Kind = 99 },
		"exponent":        func(s *Spec) { s.Kind, s.Exponent = Zipf, -1 },
		"exponent NaN":    func(s *Spec) { s.Kind, s.Exponent = Zipf, nan },
		"hot":             func(s *Spec) { s.Kind, s.Hot = Hot, 0 },
		"hot share":       func(s *Spec) { s.Kind, s.Hot, s.HotShare = Hot, 1, -0.1 },
		"no ranks":        func(s *Spec) { s.Kind = OneRank },
		"target rank":     func(s *Spec) { s.Kind, s.Ranks, s.Target = OneRank, 2, 2 },
		"target expert":   func(s *Spec) { s.Kind, s.Target = OneExpert, 8 },
		"negative target": func(s *Spec) { s.Kind, s.Target = OneExpert, -1 },
	} {
		s := good
		change(&s)
		if _, err := s.Batch(0, 1); !errors.Is(err, errs.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range [][2]int{{-1, 0}, {0, -1}, {0, math.MaxInt}} {
		if _, err := good.Batch(c[0], c[1]); !errors.Is(err, errs.ErrConfig) {
			t.Errorf("rank %d, %d tokens: %v", c[0], c[1], err)
		}
	}
	if s := Kind(99).String(); s != "kind(99)" {
		t.Error(s)
	}
}

func TestRagged(t *testing.T) {
	counts, err := Ragged(5, 200, 10, 0.3)
	if err != nil {
		t.Fatal(err)
	}
	zeros := 0
	for _, n := range counts {
		if n < 0 || n > 10 {
			t.Fatalf("%d tokens", n)
		}
		if n == 0 {
			zeros++
		}
	}
	if zeros < 40 || zeros > 110 {
		t.Errorf("%d ranks of 200 have none", zeros)
	}
	again, _ := Ragged(5, 200, 10, 0.3)
	if !slices.Equal(counts, again) {
		t.Error("another draw for the same seed")
	}
	for _, err := range []error{
		second(Ragged(0, -1, 1, 0)), second(Ragged(0, 1, -1, 0)), second(Ragged(0, 1, 1, 2)), second(Ragged(0, 1, math.MaxInt, 0)),
	} {
		if !errors.Is(err, errs.ErrConfig) {
			t.Error(err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
