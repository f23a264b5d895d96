package plan

// Staging is where a slot's input lies in host memory if a device hands it over:
// offsets from the start of the slot's part, and what that takes.
type Staging struct {
	X, Scales, Idx, Weights int64
	Back                    int64 // what is sent in a combine
	Moves, Passes           int64 // lists of rows to be moved: to this node, from others
	List, ListW, ListN      int64 // what to add up: for each token its rows, weights, and how many
	Slot, Total             int64 // bytes, rounded to whole pages
}

// page is what memory that a device reaches is rounded to.
const page = 4096

// MoveBytes is the length of an entry of a list of moves.
const MoveBytes = 24

// Stage computes it. ok is false where a number exceeds 2^63-1.
func Stage(p *Params, sz *Sizes) (s Staging, ok bool) {
	c := calc{}
	choices := c.mul(p.MaxTokens, int64(p.TopK))
	back, row := sz.RecordCap, p.PartialBytes
	switch {
	case p.AtExpert:
	case p.ExpertMajor:
		back, row = sz.RowCap, p.YBytes
	default:
		perRank := min(int64(p.TopK), ceilDiv(int64(p.Experts), int64(p.Ranks)))
		back, row = c.mul(sz.RecordCap, perRank), p.YBytes
	}
	end := int64(0)
	area := func(n, size int64) int64 {
		at := end
		end = c.round(c.add(at, c.mul(n, size)), line)
		return at
	}
	s.X = area(p.MaxTokens, p.RowBytes)
	s.Scales = area(p.MaxTokens, p.ScaleBytes)
	s.Idx = area(choices, 4)
	s.Weights = area(choices, 4)
	s.Back = area(back, c.mul(p.Hidden, row))
	s.Moves = area(choices, MoveBytes)
	s.Passes = area(c.add(c.mul(c.mul(int64(p.Ranks), p.MaxTokens), p.Fan), ceilDiv(int64(p.Experts), int64(p.Ranks))), MoveBytes)
	s.List = area(choices, 8)
	s.ListW = area(choices, 4)
	s.ListN = area(p.MaxTokens, 4)
	s.Slot = c.round(end, page)
	s.Total = c.mul(s.Slot, int64(p.Slots))
	return s, !c.over
}

// Pages rounds a number of bytes up to whole pages.
func Pages(n int64) (int64, bool) {
	c := calc{}
	n = c.round(n, page)
	return n, !c.over
}
