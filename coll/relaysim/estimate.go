package relaysim

import (
	"fmt"
	"time"

	"goshmem/coll"
	"goshmem/coll/internal/plan"
	"goshmem/pe"
)

// Estimate is what one alltoallv takes by formula, for machines too large to
// simulate. Figures are of one PE.
type Estimate struct {
	Time      time.Duration
	Rounds    int           // of relays; 0: none
	Peers     int           // of other nodes that it talks to: queue pairs
	Messages  int64         // posted to other nodes: credits, grants, data
	LinkBytes int64         // sent through its port
	CPU       time.Duration // of posts and copies
}

// Predict works the formulas out that docs/planning.md explains. A call is bound by
// the processor, which posts and copies, or by the port:
//
//	direct: credits, own part and copies within the node, then max(posts, bytes / bandwidth) + latency;
//	        what is short goes with the credits: max(posts + copies, bytes / bandwidth + latency)
//	relay:  max(posts + copies, bytes / bandwidth + latency + a forward, grant, data and forward of one round)
//
// It knows no limit of size, and no waiting of one PE for another that is slower.
func Predict(c Config, algo coll.Algo, n int64) (Estimate, error) {
	switch {
	case c.Nodes < 1 || c.PerNode < 1 || int64(c.Nodes)*int64(c.PerNode) > 1<<30:
		return Estimate{}, fmt.Errorf("relaysim: %d nodes of %d PEs: %w", c.Nodes, c.PerNode, pe.ErrConfig)
	case c.Bandwidth < 1 || c.Copy < 1 || n < 0 || n > 1<<40 || algo > coll.AlgoRelay:
		return Estimate{}, fmt.Errorf("relaysim: %d B a pair, %v, %d B/s, copies %d B/s: %w", n, algo, c.Bandwidth, c.Copy, pe.ErrConfig)
	case min(c.Latency, c.Post, c.CopyPost) < 0 || max(c.Latency, c.Post, c.CopyPost) > longest:
		return Estimate{}, fmt.Errorf("relaysim: latency %v, %v a post, %v a copy: want 0 to %v: %w", c.Latency, c.Post, c.CopyPost, longest, pe.ErrConfig)
	}
	k := c.Coll.Defaults(fewNodes(c))
	m := model{Config: c, n: n, slots: k.RelaySlots, merge: k.Merge, payload: int64(k.RelayBytes) - plan.HeaderBytes(c.PerNode)}
	if m.payload < 1 {
		return Estimate{}, fmt.Errorf("relaysim: a slot of %d B has no room behind its header for %d PEs: %w", k.RelayBytes, c.PerNode, pe.ErrConfig)
	}
	m.rounds = c.Nodes > 1 && (algo == coll.AlgoRelay || algo == coll.AlgoAuto && c.PerNode > 1)
	var e Estimate
	switch {
	case m.rounds && (algo == coll.AlgoRelay || n < k.Straight):
		e = m.relay()
	case m.rounds: // rounds without bytes take place all the same
		e = m.direct()
		e.Rounds = c.Nodes - 1
		e.Messages += int64(e.Rounds)
		e.CPU += times(int64(e.Rounds), c.Post)
	default:
		e = m.direct()
	}
	if max(e.Time, e.CPU) >= longest {
		return Estimate{}, fmt.Errorf("relaysim: %d B a pair, %v, between %d nodes of %d PEs take more than %v: %w", n, algo, c.Nodes, c.PerNode, longest, pe.ErrRange)
	}
	return e, nil
}

// longest is the longest time that is told; no term of a sum is longer, so that no
// sum overflows.
const longest = 10000 * time.Hour

// times is n times d, or longest.
func times(n int64, d time.Duration) time.Duration {
	if d > 0 && n > int64(longest/d) {
		return longest
	}
	return time.Duration(n) * d
}

// fewNodes stands for a team of more nodes: the defaults of more than 16 rounds are
// those of 17.
func fewNodes(c Config) []int {
	nodes := make([]int, min(c.Nodes, 18)*c.PerNode)
	for r := range nodes {
		nodes[r] = r / c.PerNode
	}
	return nodes
}

type model struct {
	Config
	n, merge, payload int64
	rounds            bool
	slots             int
}

// copies is the time of copies within the node: so many, of so many bytes in all.
func (m *model) copies(count, bytes int64) time.Duration {
	return times(count, m.CopyPost) + perSecond(bytes, m.Copy)
}

func perSecond(bytes, rate int64) time.Duration {
	return time.Duration(min(float64(bytes)/float64(rate)*float64(time.Second), float64(longest)))
}

// within is what happens inside a node in any case: credits with row bytes each, the
// own part, and what is for the other PEs of the node.
func (m *model) within(row int64) time.Duration {
	others := int64(m.PerNode - 1)
	return m.copies(others, others*(plan.CreditBytes+row)) + m.copies(others+1, (others+1)*m.n)
}

func (m *model) direct() Estimate {
	remote := int64(m.Nodes-1) * int64(m.PerNode)
	posts := times(remote, m.Post)
	if n := m.Nodes * m.PerNode; !m.rounds && m.n <= plan.CarryMax(n) {
		return m.carry(posts)
	}
	e := Estimate{Peers: int(remote), Messages: 2 * remote, LinkBytes: remote * (m.n + plan.CreditBytes)}
	before := posts + m.within(0)
	e.CPU = before + posts
	e.Time = before + max(posts, perSecond(remote*m.n, m.Bandwidth))
	if remote > 0 {
		e.Time += m.Latency
	}
	return e
}

// carry is direct with what is short: it goes with the entries, and the receiver
// copies it.
func (m *model) carry(posts time.Duration) Estimate {
	others := int64(m.PerNode - 1)
	remote := int64(m.Nodes-1) * int64(m.PerNode)
	message := int64(plan.CreditBytes+plan.CountBytes) + m.n
	e := Estimate{Peers: int(remote), Messages: remote, LinkBytes: remote * message}
	sent := posts + m.copies(others, others*message)
	e.CPU = sent + m.copies(1+others+remote, (1+others+remote)*m.n)
	e.Time = e.CPU
	if remote > 0 {
		last := m.Latency + m.copies(1, m.n)
		e.Time = max(e.CPU, sent+last, perSecond(e.LinkBytes, m.Bandwidth)+last)
	}
	return e
}

func (m *model) relay() Estimate {
	rounds, local := int64(m.Nodes-1), int64(m.PerNode)
	carried, posts, own := local*m.n, int64(1), int64(0) // a grant
	if m.n >= m.merge {
		carried -= m.n // what is for the rail peer goes there by itself
		own = m.n
		posts++
	}
	subs := max(1, (carried+m.payload-1)/m.payload)
	posts += max(0, subs-int64(m.slots)) // later grants
	head := plan.HeaderBytes(m.PerNode)
	var gather time.Duration
	if carried/subs <= plan.GatherMax {
		posts += subs
		gather = m.copies(subs, carried)
	} else {
		posts += 2 * subs // header, and what is behind it
	}
	forward := m.copies(max(subs, min(carried/max(m.n, 1)+subs-1, subs*local)), carried)
	link := plan.CreditBytes + plan.CountBytes*local + own + carried + subs*head
	e := Estimate{Rounds: int(rounds), Peers: int(rounds), Messages: rounds * posts, LinkBytes: rounds * link}
	before := m.within(rounds * plan.RowBytes)
	e.CPU = before + times(rounds, times(posts, m.Post)+gather+forward)
	grants := before + times(rounds, m.Post)
	chain := grants + m.Latency + gather + m.Post + m.Latency + forward // of the last round
	e.Time = max(e.CPU, chain, before+perSecond(e.LinkBytes, m.Bandwidth)+m.Latency+forward)
	return e
}
