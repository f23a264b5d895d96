package coll

import (
	"goshmem/coll/internal/reduce"
	"goshmem/heap"
	"goshmem/rma"
)

// reduction is reduce, allreduce and reduce-scatter, and the scans of short
// vectors: every member is sent its block of everybody's source, folds the blocks
// in the order of ranks, and where all want the result sends it to all.
//
// The order is the same for every size, team, path and run: element i of the
// result is ((x0 op x1) op x2) ... with xr from rank r.
type reduction struct {
	call  string
	sig   signature
	how   arithmetic
	ready bool

	src, dst []byte
	rs       []transfer // to each member: its block
	first    int        // the ranks whose blocks this PE folds are [first, end); none: it folds nothing
	end      int
	mine     []byte // own block of src
	into     []byte // where it is folded to
	pos      int    // bytes of it folded
	next     int    // rank whose piece comes next
	folded   bool
	shift    bool    // own source would be overwritten by sums: they go to spare memory first
	identity bool    // no contributions: the result is the operation's identity
	offers   []offer // between this PE and each member
	pieces   [2]fetched
	hold     bool // own source is sent, and would be overwritten: nothing is folded before it is away

	// Where the folded blocks go to everybody:
	ag []transfer // to each member: own block of dst
	in []transfer // from each member: its block of dst
}

func (r *reduction) make(n int) {
	r.rs, r.ag, r.in = alone[transfer](n), alone[transfer](n), alone[transfer](n)
	r.offers = alone[offer](n)
}

// offer is about a block that is read from its owner's memory, instead of being
// put into the workspace: a line that one core wrote crosses to the other once, not
// there and back. It is for owners with their source in symmetric memory, on the
// node of the one who folds.
type offer struct {
	ours   bool     // own source is offered to the member
	told   bool     // and it knows
	theirs bool     // the member offers its source
	at     heap.Ref // where it is
	read   bool     // the member was told that it was read
}

// fetched is a piece of an offered source, or on its way.
type fetched struct {
	q, pos, n int
	t         rma.Ticket
}

func (r *reduction) name() string { return r.call }

func (r *reduction) signature() signature { return r.sig }

func (r *reduction) reset(call string, sig signature, how arithmetic, dst, src []byte) {
	r.call, r.sig, r.how, r.ready = call, sig, how, false
	r.src, r.dst, r.mine, r.into = src, dst, nil, nil
	r.pos, r.next, r.first, r.end, r.folded, r.shift, r.hold, r.identity = 0, 0, 0, 0, false, false, false, false
	for i := range r.rs {
		r.rs[i], r.ag[i], r.in[i] = transfer{}, transfer{}, transfer{}
		r.offers[i] = offer{}
	}
	r.pieces = [2]fetched{{q: -1}, {q: -1}}
}

// fold makes this PE fold the blocks that members [first, end) send it. Its own
// is mine.
func (r *reduction) fold(into, mine []byte, first, end int) {
	r.into, r.mine, r.first, r.end, r.next = into, mine, first, end, first
}

func (r *reduction) begin(c *Comm) {
	r.ready = true
	k := &c.core
	same, _ := overlap(r.into, r.mine)
	r.shift = same && c.rank >= r.first+2 && c.rank < r.end
	for i := range r.rs {
		_, crossing := overlap(r.into, r.rs[i].buf)
		r.hold = r.hold || crossing
	}
	for i := range r.rs {
		r.rs[i].open = true // blocks go through the workspace, if they are not read where they are
		r.ag[i].open = !c.large(len(r.ag[i].buf))
		r.in[i].told = !c.large(len(r.in[i].buf))
		if b := r.rs[i].buf; len(b) >= offerFrom && k.links[i].near && !r.hold {
			_, sym := c.own.offset(b)
			r.offers[i].ours, r.rs[i].open = sym, !sym
		}
	}
	if r.first == r.end { // not r.into == nil: empty vectors may be
		r.folded = true
		return
	}
	if r.shift && k.spare == nil {
		k.spare = make([]byte, k.piece)
	}
	if r.how.typ == reduce.BFloat16 && r.end-r.first > 2 && k.acc == nil {
		k.acc = make([]float32, k.piece/2)
	}
}

func (r *reduction) step(c *Comm) (bool, error) {
	if !r.ready {
		r.begin(c)
	}
	for {
		before := c.budget
		for k := 1; k < c.n; k++ {
			q := c.rank + k
			if q >= c.n {
				q -= c.n
			}
			if err := r.peer(c, &c.core.links[q]); err != nil {
				return false, err
			}
		}
		if !r.folded && r.free(c) {
			if err := r.foldNext(c); err != nil {
				return false, err
			}
		}
		if !r.left() {
			done, err := c.flush()
			if done && r.identity { // the source is away
				reduce.Identity(r.how.op, r.how.typ, r.dst)
			}
			return done, err
		}
		if c.budget == before || c.budget <= 0 {
			return false, nil
		}
	}
}

// left reports whether anything is to be done still.
func (r *reduction) left() bool {
	if !r.folded {
		return true
	}
	for q := range r.rs {
		if !r.rs[q].done() || !r.ag[q].done() || !r.in[q].done() || r.offers[q].theirs && !r.offers[q].read {
			return true
		}
	}
	return false
}

// peer does what can be done with one member, folding aside.
func (r *reduction) peer(c *Comm, l *link) error {
	q := l.pe
	if in := &r.in[q]; in.wanted && !in.told {
		if err := c.announce(l, in, flagPart); err != nil {
			return err
		}
	}
	if err := r.take(c, l); err != nil {
		return err
	}
	if _, err := c.push(l, &r.rs[q], len(r.rs[q].buf), 0); err != nil {
		return err
	}
	if err := r.talk(c, l); err != nil {
		return err
	}
	if ag := &r.ag[q]; !ag.done() && (r.folded || r.pos > ag.pos) {
		if _, err := c.push(l, ag, r.pos, flagPart); err != nil {
			return err
		}
	}
	return nil
}

// offerFrom is the length from which a source is offered: to say so, and that it
// was read, takes about as long as copying that.
const offerFrom = 8 * kib

// talk tells a member of this PE's offer to it, and that its own was read.
func (r *reduction) talk(c *Comm, l *link) error {
	o := &r.offers[l.pe]
	if o.ours && !o.told {
		off, _ := c.own.offset(r.rs[l.pe].buf)
		ok, err := c.send(l, o, flagOffer, off, nil, nil)
		if !ok {
			return err
		}
		o.told = true
	}
	if o.theirs && r.folded && !o.read {
		ok, err := c.send(l, o, flagPart|flagRead, 0, nil, nil)
		if !ok {
			return err
		}
		o.read = true
	}
	return nil
}

// take handles a member's message if it belongs to the second half. Those of the
// first wait for their turn.
func (r *reduction) take(c *Comm, l *link) error {
	ag, in := &r.ag[l.pe], &r.in[l.pe]
	rs := &r.rs[l.pe]
	if !c.here(l) || in.done() && (ag.done() || ag.open) && rs.done() {
		return nil
	}
	h := c.front(l)
	if h.call == c.calls && h.what&flagPart == 0 && !r.folded {
		return nil
	}
	h, err := c.peek(l, flagPart, !in.done() || !ag.done() && !ag.open || r.offers[l.pe].ours && !rs.done())
	if h == nil {
		return err
	}
	if h.what&flagRead != 0 {
		if !r.offers[l.pe].ours || rs.done() {
			return c.wrongLength(l, len(rs.buf), "a word that it was read")
		}
		rs.pos, rs.any = len(rs.buf), true
		return c.pop(l)
	}
	if h.what&flagAnnounce != 0 {
		if !ag.wanted || ag.open {
			return c.wrongLength(l, len(ag.buf), "an announcement")
		}
		c.announced(ag, h.arg)
		return c.pop(l)
	}
	if in.done() {
		return c.wrongLength(l, len(in.buf), "more")
	}
	return c.accept(l, in, h)
}

// free reports whether sums may be written over the source.
func (r *reduction) free(c *Comm) bool {
	if !r.hold {
		return true
	}
	for i := range r.rs {
		if !r.rs[i].done() {
			return false
		}
	}
	if c.reap() != nil || len(c.core.tickets) > 0 {
		c.stuck = true
		return false // flush, or suspect, gives the error
	}
	r.hold = false
	return true
}

// contribution is a member's piece of the block in hand, if it is here.
func (r *reduction) contribution(c *Comm, q, n int) (x []byte, ok bool, err error) {
	if q == c.rank {
		return r.mine[r.pos : r.pos+n], true, nil
	}
	l := &c.core.links[q]
	if r.offers[q].theirs {
		return r.fetch(c, q, n)
	}
	if !c.here(l) {
		return nil, false, nil
	}
	if h := c.front(l); h.call == c.calls && h.what&flagPart != 0 && h.what&^flagMask == r.sig.what {
		return nil, false, nil // its announcement, or a piece of another block: see take
	}
	h, err := c.peek(l, 0, true)
	if err != nil {
		return nil, false, err
	}
	if h.what&flagOffer != 0 {
		r.offers[q].theirs, r.offers[q].at = true, c.own.ref.Add(h.arg)
		if err := c.pop(l); err != nil {
			return nil, false, err
		}
		return r.fetch(c, q, n)
	}
	if h.arg != uint64(r.pos) || int(h.bytes) != n {
		return nil, false, c.wrongLength(l, len(r.mine), h.arg+uint64(h.bytes))
	}
	return c.payload(l, n), true, nil
}

// fetch reads the piece in hand of an offered source. The first two members of a
// sum are needed at once, so neighbours use different memory.
func (r *reduction) fetch(c *Comm, q, n int) ([]byte, bool, error) {
	f, mem := &r.pieces[q&1], &c.core.read[q&1]
	if *mem == nil {
		*mem = make([]byte, c.core.piece)
	}
	if f.q != q || f.pos != r.pos || f.n != n {
		t, err := rma.TryGetMemNBI(c.ctx, (*mem)[:n], r.offers[q].at.Add(uint64(r.pos)), q)
		if err != nil {
			c.stuck = true
			return nil, false, blocked(err)
		}
		*f = fetched{q: q, pos: r.pos, n: n, t: t}
		c.moved = true
	}
	if !f.t.Done() {
		c.stuck = true
		return nil, false, nil
	}
	return (*mem)[:n], true, f.t.Err()
}

// release gives a contribution's slot back.
func (r *reduction) release(c *Comm, q int) error {
	if q == c.rank {
		return nil
	}
	if r.offers[q].theirs {
		c.budget--
		return nil
	}
	return c.pop(&c.core.links[q])
}

// foldNext combines what has come, in the order of ranks.
func (r *reduction) foldNext(c *Comm) error {
	for c.budget > 0 {
		n := min(c.core.piece, len(r.mine)-r.pos)
		if r.next < r.end {
			ok, err := r.combine(c, n)
			if !ok {
				return err
			}
		}
		if r.next < r.end {
			continue
		}
		r.pos += n
		r.next = r.first
		if r.pos == len(r.mine) {
			r.folded = true
			return nil
		}
	}
	return nil
}

// combine takes the next contribution, the first two at once, to the piece at
// pos, n bytes long.
func (r *reduction) combine(c *Comm, n int) (bool, error) {
	q := r.next
	x, ok, err := r.contribution(c, q, n)
	if !ok {
		return false, err
	}
	out := r.into[r.pos : r.pos+n]
	sums := out
	if r.shift {
		sums = c.core.spare[:n]
	}
	if q > r.first {
		to := sums
		if q == r.end-1 {
			to = out
		}
		r.how.add(c, to, sums, x, q == r.end-1)
		r.next++
		c.moved = true
		return true, r.release(c, q)
	}
	if r.end-r.first == 1 {
		copy(out, x)
		r.next++
		c.moved = true
		return true, r.release(c, q)
	}
	y, ok, err := r.contribution(c, q+1, n)
	if !ok {
		return false, err
	}
	last := r.end-r.first == 2
	if last {
		sums = out
	}
	r.how.pair(c, sums, x, y, last)
	r.next += 2
	c.moved = true
	if err := r.release(c, q); err != nil {
		return true, err
	}
	return true, r.release(c, q+1)
}

// pair begins the sums of a piece with its first two contributions. last says
// that there are no more: dst is the result then.
func (a arithmetic) pair(c *Comm, dst, x, y []byte, last bool) {
	if a.typ != reduce.BFloat16 || last {
		reduce.Do(a.op, a.typ, dst, x, y)
		return
	}
	acc := c.core.acc[:len(x)/2]
	reduce.Widen(acc, x)
	reduce.Fold(a.op, acc, y)
}

// add goes on with them: to becomes sums op x. last: to is the result.
func (a arithmetic) add(c *Comm, to, sums, x []byte, last bool) {
	if a.typ != reduce.BFloat16 {
		reduce.Do(a.op, a.typ, to, sums, x)
		return
	}
	acc := c.core.acc[:len(x)/2]
	reduce.Fold(a.op, acc, x)
	if last {
		reduce.Round(to, acc)
	}
}
