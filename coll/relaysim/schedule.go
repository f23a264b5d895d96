package relaysim

import (
	"goshmem/coll/internal/plan"
	"goshmem/internal/fabric/sim"
)

// builder makes the schedule of one call in which every pair has n bytes.
type builder struct {
	t    *plan.Topology
	z    plan.Sizes
	ch   plan.Chooser
	n    int64
	msgs []sim.Message
	net  int // messages between nodes

	// By [receiver*size+sender], index of the credit, or first grant; -1: none.
	credit []int
}

func newBuilder(t *plan.Topology, z plan.Sizes, ch plan.Chooser, n int64) *builder {
	b := &builder{t: t, z: z, ch: ch, n: n, credit: make([]int, t.Size()*t.Size())}
	for i := range b.credit {
		b.credit[i] = -1
	}
	return b
}

func (b *builder) add(src, dst int, bytes int64, after ...int) int {
	b.msgs = append(b.msgs, sim.Message{Src: src, Dst: dst, Bytes: bytes, After: after})
	if b.t.Node(src) != b.t.Node(dst) {
		b.net++
	}
	return len(b.msgs) - 1
}

// build follows the order in which package exchange works: credits, then data
// within the node and the own part, then rounds.
func (b *builder) build() []sim.Message {
	for j := range b.t.Size() {
		b.credits(j)
	}
	for p := range b.t.Size() {
		b.straight(p)
	}
	if b.ch.Rounds {
		b.rounds()
	}
	return b.msgs
}

// peers are the other ranks in the order in which a rank turns to them.
func (b *builder) peers(p int) []int {
	var out []int
	nodes := b.t.Nodes()
	for k := range nodes {
		on := b.t.On((b.t.Node(p) + k) % nodes)
		for i := range on {
			if j := on[(b.t.Local(p)+i)%len(on)]; j != p {
				out = append(out, j)
			}
		}
	}
	return out
}

// credits sends the entry credits of receiver j.
func (b *builder) credits(j int) {
	for _, p := range b.peers(j) {
		bytes := int64(plan.CreditBytes)
		if !b.ch.Rounds {
			bytes += plan.CountBytes
		}
		if b.ch.Carried(b.n) {
			bytes += b.n
		}
		switch b.ch.Way(p, j, b.n) {
		case plan.Near:
			if b.ch.Rounds {
				bytes += int64(b.t.Rounds()*b.t.Streams()) * plan.RowBytes
			}
		case plan.Straight:
		default:
			continue
		}
		b.credit[j*b.t.Size()+p] = b.add(j, p, bytes)
	}
}

// straight sends what p puts to its receivers itself, and its own part.
func (b *builder) straight(p int) {
	b.add(p, p, b.n)
	for _, j := range b.peers(p) {
		switch b.ch.Way(p, j, b.n) {
		case plan.Near, plan.Straight:
			if b.ch.Carried(b.n) {
				b.add(p, p, b.n, b.credit[j*b.t.Size()+p]) // to its place
			} else {
				b.add(p, j, b.n, b.credit[j*b.t.Size()+p])
			}
		}
	}
}

// rounds sends what is relayed, round by round: the grants of round k wait for
// the forwards of the round before it in the bank.
func (b *builder) rounds() {
	size := b.t.Size()
	over := make([][]int, size*(b.t.Rounds()+1)) // by relay and round: its forwards
	var sources []int
	relayed := make([]int64, b.t.Most())
	for k := 1; k <= b.t.Rounds(); k++ {
		for q := range size {
			on := b.t.On(b.t.Node(q))
			var ready []int // every rank of the node has entered
			for _, j := range on {
				if j != q {
					ready = append(ready, b.credit[j*size+q])
				}
			}
			if k > b.z.Banks {
				ready = append(ready, over[q*(b.t.Rounds()+1)+k-b.z.Banks]...)
			}
			sources = b.t.Sources(sources[:0], q, k)
			for _, p := range sources {
				grant := b.add(q, p, plan.CreditBytes+plan.CountBytes*int64(len(on)), ready...)
				if b.ch.Way(p, q, b.n) == plan.Rail {
					b.add(p, q, b.n, grant)
				}
				sum := b.ch.Relayed(relayed[:len(on)], p, b.t.Node(q), func(int) int64 { return b.n })
				grants := make([]int, 0, b.z.Subs(sum)) // of each sub-round
				for range min(b.z.Slots, b.z.Subs(sum)) {
					grants = append(grants, grant)
				}
				for sub := range b.z.Subs(sum) {
					forwards := b.slot(p, q, grants[sub], on, b.z.Cut(nil, relayed[:len(on)], sub))
					over[q*(b.t.Rounds()+1)+k] = append(over[q*(b.t.Rounds()+1)+k], forwards...)
					if len(grants) < b.z.Subs(sum) {
						grants = append(grants, b.add(q, p, 0, forwards...)) // the slot again
					}
				}
			}
		}
	}
}

// slot sends one sub-round and forwards it; it returns the forwards.
func (b *builder) slot(p, q, grant int, on []int, pieces []plan.Piece) []int {
	head := plan.HeaderBytes(len(on))
	load := int64(0)
	for _, c := range pieces {
		load += c.Bytes
	}
	var data int
	if load <= plan.GatherMax {
		gathered := b.add(p, p, load, grant) // collected behind the header
		data = b.add(p, q, head+load, gathered)
	} else {
		b.add(p, q, head, grant)
		// Sources lie in rank order: what is left and right of the rail peer's own
		// makes one put each.
		for i := 0; i < len(pieces); {
			run, n := i+1, pieces[i].Bytes
			for run < len(pieces) && pieces[run].Dst == pieces[run-1].Dst+1 {
				n += pieces[run].Bytes
				run++
			}
			data = b.add(p, q, n, grant)
			i = run
		}
	}
	var forwards []int
	for _, c := range pieces {
		forwards = append(forwards, b.add(q, on[c.Dst], c.Bytes, data))
	}
	if len(forwards) == 0 {
		forwards = append(forwards, data)
	}
	return forwards
}
