package bench

import (
	"sync/atomic"
	"time"

	"goshmem/channel"
)

// ring measures a bare ring with a spinning consumer.
func (h *handOff) ring() error {
	if err := h.measure(Result{Metric: "latency", Path: "ring", Algo: "one-producer"}, h.ringHandOff); err != nil {
		return err
	}
	return h.intervals(Result{Path: "ring"}, h.ringStream)
}

// intervals measures the time between two requests of one and of two producers,
// and what a request allocates. stream gives the two, and whether all arrived.
func (h *handOff) intervals(r Result, stream func(producers int) (series, float64, bool, error)) error {
	r.Metric = "interval"
	for i, algo := range [...]string{"one-producer", "two-producers"} {
		r.Algo = algo
		var allocs float64
		err := h.measure(r, func() (work, floor series, ok bool, err error) {
			work, allocs, ok, err = stream(i + 1)
			return work, nil, ok, err
		})
		if err != nil {
			return err
		}
		if err := h.emit(Result{
			Bench: "channel", Metric: "allocations", Path: r.Path, Mem: "host", Algo: algo, Nodes: 1, Impl: "goshmem",
			Unit: unitObjects, P50: allocs, P99: allocs, Mean: allocs, Verified: true,
		}); err != nil {
			return err
		}
	}
	return nil
}

// see waits until a word has a value; false: give up.
func (h *handOff) see(w *atomic.Uint64, want uint64) bool {
	for i := uint32(0); w.Load() != want; i++ {
		if !h.relax(i) {
			return false
		}
	}
	return true
}

// ringHandOff is half of a round trip through two rings, beside half of one of a
// bare cache line between the same threads.
func (h *handOff) ringHandOff() (work, floor series, ok bool, err error) {
	there, err := channel.NewRing(ringSlots)
	if err != nil {
		return nil, nil, false, err
	}
	back, err := channel.NewRing(ringSlots)
	if err != nil {
		return nil, nil, false, err
	}
	var line struct {
		_    [128]byte
		a, b atomic.Uint64 // one line, as a floor should have
		_    [128]byte
	}
	ops := h.ops(500)
	n := h.batches(ops, 150*time.Microsecond)
	ok = true
	h.together(func() {
		d := channel.Desc{Op: channel.OpPut, Size: 8}
		var seq, plain uint64
		for b := range n + 1 {
			if !h.live() {
				return
			}
			start := time.Now()
			for range ops {
				plain++
				line.a.Store(plain)
				if !h.see(&line.b, plain) {
					return
				}
			}
			mid := time.Now()
			for range ops {
				seq++
				d.DstOff = seq
				if !h.push(there, &d) {
					return
				}
				got, there := h.take(back)
				if !there {
					return
				}
				ok = ok && got == seq
			}
			end := time.Now()
			if b > 0 {
				floor = append(floor, float64(mid.Sub(start))/float64(2*ops))
				work = append(work, float64(end.Sub(mid))/float64(2*ops))
			}
		}
	}, func() {
		d := channel.Desc{Op: channel.OpPut, Size: 8}
		var plain uint64
		for range n + 1 {
			for range ops {
				plain++
				if !h.see(&line.a, plain) {
					return
				}
				line.b.Store(plain)
			}
			for range ops {
				off, there := h.take(there)
				if !there {
					return
				}
				d.DstOff = off
				if !h.push(back, &d) {
					return
				}
			}
		}
	})
	return work, floor, ok, nil
}

// drain consumes what is there, at most a batch, and releases it at once.
func drain(r *channel.Ring, sum *uint64) int {
	n := 0
	for n < 64 {
		d, _, _, ok := r.Front()
		if !ok {
			break
		}
		*sum += d.DstOff
		r.Advance()
		n++
	}
	if n > 0 {
		r.Release()
	}
	return n
}

// ringStream is the time between two requests at the consumer when producers
// push as fast as they can. The times are taken by the consumer, for each batch
// of requests; where three parties share two processors, a batch spans many
// turns of the scheduler.
func (h *handOff) ringStream(producers int) (work series, allocs float64, ok bool, err error) {
	r, err := channel.NewRing(ringSlots)
	if err != nil {
		return nil, 0, false, err
	}
	ops := h.ops(20000 * producers * producers)
	n := h.batches(ops, time.Duration(ops)*80)
	each := (ops*(n+1) + producers - 1) / producers
	total := uint64(each * producers)
	var sum uint64
	work = make(series, 0, n+1)
	parties := []func(){func() {
		var got uint64
		next := uint64(ops)
		start := time.Now()
		began := start
		for i := uint32(0); got < total; i++ {
			k := drain(r, &sum)
			if k == 0 && !h.relax(i) {
				return
			}
			got += uint64(k)
			if got >= next {
				if !h.live() {
					return
				}
				now := time.Now()
				if next > uint64(ops) { // the first warms up
					work = append(work, float64(now.Sub(start))/float64(got-next+uint64(ops)))
				}
				start, next = now, got+uint64(ops)
			}
		}
		if len(work) == 0 { // too few for a second batch
			work = append(work, float64(time.Since(began))/float64(total))
		}
	}}
	for range producers {
		parties = append(parties, func() {
			d := channel.Desc{Op: channel.OpPut, Size: 8}
			for i := range each {
				d.DstOff = uint64(i)
				if !h.push(r, &d) {
					return
				}
			}
		})
	}
	before := allocated()
	h.together(parties...)
	// Rounded down, as package testing does: starting the parties is no request's.
	allocs = float64((allocated() - before) / total)
	return work, allocs, sum == uint64(producers)*slotSum(uint64(each)), nil
}
