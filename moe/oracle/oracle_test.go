package oracle

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Two examples worked by hand, small enough to follow on paper.

// First example: two ranks, four experts (0 and 1 on rank 0, 2 and 3 on rank 1),
// two choices. Rank 0 has two tokens, rank 1 one.
//
//	rank 0, token 0 = "a": experts 2 (w 0.5) and 0 (w 0.25)
//	rank 0, token 1 = "b": expert 3 (w 1), no second
//	rank 1, token 0 = "c": experts 2 (w 2) and 3 (w 3)
func first() Input {
	return Input{
		Ranks: 2, Experts: 4, TopK: 2, RowBytes: 1, ScaleBytes: 2,
		X:       [][]byte{[]byte("ab"), []byte("c")},
		Scales:  [][]byte{[]byte("AABB"), []byte("CC")},
		Idx:     [][]int32{{2, 0, 3, -1}, {2, 3}},
		Weights: [][]float32{{.5, .25, 1, 9}, {2, 3}},
	}
}

func row(x, sc string, s, t, k int, local []int, w ...float32) Row {
	return Row{X: []byte(x), Scales: []byte(sc), Source: s, Token: t, K: k, Local: local, Weights: w}
}

func TestFirstRankMajor(t *testing.T) {
	// Rank 0 owns 0 and 1: only token a chose one of them, with k = 1.
	want := Received{
		Rows:      []Row{row("a", "AA", 0, 0, 0, []int{-1, 0}, 0, .25)},
		PerExpert: []int{1, 0},
		PerSource: []int{1, 0},
	}
	same(t, "rank 0", want, RankMajor(first(), 0))
	// Rank 1 owns 2 (its 0) and 3 (its 1): a for 2, b for 3, c for both in one row.
	// The weight 9 beside -1 does not travel.
	want = Received{
		Rows: []Row{
			row("a", "AA", 0, 0, 0, []int{0, -1}, .5, 0),
			row("b", "BB", 0, 1, 0, []int{1, -1}, 1, 0),
			row("c", "CC", 1, 0, 0, []int{0, 1}, 2, 3),
		},
		PerExpert: []int{2, 2},
		PerSource: []int{2, 1},
	}
	same(t, "rank 1", want, RankMajor(first(), 1))
}

func TestFirstExpertMajor(t *testing.T) {
	pad := row("\x00", "\x00\x00", -1, -1, -1, []int{-1}, 0)
	// Rank 0 with alignment 4: expert 0 has a and three zero rows, expert 1 none.
	want := Received{
		Rows:      []Row{row("a", "AA", 0, 0, 1, []int{0}, .25), pad, pad, pad},
		PerExpert: []int{1, 0},
		PerSource: []int{1, 0},
		Offsets:   []int{0, 4, 4},
	}
	same(t, "rank 0", want, ExpertMajor(first(), 0, 4))
	// Rank 1 with alignment 3: expert 2 has a, c and a zero row; expert 3 has b
	// (k = 0), c (k = 1) and a zero row.
	want = Received{
		Rows: []Row{
			row("a", "AA", 0, 0, 0, []int{0}, .5), row("c", "CC", 1, 0, 0, []int{0}, 2), pad,
			row("b", "BB", 0, 1, 0, []int{1}, 1), row("c", "CC", 1, 0, 1, []int{1}, 3), pad,
		},
		PerExpert: []int{2, 2},
		PerSource: []int{2, 2},
		Offsets:   []int{0, 3, 6},
	}
	same(t, "rank 1", want, ExpertMajor(first(), 1, 3))
}

func TestFirstCombine(t *testing.T) {
	// Hidden size 1. Outputs: a by expert 2: 4, by expert 0: 8; b by 3: 1;
	// c by 2: 1.5, by 3: -1. All sums are exact, so both combines agree:
	//   a = 4*0.5 + 8*0.25 = 4; b = 1*1 = 1; c = 1.5*2 - 1*3 = 0.
	y := func(s, t, k int) []float32 {
		return []float32{map[[3]int]float32{{0, 0, 0}: 4, {0, 0, 1}: 8, {0, 1, 0}: 1, {1, 0, 0}: 1.5, {1, 0, 1}: -1}[[3]int{s, t, k}]}
	}
	// 4 = 0x4080, 1 = 0x3f80, 0 = 0; with bias 0.5: 4.5 = 0x4090, 1.5 = 0x3fc0,
	// 0.5 = 0x3f00.
	for _, c := range []struct {
		bias   []float32
		s0, s1 [][]uint16
	}{
		{nil, [][]uint16{{0x4080}, {0x3f80}}, [][]uint16{{0}}},
		{[]float32{.5}, [][]uint16{{0x4090}, {0x3fc0}}, [][]uint16{{0x3f00}}},
	} {
		same(t, "A, rank 0", c.s0, CombineAtSource(first(), 0, 1, y, c.bias))
		same(t, "A, rank 1", c.s1, CombineAtSource(first(), 1, 1, y, c.bias))
		same(t, "B, rank 0", c.s0, CombineAtExpert(first(), 0, 1, y, c.bias, true))
		same(t, "B, rank 1", c.s1, CombineAtExpert(first(), 1, 1, y, c.bias, false))
	}
}

// Second example: three ranks, five experts (0 1 | 2 3 | 4), three choices, one
// token on rank 2, none elsewhere; values chosen so that the order of the
// additions and every rounding shows.
//
//	rank 2, token 0 = "z": experts 4 (w 1), 2 (w 3), 3 (w 1)
func second() Input {
	return Input{
		Ranks: 3, Experts: 5, TopK: 3, RowBytes: 1,
		X:       [][]byte{nil, nil, []byte("z")},
		Scales:  [][]byte{nil, nil, nil},
		Idx:     [][]int32{{}, {}, {4, 2, 3}},
		Weights: [][]float32{{}, {}, {1, 3, 1}},
	}
}

func TestSecondDispatch(t *testing.T) {
	same(t, "rank 0", Received{PerExpert: []int{0, 0}, PerSource: []int{0, 0, 0}}, RankMajor(second(), 0))
	want := Received{
		Rows:      []Row{{X: []byte("z"), Source: 2, Local: []int{-1, 0, 1}, Weights: []float32{0, 3, 1}}},
		PerExpert: []int{1, 1},
		PerSource: []int{0, 0, 1},
	}
	same(t, "rank 1", want, RankMajor(second(), 1))
	want = Received{
		Rows: []Row{
			{X: []byte("z"), Source: 2, K: 1, Local: []int{0}, Weights: []float32{3}},
			{X: []byte("z"), Source: 2, K: 2, Local: []int{1}, Weights: []float32{1}},
		},
		PerExpert: []int{1, 1},
		PerSource: []int{0, 0, 2},
		Offsets:   []int{0, 1, 2},
	}
	same(t, "rank 1", want, ExpertMajor(second(), 1, 1))
	want = Received{
		Rows:      []Row{{X: []byte("z"), Source: 2, K: 0, Local: []int{0}, Weights: []float32{1}}},
		PerExpert: []int{1},
		PerSource: []int{0, 0, 1},
		Offsets:   []int{0, 1},
	}
	same(t, "rank 2", want, ExpertMajor(second(), 2, 1))
}

func TestSecondCombine(t *testing.T) {
	// Let u = 2^-24, half the distance from 1 to the next float32. Outputs by k:
	// 1, u, -1.
	//
	// Weights at the source, by ascending k: 1*1 = 1; u*3 = 3u, 1 + 3u is a tie
	// between 1+2u and 1+4u and goes to the even one, 1+4u; minus 1: 4u = 2^-22,
	// which is bfloat16 0x3480.
	const u = 1.0 / (1 << 24)
	y := func(_, _, k int) []float32 { return []float32{[]float32{1, u, -1}[k]} }
	same(t, "A", [][]uint16{{0x3480}}, CombineAtSource(second(), 2, 1, y, nil))
	// Weights at the expert: rank 1 holds k = 1 and 2: 3u - 1 = -(1-3u), exact in
	// float32 (below 1 they are u apart). Rank 2 holds k = 0: 1.
	// Shares as float32: -(1-3u) + 1 = 3u = 1.5 * 2^-23: 0x3440.
	// Shares as bfloat16: 1-3u rounds to 1: -1 + 1 = 0.
	same(t, "B, float32 shares", [][]uint16{{0x3440}}, CombineAtExpert(second(), 2, 1, y, nil, false))
	same(t, "B, bfloat16 shares", [][]uint16{{0}}, CombineAtExpert(second(), 2, 1, y, nil, true))
	// A rank with no token has no output, whatever the bias.
	same(t, "rank 0", [][]uint16{}, CombineAtSource(second(), 0, 1, y, []float32{1}))
}

// The product is rounded before the addition: with x = 1 + 2^-12, x*x is
// 1 + 2^-11 + 2^-24 and loses the last term; a fused multiply-add would keep it
// and leave 2^-24 after taking 1 + 2^-11 away.
func TestNoFusedMultiplyAdd(t *testing.T) {
	x := float32(1 + 1.0/(1<<12))
	in := Input{Ranks: 1, Experts: 1, TopK: 1, X: [][]byte{nil}, Idx: [][]int32{{0}}, Weights: [][]float32{{x}}}
	y := func(_, _, _ int) []float32 { return []float32{x} }
	same(t, "A", [][]uint16{{0}}, CombineAtSource(in, 0, 1, y, []float32{-(1 + 1.0/(1<<11))}))
	same(t, "B", [][]uint16{{0}}, CombineAtExpert(in, 0, 1, y, []float32{-(1 + 1.0/(1<<11))}, false))
}

func TestNoValidExpert(t *testing.T) {
	in := Input{Ranks: 2, Experts: 2, TopK: 1, X: [][]byte{nil, nil}, Idx: [][]int32{{-1}, {}}, Weights: [][]float32{{5}, {}}}
	y := func(_, _, _ int) []float32 { panic("no output is asked for") }
	same(t, "bias", [][]uint16{{0x3f80}}, CombineAtSource(in, 0, 1, y, []float32{1}))
	same(t, "none", [][]uint16{{0}}, CombineAtExpert(in, 0, 1, y, nil, true))
}

func TestExpertsAreAllDealt(t *testing.T) {
	for _, c := range []struct {
		ranks, experts int
		want           [][]int
	}{
		{1, 3, [][]int{{0, 1, 2}}},
		{3, 3, [][]int{{0}, {1}, {2}}},
		{3, 8, [][]int{{0, 1, 2}, {3, 4, 5}, {6, 7}}},
		{3, 2, [][]int{{0}, {1}, nil}},
	} {
		for d, want := range c.want {
			same(t, "block", want, Experts(c.ranks, c.experts, d))
		}
	}
}

func TestRound(t *testing.T) {
	for bits, want := range map[uint32]uint16{
		0x3f800000: 0x3f80, 0x3f807fff: 0x3f80, 0x3f808000: 0x3f80, 0x3f808001: 0x3f81,
		0x3f818000: 0x3f82, 0xbf818000: 0xbf82, 0x7f7fffff: 0x7f80, 0x80000000: 0x8000, 0x7f800001: 0x7fc0, 0xffc00000: 0x7fc0,
	} {
		if got := Round(math.Float32frombits(bits)); got != want {
			t.Errorf("Round(%#08x) = %#04x, want %#04x", bits, got, want)
		}
	}
	for i := range 1 << 16 {
		if b := uint16(i); b&0x7fff <= 0x7f80 && Round(Widen(b)) != b {
			t.Fatalf("%#04x does not survive", b)
		}
	}
}

func same(t *testing.T, what string, want, have any) {
	t.Helper()
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s (-want +have):\n%s", what, diff)
	}
}
