package plan

// Nodes says which ranks share a node.
type Nodes struct {
	of    []int // by rank
	local []int // by rank: how many of its node come before it
	most  int   // ranks of the largest node
	count int
}

// NewNodes takes the node of each rank, any numbers.
func NewNodes(of []int) *Nodes {
	n := &Nodes{of: of, local: make([]int, len(of))}
	seen := map[int]int{}
	for r, node := range of {
		n.local[r] = seen[node]
		seen[node]++
		n.most = max(n.most, seen[node])
	}
	n.count = len(seen)
	return n
}

// Several reports whether there is more than one node.
func (n *Nodes) Several() bool { return n.count > 1 }

// Same reports whether two ranks share a node.
func (n *Nodes) Same(a, b int) bool { return n.of[a] == n.of[b] }

// Fan is at how many more places than one a token's row can lie on one node other than
// its source's.
func (n *Nodes) Fan(p *Params, o *Owners) int64 {
	if n.count < 2 {
		return 0
	}
	places := n.most
	if p.ExpertMajor {
		experts := map[int]int{}
		for r, node := range n.of {
			first, end := o.Block(r)
			experts[node] += end - first
			places = max(places, experts[node])
		}
	}
	return int64(min(p.TopK, places) - 1)
}

// FanMost is the most that Fan can be, however ranks lie.
func FanMost(p *Params) int64 {
	if p.Ranks < 2 {
		return 0
	}
	places := p.Ranks - 1
	if p.ExpertMajor {
		places = p.Experts
	}
	return int64(min(p.TopK, places) - 1)
}
