package routing

import (
	"errors"
	"testing"

	"goshmem/internal/errs"
)

func TestParse(t *testing.T) {
	for word, want := range map[string]Spec{
		"uniform":                      {},
		"zipf":                         {Kind: Zipf, Exponent: 1},
		"zipf:1.25":                    {Kind: Zipf, Exponent: 1.25},
		"hot":                          {Kind: Hot, Hot: 1, HotShare: 0.5},
		"hot:4":                        {Kind: Hot, Hot: 4, HotShare: 0.5},
		"hot:4:0.75":                   {Kind: Hot, Hot: 4, HotShare: 0.75},
		"one-rank:2":                   {Kind: OneRank, Target: 2},
		"one-expert:9":                 {Kind: OneExpert, Target: 9},
		"nothing":                      {Kind: Nothing},
		"uniform,holes=0.1,blank=0.05": {Holes: 0.1, Blank: 0.05},
		"zipf:2,blank=1":               {Kind: Zipf, Exponent: 2, Blank: 1},
	} {
		if have, err := Parse(word); err != nil || have != want {
			t.Errorf("%s: %+v, %v", word, have, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, word := range []string{
		"", "normal", "uniform:1", "zipf:x", "zipf:1:2", "hot:1.5", "hot:1:0.5:3", "one-rank:", "one-rank:a",
		"uniform,", "uniform,holes", "uniform,holes=2", "uniform,holes=NaN", "uniform,gaps=0.1", "uniform,holes=0.1,",
	} {
		switch s, err := Parse(word); {
		case word == "one-rank:" || word == "uniform,": // an empty list is a list
			if err != nil {
				t.Errorf("%q: %v", word, err)
			}
		case !errors.Is(err, errs.ErrConfig):
			t.Errorf("%q: %+v, %v", word, s, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("hot:4:0.5,holes=0.1")
	f.Add("zipf:1e300,blank=0")
	f.Fuzz(func(t *testing.T, word string) {
		s, err := Parse(word)
		if err != nil {
			if !errors.Is(err, errs.ErrConfig) {
				t.Fatal(err)
			}
			return
		}
		s.Experts, s.TopK, s.Ranks = 4, 2, 2
		if s.Validate() == nil {
			if _, err := s.Batch(1, 3); err != nil {
				t.Fatal(err)
			}
		}
	})
}
