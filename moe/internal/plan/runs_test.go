package plan

import (
	"slices"
	"testing"
)

func TestRunsMerge(t *testing.T) {
	p := small()
	p.MaxTokens = 8
	o := NewOwners(p.Ranks, p.Experts)
	var s Sent
	idx := []int32{0, 1, 0, -1, 1, 2, 3, 2, 0, 2, -1, -1}
	if f := Route(&p, o, idx, make([]float32, len(idx)), &s); f.Code != None {
		t.Fatal(f)
	}
	pl := &Placement{RecordBase: []int64{10, 20}, ExpertBase: []int64{100, 200, 300, 400}}
	want := []Run{{0, 0, 3, 10}, {0, 4, 1, 13}}
	if have := Runs(&p, o, &s, pl, 0, nil); !slices.Equal(have, want) {
		t.Errorf("rank-major: %v, want %v", have, want)
	}
	p.ExpertMajor = true
	want = []Run{{0, 0, 2, 100}, {0, 0, 1, 200}, {0, 2, 1, 201}, {0, 4, 1, 102}}
	if have := Runs(&p, o, &s, pl, 0, nil); !slices.Equal(have, want) {
		t.Errorf("expert-major: %v, want %v", have, want)
	}
}
