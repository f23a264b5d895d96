// Moe is the main job: one mixture-of-experts layer between PEs. Every PE
// dispatches its tokens to the PEs that hold their experts, stand-in experts
// work on the rows, and combine brings the weighted sums back. The routing is
// what a trained model chose. Every byte of both is compared with the oracle.
//
//	goshmem run -n 4 moe        # four processes
//	moe -n 4                    # four goroutines
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"goshmem/coll"
	"goshmem/moe"
	"goshmem/moe/oracle"
	"goshmem/moe/routing"
	"goshmem/moe/routing/traces"
	"goshmem/pe"
)

// job is what is run, the same on every PE.
type job struct {
	trace          string
	layer          int
	tokens, hidden int
	iters          int
}

func main() {
	var j job
	n := flag.Int("n", 0, "PEs as goroutines; 0: one PE of the launcher's world")
	flag.StringVar(&j.trace, "trace", "e256k8", "routing trace")
	flag.IntVar(&j.layer, "layer", 0, "layer of the trace")
	flag.IntVar(&j.tokens, "tokens", 1024, "tokens a PE")
	flag.IntVar(&j.hidden, "hidden", 7168, "elements of a token's vector, bf16")
	flag.IntVar(&j.iters, "iters", 20, "timed rounds")
	heap := flag.Int64("heap", 8<<30, "bytes of each PE's heap; over RDMA all of it is pinned")
	flag.Parse()
	// Sparse: pages of the heap are taken when they are touched, so that it can
	// be as large as any routing needs.
	cfg := pe.Config{Size: *n, HeapSize: *heap, Sparse: true}
	ctx := context.Background()
	if err := pe.Run(ctx, cfg, func(p *pe.PE) error { return j.run(ctx, p) }); err != nil {
		fmt.Fprintln(os.Stderr, "moe:", err)
		os.Exit(1)
	}
}

func (j *job) run(ctx context.Context, p *pe.PE) error {
	tr, err := traces.Open(j.trace)
	if err != nil {
		return err
	}
	cfg := moe.Config{
		Experts: tr.Experts, TopK: tr.TopK, Hidden: j.hidden, MaxTokens: j.tokens,
		DType: moe.BF16, Output: moe.BF16, Layout: moe.RankMajor, Combine: moe.WeightsAtSource,
	}
	e, err := moe.New(ctx, p.Team(), cfg)
	if err != nil {
		return err
	}
	in, err := j.input(tr, p.Size())
	if err != nil {
		return err
	}
	me := p.Rank()
	l := &layer{
		job: j, p: p, e: e, in: in,
		x: in.X[me], idx: in.Idx[me], w: in.Weights[me],
		out: make([]byte, j.tokens*j.hidden*2),
	}
	// Once with every byte checked, then timed, then checked again: buffers are
	// used many times in between.
	if err := l.once(ctx); err != nil {
		return err
	}
	if err := l.verify(); err != nil {
		return err
	}
	times, err := l.measure(ctx)
	if err != nil {
		return err
	}
	clear(l.out)
	if err := l.once(ctx); err != nil {
		return err
	}
	if err := l.verify(); err != nil {
		return err
	}
	if err := l.report(ctx, times); err != nil {
		return err
	}
	return e.Close(ctx)
}

// input is what all PEs dispatch: every PE makes all of it, for the oracle.
func (j *job) input(tr *routing.Trace, ranks int) (oracle.Input, error) {
	in := oracle.Input{Ranks: ranks, Experts: tr.Experts, TopK: tr.TopK, RowBytes: 2 * j.hidden}
	for r := range ranks {
		b, err := tr.Batch(j.layer, r, j.tokens)
		if err != nil {
			return in, err
		}
		in.X = append(in.X, vectors(r, j.tokens*j.hidden))
		in.Scales = append(in.Scales, nil)
		in.Idx = append(in.Idx, b.Idx)
		in.Weights = append(in.Weights, b.Weights)
	}
	return in, nil
}

// layer is one PE's part of the layer.
type layer struct {
	*job
	p   *pe.PE
	e   *moe.Engine
	in  oracle.Input
	x   []byte
	idx []int32
	w   []float32

	d       *moe.Dispatched
	y, out  []byte
	traffic [2]moe.Traffic // of dispatch and combine
}

// once is one layer: dispatch, experts, combine.
func (l *layer) once(ctx context.Context) error {
	if err := l.dispatch(ctx); err != nil {
		return err
	}
	l.experts()
	return l.combine(ctx)
}

func (l *layer) dispatch(ctx context.Context) (err error) {
	l.d, err = l.e.Dispatch(ctx, l.x, nil, l.idx, l.w)
	if err == nil {
		l.traffic[0] = l.d.Traffic()
	}
	return err
}

func (l *layer) combine(ctx context.Context) (err error) {
	l.traffic[1], err = l.e.Combine(ctx, l.d, l.y, nil, l.out)
	return err
}

// experts stands in for the experts' work: row i's output for local expert n is
// the row times a factor that is the expert's own.
func (l *layer) experts() {
	first, _ := l.e.LocalExperts(l.p.Rank())
	row := 2 * l.hidden
	if need := int(l.d.OutputRows) * row; cap(l.y) < need {
		l.y = make([]byte, need)
	} else {
		l.y = l.y[:need]
	}
	at := 0
	for i := range l.d.Len() {
		x := l.d.Rows[i*row : (i+1)*row]
		for _, n := range l.d.Local[i*l.in.TopK : (i+1)*l.in.TopK] {
			if n < 0 {
				continue
			}
			scale(l.y[at:at+row], x, factor(first+int(n)))
			at += row
		}
	}
}

// span is when one PE began and ended something, by the host's clock (ns).
type span struct{ Begin, End int64 }

// timing is the rounds of one PE.
type timing struct{ dispatch, combine, copied []span }

// measure times rounds that all PEs begin together.
func (l *layer) measure(ctx context.Context) (timing, error) {
	var t timing
	timed := func(into *[]span, f func() error) error {
		if err := coll.Barrier(ctx, l.p.Team()); err != nil {
			return err
		}
		begin := time.Now().UnixNano()
		if err := f(); err != nil {
			return err
		}
		*into = append(*into, span{begin, time.Now().UnixNano()})
		return nil
	}
	for range l.iters {
		if err := timed(&t.dispatch, func() error { return l.dispatch(ctx) }); err != nil {
			return t, err
		}
		if err := timed(&t.combine, func() error { return l.combine(ctx) }); err != nil {
			return t, err
		}
		// What the machine can do: every PE copies its vectors once, at the same time.
		if err := timed(&t.copied, func() error { copy(l.out, l.x); return nil }); err != nil {
			return t, err
		}
	}
	return t, nil
}
