package bench

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// proxy measures a world of two PEs in this process whose every operation is a
// request: it goes through the ring, and who waits takes the proxy's role.
func (h *handOff) proxy() error {
	h.crowded = min(len(h.cpus), runtime.GOMAXPROCS(0)) < 2
	if err := h.measure(Result{Metric: "latency", Path: "proxy", Algo: "one-producer"}, h.proxyHandOff); err != nil {
		return err
	}
	return h.intervals(Result{Path: "proxy", PEs: 2, Size: 8}, h.proxyStream)
}

// side is one PE of the proxy's world.
type side struct {
	p    *pe.PE
	c    *pe.Context
	dst  heap.Ref
	sigs heap.Signals
	out  [8]byte
}

// world runs f on two PEs with threads of their own, under path proxy.
func (h *handOff) world(f func(s *side) error) error {
	var failed [2]error
	err := pe.Run(h.ctx, pe.Config{Size: 2, Path: "proxy", HeapSize: 1 << 20}, func(p *pe.PE) (err error) {
		s := &side{p: p, c: p.Context()}
		if s.dst, err = p.CallocMem(h.ctx, 64, 0); err != nil {
			return err
		}
		if s.sigs, err = p.AllocSignals(h.ctx, 1); err != nil {
			return err
		}
		h.alone(p.Rank(), func() { err = f(s) })
		if err != nil {
			failed[p.Rank()] = err
			h.quit.Store(true) // the other side may spin
		}
		return err
	})
	for _, e := range failed {
		if e != nil && e != errStopped {
			return e
		}
	}
	return err
}

// set changes what is put; only while nothing is under way.
func (s *side) set(v uint64) { binary.LittleEndian.PutUint64(s.out[:], v) }

// put queues an 8-byte put to the other PE.
func (s *side) put() (rma.Ticket, error) {
	return rma.PutMemNBI(s.c, s.dst, s.out[:], 1-s.p.Rank())
}

// landed reports whether the other PE's last put arrived here.
func (s *side) landed(v uint64) (bool, error) {
	b, err := s.p.LocalBytes(s.dst, 8)
	return err == nil && binary.LittleEndian.Uint64(b) == v, err
}

// proxyHandOff is half the time from a request to the producer's learning that
// it is done, by a PE that only watches the ticket; the other PE waits for a
// signal and carries the requests out meanwhile. The floor is a cache line
// between the same threads.
func (h *handOff) proxyHandOff() (work, floor series, ok bool, err error) {
	var line struct {
		_    [128]byte
		a, b atomic.Uint64
		_    [128]byte
	}
	ops := h.ops(200)
	n := h.batches(ops, 150*time.Microsecond)
	ok = true
	total := uint64((n + 1) * ops)
	err = h.world(func(s *side) error {
		var plain, seq uint64
		for b := range n + 1 {
			if !h.live() {
				return errStopped
			}
			start := time.Now()
			for range ops {
				plain++
				if s.p.Rank() == 0 {
					line.a.Store(plain)
					if !h.see(&line.b, plain) {
						return errStopped
					}
				} else {
					if !h.see(&line.a, plain) {
						return errStopped
					}
					line.b.Store(plain)
				}
			}
			mid := time.Now()
			if s.p.Rank() == 1 {
				if err := rma.WaitSignal(h.ctx, s.c, s.sigs.At(0), rma.GE, uint64(b)+1); err != nil {
					return err
				}
				continue
			}
			for range ops {
				seq++
				s.set(seq)
				t, err := s.put()
				if err != nil {
					return err
				}
				for i := uint32(0); !t.Done(); i++ {
					if !h.relax(i) {
						return errStopped
					}
				}
			}
			end := time.Now()
			if err := rma.Signal(s.c, s.sigs.At(0), rma.SignalSet, uint64(b)+1, 1); err != nil {
				return err
			}
			if b > 0 {
				floor = append(floor, float64(mid.Sub(start))/float64(2*ops))
				work = append(work, float64(end.Sub(mid))/float64(2*ops))
			}
		}
		if s.p.Rank() == 0 {
			return rma.Quiet(h.ctx, s.c)
		}
		var err error
		ok, err = s.landed(total)
		return err
	})
	return work, floor, ok, err
}

// errStopped is the end of a side whose other side failed, or of a cancelled run.
var errStopped = errors.New("bench: channel: stopped")

// proxyStream is the time between two requests when one or two PEs put as fast
// as they can and each quiets at the end of a batch. With one producer the other
// PE waits for a signal, and so is a consumer that spins.
func (h *handOff) proxyStream(producers int) (work series, allocs float64, ok bool, err error) {
	ops := h.ops(4000)
	n := h.batches(ops*producers, time.Duration(ops*producers)*100)
	var in atomic.Uint64
	ok = true
	total := uint64(ops * n * producers)
	var before, after uint64
	oks := [2]bool{true, true}
	err = h.world(func(s *side) error {
		rank := s.p.Rank()
		// together lets both begin a batch at once.
		together := func(b int) bool {
			in.Add(1)
			for i := uint32(0); in.Load() < uint64(2*(b+1)); i++ {
				if !h.relax(i) {
					return false
				}
			}
			return true
		}
		for b := range n + 1 {
			if b == 1 && rank == 0 {
				before = allocated()
			}
			if !together(b) || !h.live() {
				return errStopped
			}
			s.set(uint64(b) + 1)
			start := time.Now()
			if rank == 0 || producers == 2 {
				for range ops {
					if _, err := s.put(); err != nil {
						return err
					}
				}
				if err := rma.Quiet(h.ctx, s.c); err != nil {
					return err
				}
			}
			if b > 0 && rank == 0 {
				work = append(work, float64(time.Since(start))/float64(ops*producers))
			}
			switch {
			case producers == 2:
			case rank == 0:
				if err := rma.Signal(s.c, s.sigs.At(0), rma.SignalSet, uint64(b)+1, 1); err != nil {
					return err
				}
			default:
				if err := rma.WaitSignal(h.ctx, s.c, s.sigs.At(0), rma.GE, uint64(b)+1); err != nil {
					return err
				}
			}
		}
		if !together(n + 1) {
			return errStopped
		}
		if rank == 0 {
			after = allocated()
		}
		if rank == 1 || producers == 2 {
			var err error
			oks[rank], err = s.landed(uint64(n) + 1)
			return err
		}
		return nil
	})
	if total > 0 {
		allocs = float64((after - before) / total)
	}
	return work, allocs, oks[0] && oks[1], err
}
