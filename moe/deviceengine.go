package moe

import (
	"goshmem/moe/internal/kernels"
)

// The copy engine's mover: rows travel in parts of the same number of rows on every
// rank, each part of each peer by one copy.

// partBytes is how long a part should be at least.
const partBytes = 8 << 20

// parts is how many parts a dispatch has, and the rows of one.
func (e *DeviceEngine) parts() (n, rows int64) {
	n = min(max(e.p.MaxTokens*e.p.RowBytes/partBytes, 1), 8)
	rows = max((e.p.MaxTokens+n-1)/n, 1)
	return n, rows
}

// part i of n, as the flags number it: the last one is LastPart.
func part(i, n int64) uint64 {
	if i == n-1 {
		return kernels.LastPart
	}
	return uint64(i) + 1
}

// carry packs and copies; the flags are set behind the copies.
func (s *deviceSlot) carry(stream uintptr, d *DeviceDispatched, in DeviceInput) error {
	e, c, run := s.e, &s.e.layout.Ctx, s.e.run
	n, rows := e.parts()
	shared := uint32(kernels.SharedBase)
	for i := range n {
		from := min(i*rows, int64(in.Tokens))
		to := min(from+rows, int64(in.Tokens))
		if i == n-1 {
			to = int64(in.Tokens)
		}
		if to > from {
			if err := e.launch(kernels.Pack, e.reduceSMs, kernels.Threads, shared, stream, s.ctx, d.routing.at, in.X, uint64(from), uint64(to)); err != nil {
				return err
			}
		}
		if err := run.Record(e.packed, stream); err != nil {
			return err
		}
		for k := range e.copies {
			if err := run.WaitEvent(e.copies[k], e.packed); err != nil {
				return err
			}
		}
		for k := 1; k <= e.ranks; k++ {
			peer, on := (e.rank+k)%e.ranks, stream // this rank's own rows are in place
			if peer != e.rank {
				on = e.copies[k%len(e.copies)]
				dst := s.peers[peer] + uint64(c.Arrive+(int64(e.rank)*e.p.MaxTokens+from)*e.p.RowBytes)
				src := s.send + uint64((int64(peer)*e.p.MaxTokens+from)*e.p.RowBytes)
				if err := run.Copy(dst, src, (to-from)*e.p.RowBytes, on); err != nil {
					return err
				}
			}
			if err := e.launch(kernels.Sent, 1, kernels.WaitThreads, shared, on, s.ctx, d.routing.at, uint64(peer), part(i, n)); err != nil {
				return err
			}
		}
	}
	return s.join(stream)
}

// join makes the stream wait for the copies: their source is used again.
func (s *deviceSlot) join(stream uintptr) error {
	for k, on := range s.e.copies {
		ev := s.e.copied[k]
		if err := s.e.run.Record(ev, on); err != nil {
			return err
		}
		if err := s.e.run.WaitEvent(stream, ev); err != nil {
			return err
		}
	}
	return nil
}

// unpack puts arriving parts in place.
func (s *deviceSlot) unpack(stream uintptr, d *DeviceDispatched) error {
	e := s.e
	n, rows := e.parts()
	for i := range n {
		if err := s.await(stream, d, kernels.FlagData, part(i, n)); err != nil {
			return err
		}
		from, to := min(i*rows, e.p.MaxTokens), min((i+1)*rows, e.p.MaxTokens)
		if to == from {
			continue
		}
		if err := e.launch(kernels.Unpack, e.reduceSMs, kernels.Threads, uint32(kernels.SharedBase), stream, s.ctx, d.routing.at, uint64(from), uint64(to)); err != nil {
			return err
		}
	}
	return nil
}

// pull copies every peer's results for this rank's tokens.
func (s *deviceSlot) pull(stream uintptr, d *DeviceDispatched) error {
	e, c, run := s.e, &s.e.layout.Ctx, s.e.run
	size := c.ShareSize
	if !e.p.AtExpert {
		size = c.YSize
	}
	row := e.p.Hidden * size
	base := func(rank int) int64 { return int64(rank) * e.p.MaxTokens * c.PerToken * row }
	if err := e.launch(kernels.Seen, 1, kernels.WaitThreads, uint32(kernels.SharedBase), stream, s.ctx, d.gen); err != nil {
		return err
	}
	if err := run.Record(e.seen, stream); err != nil {
		return err
	}
	n := int64(d.routing.tokens) * c.PerToken * row
	for k := range e.copies {
		if err := run.WaitEvent(e.copies[k], e.seen); err != nil {
			return err
		}
	}
	for k := 1; k < e.ranks; k++ {
		peer := (e.rank + k) % e.ranks
		src := s.peers[peer] + uint64(c.Back+base(e.rank))
		if err := run.Copy(s.pulled+uint64(base(peer)), src, n, e.copies[k%len(e.copies)]); err != nil {
			return err
		}
	}
	return s.join(stream)
}
