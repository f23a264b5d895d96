package plan

import "slices"

// Homing walks through the results that come back to a source, token by token in
// ascending order, and says in which row of the combine buffer each one is.
type Homing struct {
	o        *Owners
	byExpert bool
	at       []int64 // by expert or by rank: next row
}

// Start begins the walk at token 0.
func (h *Homing) Start(p *Params, o *Owners, pl *Placement) {
	h.o = o
	h.byExpert = p.ExpertMajor && !p.AtExpert
	if h.byExpert {
		h.at = append(h.at[:0], pl.HomeExpert...)
	} else {
		h.at = append(h.at[:0], pl.HomeRank[:p.Ranks]...)
	}
}

// Choice is the row of the next choice, which is expert e (weights at the
// source). Call it for every valid choice, by token, then k.
func (h *Homing) Choice(e int32) int64 {
	i := e
	if !h.byExpert {
		i = h.o.rank[e]
	}
	row := h.at[i]
	h.at[i]++
	return row
}

// Share is the row of the next share of a rank (weights at the expert). Call it
// for every rank that has experts of the token, by token.
func (h *Homing) Share(rank int32) int64 {
	row := h.at[rank]
	h.at[rank]++
	return row
}

// RanksOf appends the ranks that own the valid choices of a token to buf, each
// once, ascending.
func (o *Owners) RanksOf(choices []int32, buf []int32) []int32 {
	from := len(buf)
	for _, e := range choices {
		if e < 0 {
			continue
		}
		r := o.rank[e]
		if i, found := slices.BinarySearch(buf[from:], r); !found {
			buf = slices.Insert(buf, from+i, r)
		}
	}
	return buf
}
