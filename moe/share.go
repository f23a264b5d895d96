package moe

import (
	"goshmem/moe/internal/sum"
	"goshmem/rma"
)

// shareChunk is how many bytes of shares are added up before they are put: they
// are still in the cache then.
const shareChunk = 128 << 10

// giveShares adds up, for each token of a source, what the experts here made of
// it, and sends it one row a token.
func (s *slot) giveShares(d *Dispatched, y []byte, to int) (int64, error) {
	p, sz, r := &s.e.p, &s.e.arena.sizes, d.routing
	pl, a := &r.place, &r.arrived
	in, out := p.Hidden*p.YBytes, p.BackBytes()
	s.acc = sized(s.acc, p.Hidden)
	chunk := max(1, shareChunk/out)
	if need := chunk * out; int64(cap(s.share)) < need {
		s.share = make([]byte, need)
	}
	at := sz.BackAt(p, pl.ReturnBase[to])
	filled := int64(0)
	flush := func() error {
		// Blocking: the buffer is filled again at once.
		err := rma.PutMem(s.c, s.base.Add(uint64(at)), s.share[:filled], to)
		at += filled
		filled = 0
		return err
	}
	for i := pl.From[to]; i < pl.From[to+1]; i++ {
		clear(s.acc)
		for pair := a.PairStart[i]; pair < a.PairStart[i+1]; pair++ {
			row := pair
			if p.ExpertMajor {
				row = a.PairRow[pair]
			}
			sum.AddScaled(s.acc, y[row*in:(row+1)*in], p.YBytes, a.PairWeight[pair])
		}
		sum.Encode(s.share[filled:filled+out], s.acc, p.PartialBytes)
		if filled += out; filled == chunk*out {
			if err := flush(); err != nil {
				return 0, err
			}
		}
	}
	if filled > 0 {
		if err := flush(); err != nil {
			return 0, err
		}
	}
	return (pl.From[to+1] - pl.From[to]) * out, nil
}
