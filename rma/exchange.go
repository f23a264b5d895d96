package rma

import (
	"context"
	"fmt"

	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/nvlink/device"
)

// Part is what a PE sends a member in an Exchange, and what it gets from it.
type Part struct {
	Src Local    // device memory, or empty
	Dst heap.Ref // of this PE's device heap
	N   uint64   // bytes that come
}

// MaxExchange is the most members of an Exchange.
const MaxExchange = device.MaxParts

// makeExchange takes the memory that the members tell each other by, and in which what
// they send arrives. Collective.
func (s *Stream) makeExchange(ctx context.Context, state uint64) (err error) {
	n, own := s.c.Size(), s.c.PE().Rank()
	l, err := lane(s.c, s.c.Rank())
	if err != nil {
		return err
	}
	x := &s.exchange
	x.State, x.Landing = state, device.Landing(n, l.Config().Table.Region(own, heap.RegionDevice).Size)
	x.Parts = make([]device.Part, 0, n)
	for other := range s.c.PE().Size() {
		x.Shared = x.Shared || other != own && s.g.Within(own, other)
	}
	x.Stop, x.Failed, x.Limit = s.g.StopWord(own), s.failAt, uint64(s.c.Timeout())
	if n == 1 || n > MaxExchange {
		return nil // nobody to tell, or no Exchange
	}
	s.mail, err = s.c.Team().CallocDevice(ctx, int64(n)*int64(device.MailBytes(x.Landing)), 64)
	return err
}

// Exchange is an alltoallv on device memory: parts has one part for each member of the
// team. It begins to write a member's memory when the member's stream has come to the
// same call, and what follows in the stream finds all that was sent to this PE. If two
// members do not agree on how much goes from one to the other, it does not go, and Err
// is ErrMismatch on both. Collective; every member calls it in the same order, and an
// error returned here leaves the others waiting until GOSHMEM_TIMEOUT. At most
// MaxExchange members.
//
// The parts are read before the call returns. It is one kernel, which occupies few
// multiprocessors.
func (s *Stream) Exchange(parts []Part) error {
	const op = "rma: stream exchange"
	if err := s.parts(parts); err != nil {
		return opErr(s.c, op, -1, heap.Ref{}, -1, err)
	}
	err := s.admit()
	if err == nil {
		err = s.dev.Enter()
	}
	if err == nil {
		err = s.q.Exchange(&s.exchange)
		s.dev.Leave()
	}
	if err != nil {
		return opErr(s.c, op, -1, heap.Ref{}, -1, err)
	}
	return nil
}

// parts checks all parts and makes addresses of them.
func (s *Stream) parts(parts []Part) error {
	if len(parts) != s.c.Size() {
		return fmt.Errorf("%d parts for %d members: %w", len(parts), s.c.Size(), errs.ErrConfig)
	}
	if len(parts) > MaxExchange {
		return fmt.Errorf("%d members, %d at most: %w", len(parts), MaxExchange, errs.ErrCapacity)
	}
	me, mail := uint64(s.c.Rank()), device.MailBytes(s.exchange.Landing)
	s.exchange.Parts = s.exchange.Parts[:0]
	for i := range parts {
		p := &parts[i]
		l, err := lane(s.c, i)
		if err != nil {
			return err
		}
		table, own := l.Config().Table, l.Config().Owner
		d := device.Part{
			N: p.Src.n, Want: p.N, At: p.Dst.Offset(),
			Heap: table.Region(l.Config().Peer, heap.RegionDevice).Addr,
		}
		switch {
		case p.Src.bad:
			return errs.ErrRange
		case d.Heap == 0:
			return fmt.Errorf("device memory of PE %d is not mapped: %w", i, errs.ErrUnsupported)
		}
		if d.N > 0 {
			if d.Src, err = s.source(p.Src, table, own); err != nil {
				return err
			}
		}
		if d.Want == 0 {
			d.At = 0 // any place will do
		} else {
			if p.Dst.Region() != heap.RegionDevice {
				return fmt.Errorf("%v: %w", p.Dst, errs.ErrKind)
			}
			if err := s.c.CheckLocal(p.Dst, d.Want); err != nil {
				return err
			}
		}
		if i := uint64(i); i != me {
			d.Mail = d.Heap + s.mail.Offset() + me*mail
			d.Box = table.Region(own, heap.RegionDevice).Addr + s.mail.Offset() + i*mail
		}
		s.exchange.Parts = append(s.exchange.Parts, d)
	}
	return apart(s.exchange.Parts, int(me))
}

// apart reports whether what comes overlaps nothing else that comes or goes; the own
// part may be in place.
func apart(parts []device.Part, me int) error {
	for i, p := range parts {
		at := parts[me].Heap + p.At
		for j, q := range parts {
			to := parts[me].Heap + q.At
			if i != j && meet(at, p.Want, to, q.Want) || meet(at, p.Want, q.Src, q.N) && (i != me || j != me || at != q.Src) {
				return errs.ErrAlias
			}
		}
	}
	return nil
}

func meet(a, n, b, m uint64) bool { return n > 0 && m > 0 && a < b+m && b < a+n }

// source is the address of device memory of this PE.
func (s *Stream) source(src Local, table *heap.Table, own int) (uint64, error) {
	switch {
	case src.device:
		return src.addr, nil
	case !src.ref.Valid():
		return 0, fmt.Errorf("a stream reads Go memory: %w", errs.ErrKind)
	case src.ref.Region() != heap.RegionDevice:
		return 0, fmt.Errorf("%v: %w", src.ref, errs.ErrKind)
	}
	return table.Region(own, src.ref.Region()).Addr + src.ref.Offset(), s.c.CheckLocal(src.ref, src.n)
}
