package plan

import (
	"math"
	"slices"
	"testing"
)

func TestRouteFaults(t *testing.T) {
	p := small()
	o := NewOwners(p.Ranks, p.Experts)
	w := func(n int) []float32 { return make([]float32, n) }
	for _, c := range []struct {
		name    string
		idx     []int32
		weights []float32
		want    Fault
	}{
		{"expert 4 of 4", []int32{0, 1, 2, 4}, w(4), Fault{BadExpert, 1, 1, 4}},
		{"below -1", []int32{-2, 1}, w(2), Fault{BadExpert, 0, 0, -2}},
		{"smallest", []int32{0, math.MinInt32}, w(2), Fault{BadExpert, 0, 1, math.MinInt32}},
		{"duplicate", []int32{0, 1, 3, 3}, w(4), Fault{Duplicate, 1, 1, 3}},
		{"half a token", []int32{0, 1, 2}, w(3), Fault{BadArgument, ArgIdx, 3, 4}},
		{"weights short", []int32{0, 1}, w(1), Fault{BadArgument, ArgWeights, 1, 2}},
		{"too many", make([]int32, 8), w(8), Fault{TooMany, 4, 3, 0}},
		{"-1 twice is fine", []int32{-1, -1}, w(2), Fault{}},
		{"the same expert in two tokens is fine", []int32{3, 1, 3, 1}, w(4), Fault{}},
		{"nothing is fine", nil, nil, Fault{}},
	} {
		var s Sent
		if f := Route(&p, o, c.idx, c.weights, &s); f != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, f, c.want)
		}
	}
}

func TestRouteCopies(t *testing.T) {
	p := small()
	idx, weights := []int32{0, 1}, []float32{1, 2}
	var s Sent
	if f := Route(&p, NewOwners(2, 4), idx, weights, &s); f.Code != None {
		t.Fatal(f)
	}
	idx[0], weights[0] = 3, 9
	if s.Idx[0] != 0 || s.Weights[0] != 1 {
		t.Fatal("routing aliases the caller's slices")
	}
}

func TestReuse(t *testing.T) {
	p := small()
	o := NewOwners(p.Ranks, p.Experts)
	var used Sent
	for i, idx := range [][]int32{{0, 1, 2, 3, 3, 0}, {}, {-1, -1}, {3, 2, 1, 0}} {
		var fresh Sent
		Route(&p, o, idx, make([]float32, len(idx)), &used)
		Route(&p, o, idx, make([]float32, len(idx)), &fresh)
		for r := range p.Ranks {
			if !slices.Equal(used.To(r), fresh.To(r)) || used.Rows[r] != fresh.Rows[r] {
				t.Errorf("input %d: rank %d gets %v, want %v", i, r, used.To(r), fresh.To(r))
			}
		}
		if !slices.Equal(used.Pairs, fresh.Pairs) {
			t.Errorf("input %d: %v, want %v", i, used.Pairs, fresh.Pairs)
		}
	}
}
