package plan

import "fmt"

// Algo is how the bytes of an alltoallv travel between nodes.
type Algo uint8

// The algorithms.
const (
	Auto   Algo = iota // short transfers by relays, long ones straight
	Direct             // every rank puts to every rank
	Relay              // everything by relays
	NumAlgos
)

func (a Algo) String() string {
	if a < NumAlgos {
		return [...]string{"auto", "direct", "relay"}[a]
	}
	return fmt.Sprintf("algo(%d)", uint8(a))
}

// Way is how the bytes from one rank to another travel. It follows from the
// topology and the number of bytes, which both know; where they disagree about
// the number, whoever compares finds that.
type Way uint8

// The ways.
const (
	Self     Way = iota // a copy
	Near                // a put within the node
	Straight            // a put to another node, by an entry credit
	Rail                // a put to the rail peer, under its grants
	Relayed             // through the rail peer's slots, perhaps to itself
)

func (w Way) String() string {
	return [...]string{"self", "near", "straight", "rail", "relayed"}[w]
}

// Chooser is the rule of ways.
type Chooser struct {
	T *Topology
	// Rounds tells that relay rounds take place.
	Rounds bool
	// Straight is the number of bytes from which a pair that would be relayed
	// goes straight instead.
	Straight int64
	// Merge is the number of bytes from which what is for the rail peer itself
	// does not go through its slots, where it takes one message less and one copy
	// more.
	Merge int64
	// Carry is the most bytes that travel in an entry credit of the sender, with no
	// data behind it, where no rounds take place.
	Carry int64
}

// What entries carry: of longer blocks a second copy costs more than asking first,
// and those of a large team stay small together.
const (
	carryMost = 1 << 10
	carryAll  = 1 << 20
)

// NewChooser resolves an algorithm for a topology. Relaying cannot merge messages
// where every node has one rank, so Auto is Direct there.
func NewChooser(t *Topology, a Algo, straight, merge int64) Chooser {
	c := Chooser{T: t, Straight: 1<<63 - 1, Merge: merge}
	switch {
	case t.Nodes() < 2 || a == Direct || a == Auto && t.Most() == 1:
	case a == Auto:
		c.Rounds, c.Straight = true, straight
	default:
		c.Rounds = true
	}
	if !c.Rounds {
		c.Carry = CarryMax(t.Size())
	}
	return c
}

// CarryMax is the most bytes that an entry carries in a team of so many members
// where no rounds take place.
func CarryMax(members int) int64 {
	return max(min(carryMost, carryAll/int64(2*members)-CreditBytes-CountBytes)/64*64, 0)
}

// Carried tells whether a transfer of n bytes travels in its sender's entry.
func (c *Chooser) Carried(n int64) bool { return !c.Rounds && n <= c.Carry }

// Way is how n bytes from p to j travel.
func (c *Chooser) Way(p, j int, n int64) Way {
	t := c.T
	switch {
	case p == j:
		return Self
	case t.node[p] == t.node[j]:
		return Near
	case !c.Rounds:
		return Straight
	case t.Relay(p, j) == j:
		if n >= c.Merge {
			return Rail
		}
	case n >= c.Straight:
		return Straight
	}
	return Relayed
}

// Relayed fills dst with the bytes that p sends through its rail peer to each
// rank of a node, by local index, and returns their sum. total is the number of
// bytes to each.
func (c *Chooser) Relayed(dst []int64, p, node int, total func(local int) int64) (sum int64) {
	for d, j := range c.T.ranks[node] {
		dst[d] = 0
		if n := total(d); c.Way(p, j, n) == Relayed {
			dst[d] = n
			sum += n
		}
	}
	return sum
}
