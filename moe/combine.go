package moe

import (
	"context"

	"goshmem/moe/bf16"
	"goshmem/moe/internal/plan"
	"goshmem/moe/internal/sum"
)

// Combine sends what the experts made of the rows of d back to their sources and
// writes the sum for each of this rank's tokens to out: Hidden elements of bf16 a
// token.
//
// y has d.OutputRows rows of Hidden elements of Config.Output: for ExpertMajor
// the rows of d.Rows, for RankMajor those that d.PairStart tells. bias starts the
// sums: nil, Hidden elements for all tokens, or Hidden for each. A token without
// expert gives its bias, or 0.
//
// Products are rounded to float32 before they are added, sums are float32, and
// out is rounded to nearest even; a NaN is 0x7fc0. y may be d.Rows itself; out
// may be y.
//
// Every rank calls it, for the same dispatch. Errors are as those of Dispatch.
func (e *Engine) Combine(ctx context.Context, d *Dispatched, y []byte, bias []float32, out []byte) (Traffic, error) {
	const op = "combine"
	s, _, err := e.take(e.slotOf(d))
	if err != nil {
		return Traffic{}, wrap(op, err)
	}
	defer e.done(s)
	t, err := s.combine(ctx, d, y, bias, out)
	return t, wrap(op, err)
}

// StartCombine is Combine that goes on by itself: Wait on what it returns. y, bias
// and out must not be touched until then. ErrWouldBlock says that an earlier call
// with the same rows is not over yet; it may be tried again.
func (e *Engine) StartCombine(ctx context.Context, d *Dispatched, y []byte, bias []float32, out []byte) (*Pending[Traffic], error) {
	const op = "combine"
	s, _, err := e.take(e.slotOf(d))
	if err != nil {
		return nil, wrap("start "+op, err)
	}
	return start(op, s, func() (Traffic, error) { return s.combine(ctx, d, y, bias, out) }), nil
}

// slotOf is where a combine takes place. A handle that is none of ours is
// refused there where the other ranks most likely are.
func (e *Engine) slotOf(d *Dispatched) *slot {
	if d == nil || d.s == nil || d.s.e != e {
		return e.last()
	}
	return d.s
}

func (s *slot) combine(ctx context.Context, d *Dispatched, y []byte, bias []float32, out []byte) (Traffic, error) {
	give := s.giveChoices
	if s.e.p.AtExpert {
		give = s.giveShares
	}
	t, err := s.bring(ctx, d, s.combinable(d, y, bias, out), y, give)
	if err == nil {
		s.gather(d.routing, bias, out)
	}
	return t, err
}

// giver sends a source what the experts here made of its tokens, and returns the bytes.
type giver func(d *Dispatched, y []byte, to int) (int64, error)

// bring is a combine up to where its results are here.
func (s *slot) bring(ctx context.Context, d *Dispatched, f plan.Fault, y []byte, give giver) (Traffic, error) {
	ctx, stop := s.e.bounded(ctx)
	defer stop()
	s.seq++
	h := plan.Head{Call: plan.CallCombine, Fault: f}
	if f.Code == plan.None {
		h.Plan = d.routing.number
	}
	t := Traffic{}
	if !s.granted {
		t.Meta = int64(s.e.p.Ranks-1) * plan.ShortHead
		if err := s.exchange(ctx, h, nil, nil); err != nil {
			return Traffic{}, s.settle(err)
		}
	}
	s.granted = false
	var err error
	if f.Code != plan.None {
		err = s.decline(h)
	} else {
		err = s.giveBack(d, y, &t, give)
	}
	if err == nil {
		err = s.finish(ctx, f)
	}
	if err != nil {
		return Traffic{}, s.settle(err)
	}
	t.Logical = d.routing.place.HomeRank[s.e.p.Ranks] * s.e.p.BackBytes()
	return t, nil
}

// combinable checks the arguments.
func (s *slot) combinable(d *Dispatched, y []byte, bias []float32, out []byte) plan.Fault {
	p := &s.e.p
	if d == nil || d.s != s {
		return plan.Fault{Code: plan.Foreign}
	}
	if d.stale() {
		return plan.Fault{Code: plan.Stale}
	}
	elements := int64(d.routing.sent.T) * p.Hidden
	if want := d.OutputRows * p.Hidden * p.YBytes; int64(len(y)) != want {
		return plan.Fault{Code: plan.BadArgument, A: plan.ArgY, B: int64(len(y)), C: want}
	}
	if n := int64(len(bias)); n != 0 && n != p.Hidden && n != elements {
		return plan.Fault{Code: plan.BadArgument, A: plan.ArgBias, B: n, C: elements}
	}
	if want := elements * bf16.Size; int64(len(out)) != want {
		return plan.Fault{Code: plan.BadArgument, A: plan.ArgOut, B: int64(len(out)), C: want}
	}
	return plan.Fault{}
}

// giveBack is the second round of a combine, the sending half.
func (s *slot) giveBack(d *Dispatched, y []byte, t *Traffic, give giver) error {
	e := s.e
	s.bulk = len(y) >= bulkMin
	for i := 1; i <= e.p.Ranks; i++ {
		to := (e.rank + i) % e.p.Ranks
		var n int64
		var err error
		if !e.carries(to) {
			n, err = give(d, y, to)
		}
		if err == nil {
			err = s.signal(wordData, s.seq<<flagBits, to)
		}
		if err != nil {
			return err
		}
		if to != e.rank {
			t.Wire += n
		}
		if !e.nodes.Same(to, e.rank) {
			t.Between += n
		}
	}
	return nil
}

// giveChoices sends a source the output of each of its choices, as it is: in
// rank-major one block, in expert-major one for each expert.
func (s *slot) giveChoices(d *Dispatched, y []byte, to int) (int64, error) {
	p, sz, pl := &s.e.p, &s.e.arena.sizes, &d.routing.place
	row := p.BackBytes()
	if !p.ExpertMajor {
		from := d.PairStart[pl.From[to]]
		n := pl.PairsBy[to]
		return n * row, s.put(sz.BackAt(p, pl.ReturnBase[to]), y[from*row:(from+n)*row], to)
	}
	experts := len(pl.Counts)
	total := int64(0)
	for l, from := range pl.Offsets[:experts] {
		for source := range to {
			from += pl.PairsOf[source*experts+l]
		}
		i := to*experts + l
		n := pl.PairsOf[i]
		if err := s.put(sz.BackAt(p, pl.ReturnPair[i]), y[from*row:(from+n)*row], to); err != nil {
			return 0, err
		}
		total += n * row
	}
	return total, nil
}

// gather adds up what has come for each of this rank's tokens.
func (s *slot) gather(r *Routing, bias []float32, out []byte) {
	p, sz := &s.e.p, &s.e.arena.sizes
	s.homing.Start(p, s.e.owners, &r.place)
	s.acc = sized(s.acc, p.Hidden)
	row := p.BackBytes()
	back := s.mem[sz.BackAt(p, 0):]
	shared := int64(len(bias)) == p.Hidden
	for tok := range int64(r.sent.T) {
		switch {
		case len(bias) == 0:
			clear(s.acc)
		case shared:
			copy(s.acc, bias)
		default:
			copy(s.acc, bias[tok*p.Hidden:])
		}
		for _, x := range s.results(r, int(tok)) {
			y := back[x.home*row : (x.home+1)*row]
			if p.AtExpert {
				sum.Add(s.acc, y, p.PartialBytes)
			} else {
				sum.AddScaled(s.acc, y, p.YBytes, x.weight)
			}
		}
		sum.Encode(out[tok*p.Hidden*bf16.Size:], s.acc, bf16.Size)
	}
}

// result is one of those that are added up for a token: a rank's share, or a choice.
type result struct {
	rank, expert int32 // expert of a choice only
	home         int64 // the row that it comes back to
	weight       float32
}

// results lists those of token t in the order of the sum. s.homing was started, and this
// is called for every token from 0 on.
func (s *slot) results(r *Routing, t int) []result {
	p, o := &s.e.p, s.e.owners
	from := t * p.TopK
	choices := r.sent.Idx[from : from+p.TopK]
	s.found = s.found[:0]
	if p.AtExpert {
		s.ranks = o.RanksOf(choices, s.ranks[:0])
		for _, rank := range s.ranks {
			s.found = append(s.found, result{rank: rank, home: s.homing.Share(rank)})
		}
		return s.found
	}
	for k, e := range choices {
		if e >= 0 {
			s.found = append(s.found, result{int32(o.Rank(int(e))), e, s.homing.Choice(e), r.sent.Weights[from+k]})
		}
	}
	return s.found
}

// sized is s with length n, reusing its memory.
func sized(s []float32, n int64) []float32 {
	if int64(cap(s)) < n {
		return make([]float32, n)
	}
	return s[:n]
}
