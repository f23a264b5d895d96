package plan

// Run is a stretch of rows to copy: N rows, from token Token on, to row Row on
// at rank To.
type Run struct {
	To    int32
	Token int32
	N     int64
	Row   int64
}

// Runs appends the stretches that s sends to a rank to runs. Neighbouring tokens
// that land in neighbouring rows make one stretch.
func Runs(p *Params, o *Owners, s *Sent, pl *Placement, rank int, runs []Run) []Run {
	if p.ExpertMajor {
		return expertRuns(p, o, s, pl, rank, runs)
	}
	row := pl.RecordBase[rank]
	from := len(runs)
	for _, t := range s.To(rank) {
		if last := len(runs) - 1; last >= from && int64(runs[last].Token)+runs[last].N == int64(t) {
			runs[last].N++
		} else {
			runs = append(runs, Run{To: int32(rank), Token: t, N: 1, Row: row})
		}
		row++
	}
	return runs
}

// expertRuns goes through the tokens once; at[e] counts the rows of expert e so
// far and open[e] is the stretch that its last row is in.
func expertRuns(p *Params, o *Owners, s *Sent, pl *Placement, rank int, runs []Run) []Run {
	first, end := o.Block(rank)
	at := make([]int64, end-first)
	open := make([]int, end-first)
	copy(at, pl.ExpertBase[first:end])
	for l := range open {
		open[l] = -1
	}
	for _, t := range s.To(rank) {
		for _, e := range s.Idx[int(t)*p.TopK : (int(t)+1)*p.TopK] {
			if e < 0 || int(o.rank[e]) != rank {
				continue
			}
			l := o.local[e]
			if i := open[l]; i >= 0 && int64(runs[i].Token)+runs[i].N == int64(t) {
				runs[i].N++
			} else {
				open[l] = len(runs)
				runs = append(runs, Run{To: int32(rank), Token: t, N: 1, Row: at[l]})
			}
			at[l]++
		}
	}
	return runs
}
