package oracle

import "slices"

// Row is one row that a dispatch delivers.
type Row struct {
	X, Scales     []byte
	Source, Token int // -1, -1: padding

	// K is the choice that sent the row (expert-major only).
	K int
	// Local has, for each choice of the token, the expert's number within the
	// receiving rank, or -1 (rank-major); or the one expert (expert-major).
	Local []int
	// Weights are the weights that go with Local, 0 beside a -1.
	Weights []float32
}

// Received is what one rank has after a dispatch.
type Received struct {
	Rows      []Row
	PerExpert []int // rows of choices of each local expert, without padding
	PerSource []int // rows from each rank, without padding
	Offsets   []int // expert-major: where each expert's rows begin, and the end
}

// RankMajor is what rank d receives in the rank-major layout: a row for each
// token that chose some expert of d, by source, then token.
func RankMajor(in Input, d int) Received {
	block := Experts(in.Ranks, in.Experts, d)
	out := Received{PerExpert: make([]int, len(block)), PerSource: make([]int, in.Ranks)}
	for s := range in.Ranks {
		for t := range in.Tokens(s) {
			row := Row{X: in.row(s, t), Scales: in.scales(s, t), Source: s, Token: t}
			any := false
			for k := range in.TopK {
				l := slices.Index(block, in.expert(s, t, k)) // -1: not one of d's
				w := float32(0)
				if l >= 0 {
					any = true
					w = in.weight(s, t, k)
					out.PerExpert[l]++
				}
				row.Local = append(row.Local, l)
				row.Weights = append(row.Weights, w)
			}
			if any {
				out.Rows = append(out.Rows, row)
				out.PerSource[s]++
			}
		}
	}
	return out
}

// ExpertMajor is what rank d receives in the expert-major layout: for each of
// its experts a row for each choice of it, by source, token and k, then zero
// rows up to a multiple of alignment.
func ExpertMajor(in Input, d, alignment int) Received {
	block := Experts(in.Ranks, in.Experts, d)
	out := Received{PerExpert: make([]int, len(block)), PerSource: make([]int, in.Ranks), Offsets: []int{0}}
	for l, e := range block {
		for s := range in.Ranks {
			for t := range in.Tokens(s) {
				for k := range in.TopK {
					if in.expert(s, t, k) != e {
						continue
					}
					out.Rows = append(out.Rows, Row{
						X: in.row(s, t), Scales: in.scales(s, t), Source: s, Token: t, K: k,
						Local: []int{l}, Weights: []float32{in.weight(s, t, k)},
					})
					out.PerExpert[l]++
					out.PerSource[s]++
				}
			}
		}
		for len(out.Rows)%alignment != 0 {
			out.Rows = append(out.Rows, Row{
				X: make([]byte, in.RowBytes), Scales: make([]byte, in.ScaleBytes), Source: -1, Token: -1, K: -1,
				Local: []int{-1}, Weights: []float32{0},
			})
		}
		out.Offsets = append(out.Offsets, len(out.Rows))
	}
	return out
}
