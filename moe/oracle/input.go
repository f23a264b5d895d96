package oracle

// Input is what all ranks together pass to a dispatch.
type Input struct {
	Ranks, Experts, TopK int
	RowBytes, ScaleBytes int

	X       [][]byte    // [rank], T*RowBytes bytes
	Scales  [][]byte    // [rank], T*ScaleBytes bytes
	Idx     [][]int32   // [rank][t*TopK+k]: an expert, or -1
	Weights [][]float32 // [rank][t*TopK+k]
}

// Tokens is the number of tokens of a rank.
func (in Input) Tokens(s int) int { return len(in.Idx[s]) / in.TopK }

func (in Input) expert(s, t, k int) int { return int(in.Idx[s][t*in.TopK+k]) }

func (in Input) weight(s, t, k int) float32 { return in.Weights[s][t*in.TopK+k] }

func (in Input) row(s, t int) []byte {
	return in.X[s][t*in.RowBytes : (t+1)*in.RowBytes]
}

func (in Input) scales(s, t int) []byte {
	if in.ScaleBytes == 0 {
		return nil
	}
	return in.Scales[s][t*in.ScaleBytes : (t+1)*in.ScaleBytes]
}

// Experts lists the experts of rank d: they are dealt in one ascending block per
// rank, the blocks of the first Experts%Ranks ranks longer by one.
func Experts(ranks, experts, d int) []int {
	next := 0
	for r := 0; ; r++ {
		n := experts / ranks
		if r < experts%ranks {
			n++
		}
		var block []int
		for range n {
			block = append(block, next)
			next++
		}
		if r == d {
			return block
		}
	}
}
