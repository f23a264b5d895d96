package plan

// Owners is the map from experts to ranks: contiguous ascending blocks, the
// first Experts%Ranks ranks own one more than the others.
type Owners struct {
	rank  []int32 // by expert
	local []int32 // by expert: its number within its rank
	first []int   // by rank, and the end
}

// NewOwners builds the map. ranks is at least 1.
func NewOwners(ranks, experts int) *Owners {
	o := &Owners{
		rank:  make([]int32, experts),
		local: make([]int32, experts),
		first: make([]int, ranks+1),
	}
	each, more := experts/ranks, experts%ranks
	e := 0
	for r := range ranks {
		o.first[r] = e
		n := each
		if r < more {
			n++
		}
		for l := range n {
			o.rank[e], o.local[e] = int32(r), int32(l)
			e++
		}
	}
	o.first[ranks] = e
	return o
}

// Rank is the owner of expert e.
func (o *Owners) Rank(e int) int { return int(o.rank[e]) }

// Block is the range [first, end) of experts that a rank owns.
func (o *Owners) Block(rank int) (first, end int) { return o.first[rank], o.first[rank+1] }
