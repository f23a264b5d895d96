package coll

import (
	"context"

	"goshmem/coll/internal/reduce"
)

// Scan combines, into dst of member r, the src of members 0 to r (an inclusive
// prefix reduction). dst may be src.
func Scan[T Number](ctx context.Context, c *Comm, op Op, dst, src []T) error {
	return scan(ctx, c, "scan", op, dst, src, false)
}

// ExclusiveScan combines, into dst of member r, the src of members 0 to r-1; that
// of member 0 is the operation's identity (0 for Sum, Or and Xor, 1 for Prod, all
// ones for And, the largest value or +Inf for Min, the smallest or -Inf for Max).
// dst may be src.
func ExclusiveScan[T Number](ctx context.Context, c *Comm, op Op, dst, src []T) error {
	return scan(ctx, c, "exclusive scan", op, dst, src, true)
}

// StartScan begins a Scan.
func StartScan[T Number](c *Comm, op Op, dst, src []T) (*Pending, error) {
	return startScan(c, "scan", op, dst, src, false)
}

// StartExclusiveScan begins an ExclusiveScan.
func StartExclusiveScan[T Number](c *Comm, op Op, dst, src []T) (*Pending, error) {
	return startScan(c, "exclusive scan", op, dst, src, true)
}

func scan[T Number](ctx context.Context, c *Comm, call string, op Op, dst, src []T, exclusive bool) error {
	if err := c.enter(ctx, call); err != nil {
		return err
	}
	how := arithmetic{reduce.Op(op), typeOf[T]()}
	d, s := bytesOf(dst), bytesOf(src)
	if atOnce(c.geo, len(s), c.core.piece) {
		r := &c.core.red
		return c.run(ctx, r, r.scan(c, call, how, d, s, exclusive))
	}
	k := &c.core.chain
	return c.run(ctx, k, k.scan(c, call, how, d, s, exclusive))
}

func startScan[T Number](c *Comm, call string, op Op, dst, src []T, exclusive bool) (*Pending, error) {
	if c == nil {
		return nil, wrap("coll: start "+call, errNoComm)
	}
	how := arithmetic{reduce.Op(op), typeOf[T]()}
	d, s := bytesOf(dst), bytesOf(src)
	if atOnce(c.geo, len(s), c.core.piece) {
		return c.startReduction(call, func(r *reduction) error { return r.scan(c, call, how, d, s, exclusive) })
	}
	k := new(chain)
	return c.start(k, k.scan(c, call, how, d, s, exclusive))
}

// atOnce chooses how to scan: everybody sends its vector to all members behind it,
// in one step; or the sums go from one to the next, which moves less and takes a
// step a member, each of them a turn of the scheduler where PEs share cores.
func atOnce(g geometry, bytes, piece int) bool {
	most := 32 * kib
	if g.crowded {
		most = 256 * kib
	}
	return bytes <= piece && (g.n-1)*bytes <= most
}

func scanKind(exclusive bool) kind {
	if exclusive {
		return kindExclusiveScan
	}
	return kindScan
}

func checkScan(how arithmetic, dst, src []byte) error {
	if err := how.check(); err != nil {
		return err
	}
	if err := wantBytes("destination", dst, len(src), how.size()); err != nil {
		return err
	}
	return apartOrSame(dst, src)
}

// scan of short vectors: all at once, as in an allreduce.
func (r *reduction) scan(c *Comm, call string, how arithmetic, dst, src []byte, exclusive bool) error {
	r.reset(call, sign(scanKind(exclusive), uint8(how.op), uint8(how.typ), 0, len(src)), how, dst, src)
	if err := checkScan(how, dst, src); err != nil {
		return err
	}
	for q := c.rank + 1; q < c.n; q++ {
		r.rs[q].set(src)
	}
	switch {
	case !exclusive:
		r.fold(dst, src, 0, c.rank+1)
	case c.rank > 0:
		r.fold(dst, src, 0, c.rank)
	default:
		r.identity = true
	}
	return nil
}

// chain is a scan of long vectors: each member gets the sums so far from the one
// before, adds its own and passes them on, piece by piece. Sums of bfloat16 travel
// as float32.
type chain struct {
	call      string
	sig       signature
	how       arithmetic
	dst, src  []byte
	exclusive bool
	ready     bool
	pos       int    // bytes of src done
	sums      []byte // the piece at pos, on its way to the next member; nil: not computed yet
}

func (k *chain) name() string { return k.call }

func (k *chain) signature() signature { return k.sig }

func (k *chain) scan(c *Comm, call string, how arithmetic, dst, src []byte, exclusive bool) error {
	*k = chain{
		call: call, sig: sign(scanKind(exclusive), uint8(how.op), uint8(how.typ), 0, len(src)),
		how: how, dst: dst, src: src, exclusive: exclusive,
	}
	return checkScan(how, dst, src)
}

// widen is how many bytes of sums there are for one of the source.
func (k *chain) widen() int {
	if k.how.typ == reduce.BFloat16 {
		return 2
	}
	return 1
}

func (k *chain) step(c *Comm) (bool, error) {
	if !k.ready {
		k.ready = true
		if c.core.sums == nil {
			c.core.sums = make([]byte, c.core.slots*uint64(c.core.piece))
		}
	}
	for k.pos < len(k.src) {
		if c.budget <= 0 {
			return false, nil
		}
		ok, err := k.piece(c)
		if !ok {
			return false, err
		}
	}
	return c.flush()
}

// piece does the next piece, if it is here and can be passed on.
func (k *chain) piece(c *Comm) (bool, error) {
	n := min(c.core.piece/k.widen(), len(k.src)-k.pos)
	last := c.rank == c.n-1
	if k.sums == nil {
		var before []byte // sums of the members before
		var from *link
		if c.rank > 0 {
			from = &c.core.links[c.rank-1]
			h, err := c.peek(from, 0, true)
			if h == nil {
				return false, err
			}
			if h.arg != uint64(k.pos) || int(h.bytes) != n*k.widen() {
				return false, c.wrongLength(from, len(k.src), h.arg+uint64(h.bytes))
			}
			before = c.payload(from, int(h.bytes))
		}
		var to *link
		if !last {
			if to = &c.core.links[c.rank+1]; !c.room(to, k) {
				c.stuck = true
				return false, nil
			}
		}
		k.combine(c, to, before, n)
		c.moved = true
		if from != nil {
			if err := c.pop(from); err != nil {
				return false, err
			}
		}
	}
	if !last {
		ok, err := c.send(&c.core.links[c.rank+1], k, 0, uint64(k.pos), k.sums, nil)
		if !ok {
			return false, err
		}
	}
	k.sums = nil
	k.pos += n
	c.moved = true
	return true, nil
}

// combine computes the sums to pass on and this member's result of n bytes at
// pos. What is passed on lies in this PE's image of the slot that it goes to, and
// so stays until the slot is given back.
func (k *chain) combine(c *Comm, to *link, before []byte, n int) {
	src, dst := k.src[k.pos:k.pos+n], k.dst[k.pos:k.pos+n]
	at := uint64(0)
	if to != nil {
		at = to.sent % c.core.slots * uint64(c.core.piece)
	}
	k.sums = c.core.sums[at:][:n*k.widen()]
	bf := k.how.typ == reduce.BFloat16
	switch {
	case bf:
		acc := floatsOf(k.sums)
		if before == nil {
			reduce.Widen(acc, src)
		} else {
			copy(k.sums, before)
			reduce.Fold(k.how.op, acc, src)
		}
	case before == nil:
		copy(k.sums, src)
	default:
		reduce.Do(k.how.op, k.how.typ, k.sums, before, src)
	}
	switch {
	case !k.exclusive && bf && before != nil:
		reduce.Round(dst, floatsOf(k.sums))
	case !k.exclusive && bf:
		copy(dst, src) // one operand: as it is
	case !k.exclusive:
		copy(dst, k.sums)
	case before == nil:
		reduce.Identity(k.how.op, k.how.typ, dst)
	case bf && c.rank == 1:
		// One operand too, which was widened without loss.
		reduce.Narrow(dst, floatsOf(before))
	case bf:
		reduce.Round(dst, floatsOf(before))
	default:
		copy(dst, before)
	}
}
