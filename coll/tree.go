package coll

// tree is the way of a broadcast: who sends to whom. It spans the nodes first: on
// each node one member gets the data from elsewhere.
type tree struct {
	parent   []int // of each member; -1: the root
	children []int // of this PE, in the order in which they are served
}

// shape is how a tree spreads inside a node.
type shape uint8

const (
	flat     shape = iota // from one to all others
	binomial              // doubling those who have it
	linear                // from one to the next: everybody sends once
	numShapes
)

// shapeFor chooses by how much is sent. Where PEs share cores each hop costs a
// turn of the scheduler and copies take turns anyway: flat. With few members too.
// Long transfers between PEs that have a core each go from one to the next, in
// pieces, so that no core copies them more than once.
func shapeFor(g geometry, bytes int) shape {
	switch {
	case g.crowded || g.n <= 3:
		return flat
	case bytes >= 256*kib:
		return linear
	default:
		return binomial
	}
}

// parents is a tree over all members.
func parents(g geometry, root int, s shape) []int {
	up := make([]int, g.n)
	var leaders []int // of each node, the root's first
	of := map[int][]int{}
	add := func(m int) {
		if of[g.nodes[m]] == nil {
			leaders = append(leaders, m)
		}
		of[g.nodes[m]] = append(of[g.nodes[m]], m)
	}
	add(root)
	for i := 1; i < g.n; i++ {
		add((root + i) % g.n)
	}
	spread(up, leaders, binomial)
	for _, l := range leaders {
		spread(up, of[g.nodes[l]], s)
	}
	up[root] = -1
	return up
}

// spread makes a tree of members, rooted at the first, whose parent it leaves.
func spread(up, members []int, s shape) {
	for i, m := range members {
		if i == 0 {
			continue
		}
		switch s {
		case flat:
			up[m] = members[0]
		case linear:
			up[m] = members[i-1]
		default:
			up[m] = members[i&(i-1)] // without the lowest bit
		}
	}
}

// childrenOf lists whom a member serves. The latest in order has the largest
// subtree of a binomial tree, so it comes first.
func childrenOf(up []int, root, member int) []int {
	var out []int
	n := len(up)
	for i := n - 1; i >= 1; i-- {
		if m := (root + i) % n; up[m] == member {
			out = append(out, m)
		}
	}
	return out
}

// tree is the broadcast tree for a root, made when it is first used.
func (c *Comm) tree(root, bytes int) *tree {
	c.mu.Lock() // calls are started by any goroutine
	defer c.mu.Unlock()
	k := &c.core
	s := shapeFor(c.geo, bytes)
	if k.trees == nil {
		k.trees = make([]*tree, c.n*int(numShapes))
	}
	t := &k.trees[root*int(numShapes)+int(s)]
	if *t == nil {
		up := parents(c.geo, root, s)
		*t = &tree{parent: up, children: childrenOf(up, root, c.rank)}
	}
	return *t
}
