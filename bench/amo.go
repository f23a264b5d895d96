package bench

import (
	"context"
	"encoding/binary"
	"sync/atomic"

	"goshmem/amo"
	"goshmem/heap"
	"goshmem/pe"
)

func amoProgram() program {
	return program{
		name: "amo", text: "atomic memory operations on 8-byte words: fetch-add, compare-swap, swap, fetch, add",
		pes: 2, least: 1, smallest: 8, only: []int64{8},
		sizes: []int64{8},
		work:  amoWork, cuda: amoDevice,
	}
}

// word is one AMO word of the target and, beside it on lines of its own, the
// word that the floor works on. PE 0 alone uses count and the addresses.
type word struct {
	ptr   heap.Ptr[uint64]
	own   *uint64 // this PE's copy
	floor *uint64 // the target's floor word
	count uint64  // what the word must be
	plain uint64  // keeps what a floor read
	bad   int     // old values that were not what they must be
}

func amoWork(ctx context.Context, e *env) error {
	const trials = 5
	words, err := pe.Calloc[uint64](ctx, e.p, 2*trials*lineWords)
	if err != nil {
		return err
	}
	ws := make([]*word, trials)
	for i := range ws {
		at := 2 * i * lineWords
		w := &word{ptr: words.At(at), own: &words.Local()[at]}
		if w.floor, err = rawWord(e.c, words.At(at+lineWords).Ref(), e.target()); err != nil {
			return err
		}
		ws[i] = w
	}
	raw, err := e.overTCP(ctx)
	if err != nil {
		return err
	}
	defer closeTCP(raw)
	for _, t := range amoTrials(e.c, e.target(), ws) {
		w := ws[0]
		ws = ws[1:]
		t.size = 8
		t.verify = func() (bool, error) { return e.checkWord(w) }
		if raw != nil {
			e.tcpAMO(raw, &t)
		}
		if err := e.measure(t); err != nil {
			return err
		}
	}
	return nil
}

// amoTrials keep their counts in registers during a batch: a store to memory
// between two locked instructions would be measured too.
func amoTrials(c *pe.Context, to int, ws []*word) []trial {
	op := func(metric string, work, floor func(int) error) trial {
		return trial{line: line{metric: metric, unit: unitNS}, work: work, floor: floor}
	}
	return []trial{
		op("fetch-add", func(ops int) error {
			w := ws[0]
			ptr, n, bad := w.ptr, w.count, 0
			for range ops {
				old, err := amo.FetchAdd(c, ptr, 1, to)
				if err != nil {
					return err
				}
				if old != n {
					bad++
				}
				n++
			}
			w.count, w.bad = n, w.bad+bad
			return nil
		}, func(ops int) error {
			w := ws[0].floor
			for range ops {
				atomic.AddUint64(w, 1)
			}
			return nil
		}),
		op("compare-swap", func(ops int) error {
			w := ws[1]
			ptr, n, bad := w.ptr, w.count, 0
			for range ops {
				old, err := amo.CompareSwap(c, ptr, n, n+1, to)
				if err != nil {
					return err
				}
				if old != n {
					bad++
				}
				n++
			}
			w.count, w.bad = n, w.bad+bad
			return nil
		}, func(ops int) error {
			w := ws[1].floor
			n := atomic.LoadUint64(w)
			for range ops {
				if atomic.CompareAndSwapUint64(w, n, n+1) {
					n++
				}
			}
			return nil
		}),
		op("swap", func(ops int) error {
			w := ws[2]
			ptr, n, bad := w.ptr, w.count, 0
			for range ops {
				old, err := amo.Swap(c, ptr, n+1, to)
				if err != nil {
					return err
				}
				if old != n {
					bad++
				}
				n++
			}
			w.count, w.bad = n, w.bad+bad
			return nil
		}, func(ops int) error {
			w := ws[2].floor
			n := uint64(0)
			for range ops {
				n = 1 + atomic.SwapUint64(w, n)
			}
			return nil
		}),
		op("fetch", func(ops int) error {
			w := ws[3]
			ptr, n, bad := w.ptr, w.count, 0
			for range ops {
				old, err := amo.Fetch(c, ptr, to)
				if err != nil {
					return err
				}
				if old != n {
					bad++
				}
			}
			w.bad += bad
			return nil
		}, func(ops int) error {
			w := ws[3].floor
			n := uint64(0)
			for range ops {
				n += atomic.LoadUint64(w)
			}
			ws[3].plain = n
			return nil
		}),
		op("add", func(ops int) error {
			w := ws[4]
			ptr := w.ptr
			for range ops {
				if err := amo.Add(c, ptr, 1, to); err != nil {
					return err
				}
			}
			w.count += uint64(ops)
			return nil
		}, func(ops int) error {
			w := ws[4].floor
			for range ops {
				atomic.AddUint64(w, 1)
			}
			return nil
		}),
	}
}

// checkWord compares the target's word with the number of operations, and says
// whether each old value was right.
func (e *env) checkWord(w *word) (bool, error) {
	if e.p.Rank() == 0 {
		if err := e.p.Quiet(e.ctx); err != nil {
			return false, err
		}
	}
	want, err := e.first0(w.count)
	if err != nil {
		return false, err
	}
	ok := w.bad == 0
	if e.p.Rank() == e.target() {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], atomic.LoadUint64(w.own))
		if e.cfg.corrupt != nil {
			e.cfg.corrupt(b[:])
		}
		ok = ok && binary.LittleEndian.Uint64(b[:]) == want
	}
	return ok, nil
}
