package rma

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/nvlink"
	"goshmem/nvlink/device"
	"goshmem/pe"
)

// Stream issues operations of a context on a stream of the caller's, in whose order
// they are carried out, behind whatever else the stream has. They return when
// enqueued. They are unordered with operations of the same context that are not
// issued here.
//
// All of them are legal while the stream is being captured into a graph: nothing is
// allocated, no batch is made. What adds or counts keeps its total in device memory,
// so that a replayed graph goes on counting: SignalAdd, Next, Barrier. Values that
// are set or waited for absolutely (SignalSet, WaitSignal) are baked into the graph.
//
// A Stream is used by one goroutine at a time.
type Stream struct {
	c    *pe.Context
	g    *nvlink.GPU
	dev  device.Device
	q    device.Stream
	ctr  uint64               // device memory for totals
	used int                  // words of it
	at   map[streamKey]uint64 // totals and bases in use
	cell map[streamKey]uint64 // cells of signals

	barrier heap.Signals   // adders are dealt to them, as many as one has cells for
	failed  *atomic.Uint64 // written by a wait that was ended
	failAt  uint64
	counted bool // among the streams that wait
	batch   device.Batch

	mail     heap.Ref // device memory for Exchange: what each member tells, and its first bytes
	exchange device.Exchange
}

type streamKey struct {
	target int // -1: a base of waits
	off    uint64
}

// adders is how many streams can add to one signal.
const adders = heap.StreamCells

// streamWords is room for totals and bases: one for each signal and target added to,
// one for each signal waited for by Next.
const streamWords = 1024

// NewStream makes a context usable on a stream of the caller's: a CUstream of the
// device's primary context, as any library makes it. It takes up to 1 MiB of the device
// heap, for Exchange. Collective over the context's team; so is Close.
func NewStream(ctx context.Context, c *pe.Context, handle uintptr) (*Stream, error) {
	const op = "rma: new stream"
	fail := func(err error) (*Stream, error) { return nil, opErr(c, op, -1, heap.Ref{}, -1, err) }
	if c == nil {
		return fail(errs.ErrConfig)
	}
	g, dev := c.OnDevice(), c.PE().Device()
	if g == nil {
		return fail(fmt.Errorf("no device heap (GOSHMEM_DEVICE_HEAP): %w", errs.ErrUnsupported))
	}
	s := &Stream{c: c, g: g, dev: dev, at: map[streamKey]uint64{}, cell: map[streamKey]uint64{}}
	// What is this PE's alone comes first; of that only a stream's words are left, until
	// the device closes, if what is the team's fails.
	var err error
	if s.q, err = dev.Wrap(handle); err == nil {
		s.ctr, err = dev.Alloc(8*streamWords + device.ExchangeState)
	}
	if err == nil {
		s.failed, s.failAt, err = g.HostWord(c.PE().Rank())
	}
	if err == nil {
		err = s.makeExchange(ctx, s.ctr+8*streamWords)
	}
	if err != nil {
		return fail(err)
	}
	if s.barrier, err = c.Team().AllocSignals(ctx, (c.Size()+adders-1)/adders); err != nil {
		return fail(errors.Join(err, s.freeMail(ctx)))
	}
	return s, nil
}

// Size is the number of members of the context's team.
func (s *Stream) Size() int { return s.c.Size() }

// Close ends the use; the stream itself is the caller's, and has done its work.
// Collective.
func (s *Stream) Close(ctx context.Context) error {
	if s.counted {
		s.counted = false
		s.g.Waiting(false)
	}
	return errors.Join(s.freeMail(ctx), s.c.Team().FreeMem(ctx, s.barrier.Ref()))
}

func (s *Stream) freeMail(ctx context.Context) error {
	if s.mail == (heap.Ref{}) {
		return nil
	}
	return s.c.Team().FreeMem(ctx, s.mail)
}

// Err is why a wait of the stream was ended before its time: a lost PE, the end of
// the world, or the deadline (GOSHMEM_TIMEOUT). What follows such a wait in the
// stream runs. nil: none was.
func (s *Stream) Err() error {
	switch s.failed.Load() {
	case 0:
		return nil
	case device.ExchangeMismatch:
		return opErr(s.c, "rma: stream exchange", -1, heap.Ref{}, -1, errs.ErrMismatch)
	}
	// The context knows why, if it was not the deadline.
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errs.ErrTimeout)
	err := s.c.Wait(ctx, false, nil, func() bool { return false })
	if err == nil || errors.Is(err, context.Canceled) {
		err = errs.ErrTimeout
	}
	return opErr(s.c, "rma: stream", -1, heap.Ref{}, -1, err)
}

// do makes calls with the device current, after the lane was checked.
func (s *Stream) do(op string, target int, at heap.Ref, n uint64, f func(l *channel.Lane) error) error {
	l, err := lane(s.c, target)
	if err == nil {
		err = s.dev.Enter()
	}
	if err == nil {
		err = f(l)
		s.dev.Leave()
	}
	if err != nil {
		return opErr(s.c, op, target, at, int64(n), err)
	}
	return nil
}

// Put copies src to dst on PE target. Go memory cannot be a source: the stream reads
// it later.
func (s *Stream) Put(dst heap.Ref, src Local, target int) error {
	return s.do("rma: stream put", target, dst, src.n, func(l *channel.Lane) error { return s.copy(l, dst, src) })
}

// addrs is where a put writes and reads, after all checks; small: little enough,
// and in device memory, for a kernel.
func (s *Stream) addrs(l *channel.Lane, dst heap.Ref, src Local) (to, from uint64, small bool, err error) {
	if _, _, err := src.asBytes(s.c); err != nil {
		return 0, 0, false, err
	}
	if _, err := src.ready(s.c, dst, l.Config().TeamPE); err != nil {
		return 0, 0, false, err
	}
	if dst.Region() == heap.RegionDevice && s.g.Staged(l.Config().Owner, l.Config().Peer) {
		return 0, 0, false, fmt.Errorf("device memory that is not mapped here, by a stream: %w", errs.ErrUnsupported)
	}
	from = src.addr
	switch {
	case src.device:
	case src.ref.Valid():
		from = l.Config().Table.Region(l.Config().Owner, src.ref.Region()).Addr + src.ref.Offset()
	case src.n > 0:
		return 0, 0, false, fmt.Errorf("a stream reads Go memory: %w", errs.ErrKind)
	}
	to = l.Config().Table.Region(l.Config().Peer, dst.Region()).Addr + dst.Offset()
	small = src.n > 0 && uint64(src.n) <= s.dev.Info().CopyWriteMax && dst.Region() == heap.RegionDevice &&
		(src.device || src.ref.Region() == heap.RegionDevice)
	return to, from, small, nil
}

// copy enqueues a copy of one piece.
func (s *Stream) copy(l *channel.Lane, dst heap.Ref, src Local) error {
	to, from, small, err := s.addrs(l, dst, src)
	if err != nil || src.n == 0 {
		return err
	}
	if small && s.g.Within(l.Config().Owner, l.Config().Peer) {
		s.batch.Reset()
		s.batch.Add(to, from, src.n)
		return s.q.CopyWrite(&s.batch, nil)
	}
	return s.q.Copy(to, from, src.n)
}

// PutSignal is Put, and behind it Signal.
func (s *Stream) PutSignal(dst heap.Ref, src Local, sig heap.Signal, op SignalOp, v uint64, target int) error {
	return s.do("rma: stream put signal", target, dst, src.n, func(l *channel.Lane) error {
		if err := checkSignal(l, sig.Ref(), op); err != nil {
			return err
		}
		to, from, small, err := s.addrs(l, dst, src)
		if err != nil {
			return err
		}
		if small && op == SignalAdd && sig.Ref().Region() == heap.RegionHeap {
			total, cell, err := s.adder(l, sig.Ref())
			if err != nil {
				return err
			}
			return s.q.CopyAdd(to, from, src.n, total, cell, v)
		}
		if err := s.copy(l, dst, src); err != nil {
			return err
		}
		return s.signal(l, sig.Ref(), op, v)
	})
}

// Signal sets sig on PE target to v or adds v to it, behind everything earlier of the
// stream. A signal has room for six streams that add to it; one more is ErrCapacity.
func (s *Stream) Signal(sig heap.Signal, op SignalOp, v uint64, target int) error {
	return s.do("rma: stream signal", target, sig.Ref(), 0, func(l *channel.Lane) error {
		if err := checkSignal(l, sig.Ref(), op); err != nil {
			return err
		}
		return s.signal(l, sig.Ref(), op, v)
	})
}

func (s *Stream) signal(l *channel.Lane, sig heap.Ref, op SignalOp, v uint64) error {
	if op == SignalSet {
		addr := l.Config().Table.Region(l.Config().Peer, sig.Region()).Addr + sig.Offset()
		return s.q.Write([]device.Word{{Addr: addr, Value: v, Wide: true}})
	}
	if sig.Region() != heap.RegionHeap {
		return fmt.Errorf("a stream adds to signals of the heap alone: %w", errs.ErrKind)
	}
	total, cell, err := s.adder(l, sig)
	if err != nil {
		return err
	}
	return s.q.Add(total, cell, v)
}

// adder is this stream's total for a signal, and its cell there.
func (s *Stream) adder(l *channel.Lane, sig heap.Ref) (total, cell uint64, err error) {
	k := streamKey{l.Config().TeamPE, sig.Offset()}
	if total, err = s.word(k); err != nil {
		return 0, 0, err
	}
	cell, ok := s.cell[k]
	if !ok {
		if cell, err = s.g.Cell(l, sig); err != nil {
			return 0, 0, err
		}
		s.cell[k] = cell
	}
	return total, cell, nil
}

// word is the word of device memory that belongs to k, zero at first.
func (s *Stream) word(k streamKey) (uint64, error) {
	if a, ok := s.at[k]; ok {
		return a, nil
	}
	if s.used == streamWords {
		return 0, fmt.Errorf("%d signals on one stream: %w", s.used, errs.ErrCapacity)
	}
	a := s.ctr + 8*uint64(s.used)
	s.used++
	s.at[k] = a
	return a, nil
}

// WaitSignal makes what follows in the stream wait until sig of this PE compares as
// asked with v. It is ErrWouldBlock where too many streams of the process that are not
// closed have waited: they could hold up those that end their waits.
func (s *Stream) WaitSignal(sig heap.Signal, cmp Cmp, v uint64) error {
	if cmp >= numCmp {
		return opErr(s.c, "rma: stream wait signal", -1, sig.Ref(), -1, errs.ErrConfig)
	}
	return s.wait("rma: stream wait signal", sig, cmp, v, 0)
}

// Next makes what follows in the stream wait until n more was added to sig of this PE
// than earlier calls on this stream waited for, and counts it as waited for. It
// begins at 0: the signal is added to since its last reset.
func (s *Stream) Next(sig heap.Signal, n uint64) error {
	const op = "rma: stream next"
	base, err := s.word(streamKey{-1, sig.Ref().Offset()})
	if err != nil {
		return opErr(s.c, op, -1, sig.Ref(), -1, err)
	}
	return s.wait(op, sig, GE, n, base)
}

func (s *Stream) wait(op string, sig heap.Signal, cmp Cmp, v, base uint64) error {
	me := s.c.Rank()
	return s.do(op, me, sig.Ref(), 0, func(l *channel.Lane) error {
		if err := s.c.CheckLocal(sig.Ref(), heap.SignalSize); err != nil {
			return err
		}
		if sig.Ref().Region() == heap.RegionDevice {
			return errs.ErrKind
		}
		if err := s.admit(); err != nil {
			return err
		}
		w := device.Sum{
			Cells: l.Config().Table.Region(l.Config().Owner, sig.Ref().Region()).Addr + sig.Ref().Offset(),
			N:     uint32(s.c.SignalWords(sig.Ref())), Cmp: uint32(cmp), Value: v, Base: base, Consume: base != 0,
			Stop: s.g.StopWord(s.c.PE().Rank()), Failed: s.failAt, Limit: uint64(s.c.Timeout()),
		}
		return s.q.WaitSum(&w)
	})
}

// admit counts the stream among those that wait, unless it is being captured. It is
// one of them until Close: a word that told the host when it is past a wait would cost
// each wait a microsecond.
func (s *Stream) admit() error {
	if s.counted {
		return nil
	}
	graph, err := s.q.Capturing()
	if graph || err != nil {
		return err
	}
	if !s.g.Waiting(true) {
		return errs.ErrWouldBlock
	}
	s.counted = true
	return nil
}

// Quiet makes what follows in the stream see everything earlier of it complete at its
// target: a fence, since a stream is past what it completed.
func (s *Stream) Quiet() error {
	return s.do("rma: stream quiet", s.c.Rank(), heap.Ref{}, 0, func(*channel.Lane) error {
		total, err := s.word(streamKey{-1, ^uint64(0)})
		if err != nil {
			return err
		}
		return s.q.Write([]device.Word{{Addr: total, Value: 0, Wide: true}})
	})
}

// Barrier makes what follows in the stream wait until the same barrier was reached in
// the streams of all PEs of the team; everything earlier of them is complete.
func (s *Stream) Barrier() error {
	n := s.c.Size()
	for i := 1; i < n; i++ {
		if err := s.Signal(s.barrier.At(s.c.Rank()/adders), SignalAdd, 1, (s.c.Rank()+i)%n); err != nil {
			return err
		}
	}
	for i := range s.barrier.Len() {
		from := min(adders, n-i*adders)
		if s.c.Rank()/adders == i {
			from-- // this PE
		}
		if from > 0 {
			if err := s.Next(s.barrier.At(i), uint64(from)); err != nil {
				return err
			}
		}
	}
	return nil
}
