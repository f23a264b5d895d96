package plan

import (
	"encoding/binary"
	"slices"
)

// Forward is a stretch of rows that a rank passes on within its node: N rows of its
// buffer, from row From on, to row Row on at rank To, which may be itself.
type Forward struct {
	To        int32
	N         int64
	From, Row int64
}

// Scattered is what a rank sends to other nodes: each token's row once to each node, to
// one of its receivers there, which passes it on. By that receiver.
type Scattered struct {
	Runs     [][]Run
	Forwards [][]Forward

	next   []int64 // by rank, expert-major by expert: the next row
	mark   []int64 // by rank: the last token that goes there, plus one
	open   []int32 // by receiver and rank of its node: the latest stretch passed on, plus one
	places []place
	group  []place
}

type place struct {
	rank int32
	row  int64
}

// together is how many neighbouring tokens take the same choice among their receivers:
// their rows then make one stretch.
const together = 16

// Scatter computes what s sends to nodes other than that of rank self.
func Scatter(p *Params, o *Owners, n *Nodes, self int, s *Sent, pl *Placement, out *Scattered) {
	out.Runs, out.Forwards = emptied(out.Runs, p.Ranks), emptied(out.Forwards, p.Ranks)
	out.mark = zeroed(out.mark, p.Ranks)
	out.open = zeroed(out.open, p.Ranks*n.most)
	if p.ExpertMajor {
		out.next = append(out.next[:0], pl.ExpertBase...)
	} else {
		out.next = append(out.next[:0], pl.RecordBase...)
	}
	for t := range s.T {
		out.find(p, o, n, self, t, s)
		for len(out.places) > 0 {
			out.send(n, int32(t))
		}
	}
}

// find lists the places of token t on other nodes.
func (x *Scattered) find(p *Params, o *Owners, n *Nodes, self, t int, s *Sent) {
	x.places = x.places[:0]
	for _, e := range s.Idx[t*p.TopK : (t+1)*p.TopK] {
		if e < 0 || n.Same(int(o.rank[e]), self) {
			continue
		}
		r := o.rank[e]
		i := e
		if !p.ExpertMajor {
			if x.mark[r] == int64(t)+1 {
				continue
			}
			x.mark[r] = int64(t) + 1
			i = r
		}
		x.places = append(x.places, place{r, x.next[i]})
		x.next[i]++
	}
}

// send takes the places of one node out and says how the row gets to them.
func (x *Scattered) send(n *Nodes, t int32) {
	node := n.of[x.places[0].rank]
	x.group = x.group[:0]
	rest := x.places[:0]
	for _, pl := range x.places {
		if n.of[pl.rank] == node {
			x.group = append(x.group, pl)
		} else {
			rest = append(rest, pl)
		}
	}
	x.places = rest
	i := int(t) / together % len(x.group)
	via := x.group[i]
	runs := &x.Runs[via.rank]
	if last := len(*runs) - 1; last >= 0 && (*runs)[last].Token+int32((*runs)[last].N) == t && (*runs)[last].Row+(*runs)[last].N == via.row {
		(*runs)[last].N++
	} else {
		*runs = append(*runs, Run{To: via.rank, Token: t, N: 1, Row: via.row})
	}
	for j, to := range x.group {
		if j != i {
			x.forward(n, via, to)
		}
	}
}

func (x *Scattered) forward(n *Nodes, via, to place) {
	all := &x.Forwards[via.rank]
	open := &x.open[int(via.rank)*n.most+n.local[to.rank]]
	if *open > 0 {
		if f := &(*all)[*open-1]; f.From+f.N == via.row && f.Row+f.N == to.row {
			f.N++
			return
		}
	}
	*all = append(*all, Forward{To: to.rank, N: 1, From: via.row, Row: to.row})
	*open = int32(len(*all))
}

// List adds to each receiver's list the rows that are sent there, from where they lie to
// the same place: who moves rows itself must know which have come.
func (x *Scattered) List() {
	for to, runs := range x.Runs {
		for _, run := range runs {
			x.Forwards[to] = append(x.Forwards[to], Forward{To: run.To, N: run.N, From: run.Row, Row: run.Row})
		}
	}
}

// A list of forwards travels as their number, then each.
const (
	listHead     = 8
	forwardBytes = 24
)

// ListBytes is the length of a list of n forwards.
func ListBytes(n int) int64 { return listHead + forwardBytes*int64(n) }

// EncodeForwards writes a list to b, which has room, and returns the bytes used.
func EncodeForwards(all []Forward, b []byte) int64 {
	le := binary.LittleEndian
	le.PutUint64(b, uint64(len(all)))
	at := int64(listHead)
	for _, f := range all {
		le.PutUint32(b[at:], uint32(f.To))
		le.PutUint32(b[at+4:], uint32(f.N)) // no more than tokens
		le.PutUint64(b[at+8:], uint64(f.From))
		le.PutUint64(b[at+16:], uint64(f.Row))
		at += forwardBytes
	}
	return at
}

// DecodeForwards appends the list in b to all. It was written by another process: ok is
// false where it does not fit into b, leaves the node of rank self, its rows leave the
// buffers, or they are more than a source can have.
func DecodeForwards(n *Nodes, sz *Sizes, self int, pl *Placement, b []byte, all []Forward) (_ []Forward, ok bool) {
	le := binary.LittleEndian
	if len(b) < listHead {
		return all, false
	}
	count := le.Uint64(b)
	if count > uint64(len(b)-listHead)/forwardBytes {
		return all, false
	}
	left := (sz.ListRoom - listHead) / forwardBytes // rows
	all = slices.Grow(all, int(count))
	for b = b[listHead:]; count > 0; count, b = count-1, b[forwardBytes:] {
		to := le.Uint32(b)
		f := Forward{N: int64(le.Uint32(b[4:])), From: int64(le.Uint64(b[8:])), Row: int64(le.Uint64(b[16:]))}
		if int64(to) >= int64(len(n.of)) || !n.Same(int(to), self) || !within(f.From, f.N, pl.Rows) {
			return all, false
		}
		f.To = int32(to)
		most := sz.RowCap
		if int(to) == self {
			most = pl.Rows
		}
		if left -= f.N; left < 0 || !within(f.Row, f.N, most) {
			return all, false
		}
		all = append(all, f)
	}
	return all, true
}

// within reports whether n rows, at least one, from a row on are among so many.
func within(row, n, most int64) bool { return row >= 0 && n > 0 && n <= most && row <= most-n }

// emptied is s with n empty slices, reusing their memory.
func emptied[T any](s [][]T, n int) [][]T {
	if cap(s) < n {
		s = append(s[:cap(s)], make([][]T, n-cap(s))...)
	}
	s = s[:n]
	for i := range s {
		s[i] = s[i][:0]
	}
	return s
}
