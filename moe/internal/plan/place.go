package plan

// Placement says where things land, from the point of view of one rank. Row
// numbers are rows of the buffer they land in.
type Placement struct {
	// As a sender.
	RecordBase []int64 // by rank: my first record there; rank-major also my first row
	ExpertBase []int64 // by expert, expert-major: my first row at its owner
	PairBase   []int64 // by rank: my first choice among those it receives

	// As a receiver.
	Records int64   // in all
	Rows    int64   // in all, padding included
	Pairs   int64   // choices in all
	From    []int64 // by rank, and the end: where its records begin here
	PairsBy []int64 // by rank: its choices of my experts
	PairsOf []int64 // [source*local experts+expert]: likewise by expert
	Counts  []int64 // by local expert: true counts
	Offsets []int64 // by local expert, and the end: where its rows begin; zero in rank-major

	// Combine: rows of the results' buffer at the source. Weights at the source:
	// one row a choice, ordered by expert and token (expert-major) or by rank,
	// token and choice (rank-major). Weights at the expert: one row for each
	// (rank, token), ordered so.
	ReturnBase []int64 // by source: first row there that I fill
	ReturnPair []int64 // [source*local experts+expert]: likewise for each expert (expert-major, weights at the source)
	HomeRank   []int64 // by rank, and the end: first row here that it fills
	HomeExpert []int64 // by expert: likewise (expert-major, weights at the source)
}

// Place computes the placement of one rank from everybody's counts. The Fault,
// TooManyRows, is the same on every rank.
func Place(p *Params, o *Owners, sz *Sizes, m *Matrix, self int, pl *Placement) Fault {
	pl.RecordBase = zeroed(pl.RecordBase, p.Ranks)
	pl.ExpertBase = zeroed(pl.ExpertBase, p.Experts)
	pl.PairBase = zeroed(pl.PairBase, p.Ranks)
	for r := range p.Ranks {
		records, rows := int64(0), int64(0)
		for s := range p.Ranks {
			if s == self {
				pl.RecordBase[r] = records
			}
			records += int64(m.Rows[s*p.Ranks+r])
		}
		if p.ExpertMajor {
			first, end := o.Block(r)
			for e := first; e < end; e++ {
				n := rows
				for s := range p.Ranks {
					if s == self {
						pl.ExpertBase[e] = n
					}
					n += int64(m.Pairs[s*p.Experts+e])
				}
				rows += roundUp(n-rows, p.Alignment)
			}
		} else {
			rows = records
		}
		if rows > sz.RowCap {
			return Fault{TooManyRows, int64(r), rows, sz.RowCap}
		}
		if records > sz.RecordCap {
			return Fault{TooManyRows, int64(r), records, sz.RecordCap}
		}
	}
	for s := range self {
		for e, n := range m.PairsOf(p, s) {
			pl.PairBase[o.rank[e]] += int64(n)
		}
	}
	pl.receive(p, o, m, self)
	pl.returns(p, o, m, self)
	pl.home(p, o, m, self)
	return Fault{}
}

func (pl *Placement) receive(p *Params, o *Owners, m *Matrix, self int) {
	first, end := o.Block(self)
	pl.From = zeroed(pl.From, p.Ranks+1)
	pl.PairsBy = zeroed(pl.PairsBy, p.Ranks)
	pl.PairsOf = zeroed(pl.PairsOf, p.Ranks*(end-first))
	pl.Counts = zeroed(pl.Counts, end-first)
	pl.Offsets = zeroed(pl.Offsets, end-first+1)
	pl.Pairs = 0
	for s := range p.Ranks {
		pl.From[s+1] = pl.From[s] + int64(m.Rows[s*p.Ranks+self])
		for l, n := range m.PairsOf(p, s)[first:end] {
			pl.PairsOf[s*(end-first)+l] = int64(n)
			pl.PairsBy[s] += int64(n)
			pl.Counts[l] += int64(n)
		}
		pl.Pairs += pl.PairsBy[s]
	}
	pl.Records = pl.From[p.Ranks]
	pl.Rows = pl.Records
	if p.ExpertMajor {
		for l, n := range pl.Counts {
			pl.Offsets[l+1] = pl.Offsets[l] + roundUp(n, p.Alignment)
		}
		pl.Rows = pl.Offsets[end-first]
	}
}

// returns computes where my results begin at each source.
func (pl *Placement) returns(p *Params, o *Owners, m *Matrix, self int) {
	first, end := o.Block(self)
	pl.ReturnBase = zeroed(pl.ReturnBase, p.Ranks)
	pl.ReturnPair = zeroed(pl.ReturnPair, p.Ranks*(end-first))
	for s := range p.Ranks {
		if p.AtExpert {
			for _, n := range m.RowsOf(p, s)[:self] {
				pl.ReturnBase[s] += int64(n)
			}
			continue
		}
		pairs := m.PairsOf(p, s)
		for _, n := range pairs[:first] {
			pl.ReturnBase[s] += int64(n)
		}
		at := pl.ReturnBase[s]
		for l, n := range pairs[first:end] {
			pl.ReturnPair[s*(end-first)+l] = at
			at += int64(n)
		}
	}
}

// home computes where the results of each rank and expert begin here.
func (pl *Placement) home(p *Params, o *Owners, m *Matrix, self int) {
	pl.HomeRank = zeroed(pl.HomeRank, p.Ranks+1)
	pl.HomeExpert = zeroed(pl.HomeExpert, p.Experts)
	if p.AtExpert {
		for r, n := range m.RowsOf(p, self) {
			pl.HomeRank[r+1] = pl.HomeRank[r] + int64(n)
		}
		return
	}
	at, pairs := int64(0), m.PairsOf(p, self)
	for r := range p.Ranks {
		for e, end := o.Block(r); e < end; e++ {
			pl.HomeExpert[e] = at
			at += int64(pairs[e])
		}
		pl.HomeRank[r+1] = at
	}
}
