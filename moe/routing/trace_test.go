package routing

import (
	"errors"
	"math"
	"slices"
	"testing"

	"goshmem/internal/errs"
)

func encode[T Element](t testing.TB, shape []int, data ...T) []byte {
	t.Helper()
	b, err := EncodeNPY(Array[T]{Shape: shape, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTraceBatch(t *testing.T) {
	shape := []int{2, 3, 2}
	tr, err := LoadTrace(
		encode[int16](t, shape, 0, 1, 2, 3, 3, -1, 1, 0, 3, 2, 0, 2),
		encode[float32](t, shape, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1, 1.1, 1.2), 4)
	if err != nil {
		t.Fatal(err)
	}
	b, err := tr.Batch(0, 2, 1)
	if err != nil || !slices.Equal(b.Idx, []int32{3, -1}) || !slices.Equal(b.Weights, []float32{.5, 0}) || b.TopK != 2 {
		t.Errorf("layer 0, token 2: %+v, %v", b, err)
	}
	b, err = tr.Batch(1, 0, 3)
	if err != nil || !slices.Equal(b.Idx, []int32{1, 0, 3, 2, 0, 2}) || b.Tokens() != 3 {
		t.Errorf("layer 1: %+v, %v", b, err)
	}
	if b, err = tr.Batch(1, 7, 0); err != nil || b.Tokens() != 0 {
		t.Errorf("no tokens: %+v, %v", b, err)
	}
	for _, c := range [][3]int{{-1, 0, 1}, {2, 0, 1}, {0, -1, 1}, {0, 0, -1}, {0, 3, 1}, {0, 1, 2}, {0, 0, 4}, {0, math.MaxInt, 2}, {0, 1, math.MaxInt}} {
		if _, err := tr.Batch(c[0], c[1], c[2]); !errors.Is(err, errs.ErrRange) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestTraceOfNothing(t *testing.T) {
	for _, shape := range [][]int{{0, 3, 2}, {1, 0, 2}, {1, 1 << 40, 0}} {
		tr, err := LoadTrace(encode[int16](t, shape), encode[float32](t, shape), 4)
		if err != nil {
			t.Fatal(err)
		}
		if tr.Layers > 0 {
			if _, err := tr.Batch(0, 0, 0); err != nil {
				t.Errorf("%v: %v", shape, err)
			}
		}
	}
}

func TestLoadTraceRefuses(t *testing.T) {
	ids := encode[int16](t, []int{1, 2, 1}, 0, 4)
	weights := encode[float32](t, []int{1, 2, 1}, 1, 1)
	if _, err := LoadTrace(ids, weights, 4); !errors.Is(err, errs.ErrRange) ||
		err.Error() != "routing: layer 0, token 1, k 0: expert 4 of 4: out of range" {
		t.Errorf("expert 4 of 4: %v", err)
	}
	if _, err := LoadTrace(ids, weights, 0); !errors.Is(err, errs.ErrConfig) {
		t.Errorf("no experts: %v", err)
	}
	if _, err := LoadTrace(weights, ids, 5); !errors.Is(err, ErrFormat) {
		t.Errorf("files swapped: %v", err)
	}
	if _, err := LoadTrace(ids, ids, 5); !errors.Is(err, ErrFormat) {
		t.Errorf("ids twice: %v", err)
	}
	if _, err := LoadTrace(ids, encode[float32](t, []int{2, 1, 1}, 1, 1), 5); !errors.Is(err, ErrFormat) {
		t.Errorf("shapes differ: %v", err)
	}
	if _, err := LoadTrace(encode[int16](t, []int{2}, 0, 1), weights, 5); !errors.Is(err, ErrFormat) {
		t.Errorf("one dimension: %v", err)
	}
}
