// Racy runs one scenario of two PEs, by name. Those whose names begin with
// "bad" read or write symmetric memory without waiting for who uses it; the
// others do wait. Built with -race it is a test of what the detector sees.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"goshmem/amo"
	"goshmem/coll"
	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// world is what a scenario gets: rank 0 sends to rank 1.
type world struct {
	ctx   context.Context
	p     *pe.PE
	c     *pe.Context
	data  heap.Array[int64]
	small heap.Array[int16]
	word  heap.Array[uint64]
	sigs  heap.Signals
}

var sink int64

func (w *world) put() error { return rma.Put(w.c, w.data, []int64{1, 2, 3}, 1) }

func (w *world) read() error {
	sink += w.data.Local()[1]
	return nil
}

// late gives the other side time to have done its part without telling so.
func late() { time.Sleep(50 * time.Millisecond) }

// scenarios are the bodies of PE 0 and PE 1.
var scenarios = map[string][2]func(w *world) error{
	"bad-no-wait": {
		func(w *world) error { return w.put() },
		func(w *world) error { late(); return w.read() },
	},
	"bad-before-wait": {
		func(w *world) error {
			return rma.PutSignal(w.c, w.data, []int64{1, 2, 3}, w.sigs.At(0), rma.SignalSet, 1, 1)
		},
		func(w *world) error {
			if err := w.read(); err != nil {
				return err
			}
			return rma.WaitSignal(w.ctx, w.c, w.sigs.At(0), rma.EQ, 1)
		},
	},
	"bad-early-signal": { // it was sent before the payload
		func(w *world) error {
			if err := rma.Signal(w.c, w.sigs.At(1), rma.SignalSet, 1, 1); err != nil {
				return err
			}
			return w.put()
		},
		func(w *world) error {
			if err := rma.WaitSignal(w.ctx, w.c, w.sigs.At(1), rma.EQ, 1); err != nil {
				return err
			}
			late()
			return w.read()
		},
	},
	"bad-source-in-use": { // a large source, changed before Quiet
		func(w *world) error {
			src := make([]byte, 4<<20)
			if _, err := rma.PutMemNBI(w.c, w.data.Ref(), src[:1<<20], 1); err != nil {
				return err
			}
			late() // the proxy takes it up
			src[1000] = 1
			return rma.Quiet(w.ctx, w.c)
		},
		func(*world) error { return nil },
	},
	"bad-get-while-written": {
		func(w *world) error { late(); return rma.Get(w.c, make([]int64, 3), w.data, 1) },
		func(w *world) error { w.data.Local()[2] = 5; return nil },
	},
	"good-signal": {
		func(w *world) error {
			return rma.PutSignal(w.c, w.data, []int64{1, 2, 3}, w.sigs.At(0), rma.SignalSet, 1, 1)
		},
		func(w *world) error {
			if err := rma.WaitSignal(w.ctx, w.c, w.sigs.At(0), rma.EQ, 1); err != nil {
				return err
			}
			return w.read()
		},
	},
	"good-signal-after": { // an earlier put, covered by a later signal
		func(w *world) error {
			if err := w.put(); err != nil {
				return err
			}
			return rma.Signal(w.c, w.sigs.At(0), rma.SignalAdd, 1, 1)
		},
		func(w *world) error {
			for {
				ok, err := rma.TestSignal(w.c, w.sigs.At(0), rma.GE, 1)
				if err != nil {
					return err
				}
				if ok {
					return w.read()
				}
			}
		},
	},
	"good-notify": {
		func(w *world) error {
			if err := w.put(); err != nil {
				return err
			}
			return rma.Notify(w.c, 0, 1)
		},
		func(w *world) error {
			if err := rma.WaitSignals(w.ctx, w.c, 1); err != nil {
				return err
			}
			return w.read()
		},
	},
	"good-some": {
		func(w *world) error {
			return rma.PutSignal(w.c, w.data, []int64{1, 2, 3}, w.sigs.At(1), rma.SignalSet, 1, 1)
		},
		func(w *world) error {
			if _, err := rma.WaitSome(w.ctx, w.c, w.sigs, nil, nil, rma.EQ, 1); err != nil {
				return err
			}
			return w.read()
		},
	},
	"good-value": { // a word that its owner waits for
		func(w *world) error {
			if err := w.put(); err != nil {
				return err
			}
			return rma.PutValue(w.c, w.word.At(0), 1, 1)
		},
		func(w *world) error {
			if err := rma.WaitUntil(w.ctx, w.c, w.word.At(0), rma.EQ, 1); err != nil {
				return err
			}
			return w.read()
		},
	},
	"good-amo": {
		func(w *world) error {
			if err := w.put(); err != nil {
				return err
			}
			return amo.Add(w.c, w.word.At(0), 1, 1)
		},
		func(w *world) error {
			if err := rma.WaitUntil(w.ctx, w.c, w.word.At(0), rma.EQ, 1); err != nil {
				return err
			}
			return w.read()
		},
	},
	"good-fence": { // a plain put of a word, behind a fence
		func(w *world) error {
			if err := w.put(); err != nil {
				return err
			}
			if err := rma.Fence(w.c); err != nil {
				return err
			}
			return rma.Put(w.c, w.word, []uint64{1}, 1)
		},
		func(w *world) error {
			if err := rma.WaitUntil(w.ctx, w.c, w.word.At(0), rma.EQ, 1); err != nil {
				return err
			}
			return w.read()
		},
	},
	"good-plain-word": { // polled while a plain put of several words changes it
		func(w *world) error { late(); return rma.Put(w.c, w.word, []uint64{1, 2, 3}, 1) },
		func(w *world) error { return rma.WaitUntil(w.ctx, w.c, w.word.At(1), rma.EQ, 2) },
	},
	"good-values-meet": { // single-copy atomic: reading while it is written is allowed
		func(w *world) error {
			for i := range 500 {
				if err := rma.PutValue(w.c, w.small.At(3), int16(i), 1); err != nil {
					return err
				}
				if err := rma.PutValue(w.c, w.word.At(3), uint64(i), 1); err != nil {
					return err
				}
			}
			return nil
		},
		func(w *world) error {
			for range 500 {
				if _, err := rma.GetValue(w.c, w.small.At(3), 1); err != nil {
					return err
				}
				if _, err := rma.GetValue(w.c, w.word.At(3), 1); err != nil {
					return err
				}
			}
			return nil
		},
	},
	"good-barrier": {
		func(w *world) error {
			if err := w.put(); err != nil {
				return err
			}
			return coll.Barrier(w.ctx, w.p.Team())
		},
		func(w *world) error {
			if err := coll.Barrier(w.ctx, w.p.Team()); err != nil {
				return err
			}
			return w.read()
		},
	},
	"good-quiet": { // a large source, changed after Quiet
		func(w *world) error {
			src := make([]byte, 1<<20)
			if _, err := rma.PutMemNBI(w.c, w.data.Ref(), src, 1); err != nil {
				return err
			}
			if err := rma.Quiet(w.ctx, w.c); err != nil {
				return err
			}
			src[1000] = 1
			return nil
		},
		func(*world) error { return nil },
	},
	"good-ticket": { // a destination, read after its ticket
		func(w *world) error {
			dst := make([]byte, 1<<20)
			t, err := rma.GetMemNBI(w.c, dst, w.data.Ref(), 1)
			if err != nil {
				return err
			}
			if err := rma.Wait(w.ctx, w.c, t); err != nil {
				return err
			}
			sink += int64(dst[1000])
			return nil
		},
		func(*world) error { return nil },
	},
}

func main() {
	if len(os.Args) < 3 {
		names := []string{}
		for name := range scenarios {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Println(strings.Join(names, " "))
		return
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "racy:", err)
		os.Exit(1)
	}
}

func run(path, name string) error {
	bodies, ok := scenarios[name]
	if !ok {
		return fmt.Errorf("no scenario %q", name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cfg := pe.Config{Size: 2, Path: path, HeapSize: 4 << 20, RingCapacity: 4}
	return pe.Run(ctx, cfg, func(p *pe.PE) error {
		w := &world{ctx: ctx, p: p, c: p.Context()}
		var err error
		if w.data, err = pe.Calloc[int64](ctx, p, 256<<10); err != nil {
			return err
		}
		if w.small, err = pe.Calloc[int16](ctx, p, 8); err != nil {
			return err
		}
		if w.word, err = pe.Calloc[uint64](ctx, p, 8); err != nil {
			return err
		}
		if w.sigs, err = p.AllocSignals(ctx, 2); err != nil {
			return err
		}
		if err := bodies[p.Rank()](w); err != nil {
			return err
		}
		if strings.HasPrefix(name, "bad") {
			// What is done now may order by accident what was not ordered: the
			// runtime's own words are shared by the PEs of a process.
			late()
			late()
		}
		return coll.Barrier(ctx, p.Team())
	})
}
