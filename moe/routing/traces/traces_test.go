package traces

import (
	"errors"
	"testing"

	"goshmem/internal/errs"
)

// The skew is what the README says and what makes the traces worth having.
func TestTraces(t *testing.T) {
	want := map[string]struct {
		layers, topK int
		skew         []float64
	}{
		"e256k8": {2, 8, []float64{2.35, 2.76}},
		"e32k4":  {3, 4, []float64{5.05, 5.06, 2.86}},
	}
	for _, name := range Names() {
		tr, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		w := want[name]
		if tr.Layers != w.layers || tr.Tokens != 16384 || tr.TopK != w.topK {
			t.Fatalf("%s: [%d][%d][%d]", name, tr.Layers, tr.Tokens, tr.TopK)
		}
		for layer, skew := range w.skew {
			b, err := tr.Batch(layer, 0, tr.Tokens)
			if err != nil {
				t.Fatal(err)
			}
			most, sum := 0, 0
			for _, n := range b.Loads(tr.Experts) {
				most, sum = max(most, n), sum+n
			}
			if sum != tr.Tokens*tr.TopK {
				t.Errorf("%s layer %d: %d valid choices of %d", name, layer, sum, tr.Tokens*tr.TopK)
			}
			have := float64(most) * float64(tr.Experts) / float64(sum)
			if have < skew-0.01 || have > skew+0.01 {
				t.Errorf("%s layer %d: max/mean load %.2f, want %.2f", name, layer, have, skew)
			}
			for tok := range tr.Tokens {
				row := b.Idx[tok*tr.TopK : (tok+1)*tr.TopK]
				for k := range row {
					for j := range k {
						if row[j] == row[k] {
							t.Fatalf("%s layer %d token %d: expert %d twice", name, layer, tok, row[k])
						}
					}
				}
			}
		}
	}
}

func TestUnknownTrace(t *testing.T) {
	if _, err := Open("e8k2"); !errors.Is(err, errs.ErrConfig) {
		t.Fatalf("err = %v", err)
	}
}
