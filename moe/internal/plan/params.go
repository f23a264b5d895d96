package plan

// Params are the numbers that a plan depends on, the same on all ranks. The
// caller has checked them: counts and sizes are positive (ScaleBytes, MaxTokens
// and MaxRows may be 0), TopK <= Experts, MaxTokens <= [MaxTokens].
type Params struct {
	Ranks, Experts, TopK int
	MaxTokens            int64 // tokens of one rank
	RowBytes, ScaleBytes int64 // of one dispatched row
	Hidden               int64
	YBytes               int64 // of one element of an expert's output
	PartialBytes         int64 // of one element of a rank's share
	ExpertMajor          bool
	Alignment            int64 // of an expert's rows, expert-major
	AtExpert             bool  // combine with weights at the expert
	MaxRows              int64 // rows of a receive buffer; 0: the most that can come
	Slots                int
	Fan                  int64 // see Nodes.Fan
}

// BackBytes is the size of one row of a combine.
func (p *Params) BackBytes() int64 {
	if p.AtExpert {
		return p.Hidden * p.PartialBytes
	}
	return p.Hidden * p.YBytes
}
