package plan

// Topology tells which ranks are on which node. Nodes are numbered from 0 in the
// order in which ranks name them; the ranks of a node have local indices in rank
// order.
type Topology struct {
	node    []int   // by rank
	local   []int   // by rank: its index on its node
	ranks   [][]int // by node, ascending
	most    int     // ranks of the largest node
	streams int
}

// NewTopology makes the tables from the node of each rank; any numbers name
// nodes.
func NewTopology(nodes []int) *Topology {
	t := &Topology{node: make([]int, len(nodes)), local: make([]int, len(nodes))}
	index := map[int]int{}
	for r, name := range nodes {
		m, seen := index[name]
		if !seen {
			m = len(t.ranks)
			index[name] = m
			t.ranks = append(t.ranks, nil)
		}
		t.node[r], t.local[r] = m, len(t.ranks[m])
		t.ranks[m] = append(t.ranks[m], r)
		t.most = max(t.most, len(t.ranks[m]))
	}
	least := t.most
	for _, on := range t.ranks {
		least = min(least, len(on))
	}
	switch {
	case len(t.ranks) < 2:
	case least == t.most:
		t.streams = 1
	default:
		// The most of ceil(L_m / L_q) over ordered pairs of nodes is that of the
		// largest and the smallest node.
		t.streams = (t.most + least - 1) / least
	}
	return t
}

// Size is the number of ranks.
func (t *Topology) Size() int { return len(t.node) }

// Nodes is the number of nodes.
func (t *Topology) Nodes() int { return len(t.ranks) }

// Node is the node of a rank.
func (t *Topology) Node(r int) int { return t.node[r] }

// Local is the index of a rank among those of its node.
func (t *Topology) Local(r int) int { return t.local[r] }

// On lists the ranks of a node by local index; not to be changed.
func (t *Topology) On(node int) []int { return t.ranks[node] }

// Most is the number of ranks of the largest node.
func (t *Topology) Most() int { return t.most }

// Streams is A, the most sources that a relay serves in one round.
func (t *Topology) Streams() int { return t.streams }

// Rounds is the number of rounds.
func (t *Topology) Rounds() int { return max(len(t.ranks)-1, 0) }

// Rail is the rank on node m to which p sends what is meant for the node.
func (t *Topology) Rail(p, m int) int {
	on := t.ranks[m]
	return on[t.local[p]%len(on)]
}

// Round is the round in which p sends to the node of j; 0 if that is its own.
func (t *Topology) Round(p, j int) int {
	k := t.node[j] - t.node[p]
	if k < 0 {
		k += len(t.ranks)
	}
	return k
}

// Target is the rail peer of p in round k.
func (t *Topology) Target(p, k int) int { return t.Rail(p, (t.node[p]+k)%len(t.ranks)) }

// Relay is the rank through which bytes from p to j of another node go; it is j
// itself if that is the rail peer of p.
func (t *Topology) Relay(p, j int) int { return t.Rail(p, t.node[j]) }

// Sources appends the ranks that send to q in round k, by stream.
func (t *Topology) Sources(dst []int, q, k int) []int {
	n := len(t.ranks)
	from := t.ranks[((t.node[q]-k)%n+n)%n]
	for i := t.local[q]; i < len(from); i += len(t.ranks[t.node[q]]) {
		dst = append(dst, from[i])
	}
	return dst
}

// Stream is which of the sources of a round p is at its rail peer q.
func (t *Topology) Stream(p, q int) int { return t.local[p] / len(t.ranks[t.node[q]]) }
