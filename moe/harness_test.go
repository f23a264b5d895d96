package moe_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"goshmem/internal/fabric"
	"goshmem/moe"
	"goshmem/moe/oracle"
	"goshmem/moe/routing"
	"goshmem/pe"
)

// lane is a way for operations to reach a peer; every suite runs on each.
type lane struct {
	name string
	path string
	ring int
	set  func(cfg *pe.Config) // what else a world gets; nil: nothing
}

func lanes() []lane {
	if path := os.Getenv("GOSHMEM_TEST_NET"); path != "" {
		return []lane{{path, path, 0, nil}}
	}
	return []lane{
		{"auto", "auto", 0, nil},
		{"proxy", "proxy", 0, nil},
		{"proxy-ring-1", "proxy", 1, nil},
		{"fabric", "auto", 0, overFabric},
		{"2-nodes", "auto", 0, dealt(2)},
		{"3-nodes-ring-1", "auto", 1, dealt(3)},
		{"tcp", "tcp", 0, nil},
	}
}

// overFabric makes every rank a node; what goes between them is delayed,
// reordered between lanes, lost and sent again, and in many pieces.
func overFabric(cfg *pe.Config) {
	f, err := fabric.New(fabric.Config{
		Seed: 5, MaxMessage: 1000, Window: 8, Connect: 3, Handshake: true, Delay: 20, Skew: 10,
		Stall: 0.02, StallFor: 100, Loss: 0.05, Retry: 20, Partial: true,
	})
	if err != nil {
		panic(err)
	}
	cfg.Nodes, cfg.Remote = cfg.Size, f.Factory()
}

// dealt deals ranks to nodes, with a simulated link between them.
func dealt(nodes int) func(*pe.Config) {
	return func(cfg *pe.Config) { cfg.Nodes = min(nodes, cfg.Size) }
}

// each runs a test on every lane.
func each(t *testing.T, f func(t *testing.T, l lane)) {
	for _, l := range lanes() {
		t.Run(l.name, func(t *testing.T) { f(t, l) })
	}
}

// world runs fn on every PE of a world that has room for engines of cfg.
func world(t *testing.T, l lane, ranks int, heap int64, fn func(ctx context.Context, p *pe.PE) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cfg := pe.Config{Size: ranks, HeapSize: heap + 1<<20, Sparse: true, Path: l.path, RingCapacity: l.ring}
	if l.set != nil {
		l.set(&cfg)
	}
	if err := pe.Run(ctx, cfg, func(p *pe.PE) error { return fn(ctx, p) }); err != nil {
		t.Fatal(err)
	}
}

// room is the heap that an engine needs.
func room(t testing.TB, cfg moe.Config, ranks int) int64 {
	t.Helper()
	n, err := cfg.Bytes(ranks)
	if err != nil {
		t.Fatal(err)
	}
	return n + 4096
}

// engine runs fn on every rank with an engine of cfg.
func engine(t *testing.T, l lane, ranks int, cfg moe.Config, fn func(ctx context.Context, e *moe.Engine) error) {
	t.Helper()
	world(t, l, ranks, room(t, cfg, ranks), func(ctx context.Context, p *pe.PE) error {
		e, err := moe.New(ctx, p.Team(), cfg)
		if err != nil {
			return err
		}
		if err := fn(ctx, e); err != nil {
			return fmt.Errorf("rank %d: %w", p.Rank(), err)
		}
		return e.Close(ctx)
	})
}

// inputs draws the input of all ranks.
func inputs(t testing.TB, cfg moe.Config, spec routing.Spec, tokens ...int) oracle.Input {
	t.Helper()
	spec.Experts, spec.TopK, spec.Ranks = cfg.Experts, cfg.TopK, len(tokens)
	var all []routing.Batch
	for s, n := range tokens {
		b, err := spec.Batch(s, n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return withRows(cfg, spec.Seed, all)
}

// without is in with every choice of one rank's tokens replaced by -1.
func without(in oracle.Input, rank int) oracle.Input {
	for i := range in.Idx[rank] {
		in.Idx[rank][i] = -1
	}
	return in
}

// withRows adds random rows and scales to routings.
func withRows(cfg moe.Config, seed uint64, all []routing.Batch) oracle.Input {
	in := oracle.Input{
		Ranks: len(all), Experts: cfg.Experts, TopK: cfg.TopK,
		RowBytes: rowBytes(cfg), ScaleBytes: int(cfg.ScaleBytes),
	}
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 1})
	for _, b := range all {
		in.Idx = append(in.Idx, b.Idx)
		in.Weights = append(in.Weights, b.Weights)
		x := make([]byte, b.Tokens()*in.RowBytes)
		_, _ = rng.Read(x)
		sc := make([]byte, b.Tokens()*in.ScaleBytes)
		_, _ = rng.Read(sc)
		in.X = append(in.X, x)
		in.Scales = append(in.Scales, sc)
	}
	return in
}

func rowBytes(cfg moe.Config) int {
	switch cfg.DType {
	case moe.BF16:
		return 2 * cfg.Hidden
	case moe.FP32:
		return 4 * cfg.Hidden
	}
	return int(cfg.RowBytes)
}

// expert is what the stand-in expert number e makes of token t of rank s: values
// of both signs over some orders of magnitude, so that every rounding shows. seed
// tells several combines apart.
func expert(cfg moe.Config, seed, e, s, t int) []float32 {
	out := make([]float32, cfg.Hidden)
	x := uint64(seed)<<48 ^ uint64(e)<<36 ^ uint64(s)<<24 ^ uint64(t) ^ 0x9e3779b97f4a7c15
	for h := range out {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		exp := 120 + uint32(x>>40)%12
		bits := uint32(x)&0x807fffff | exp<<23
		if cfg.Output == moe.BF16 {
			bits &= 0xffff0000
		}
		out[h] = math.Float32frombits(bits)
	}
	return out
}

// dealer is an engine, of either kind.
type dealer interface {
	LocalExperts(rank int) (first, end int)
	Team() *pe.Team
}

// outputs makes the y of a rank from what it received.
func outputs(cfg moe.Config, e dealer, d *moe.Dispatched, seed int) []byte {
	size := 2
	if cfg.Output == moe.FP32 {
		size = 4
	}
	first, _ := e.LocalExperts(e.Team().Rank())
	y := make([]byte, d.OutputRows*int64(cfg.Hidden*size))
	at := 0
	row := func(local int32, source, token int32) {
		for _, v := range expert(cfg, seed, first+int(local), int(source), int(token)) {
			if size == 2 {
				binary.LittleEndian.PutUint16(y[at:], uint16(math.Float32bits(v)>>16))
			} else {
				binary.LittleEndian.PutUint32(y[at:], math.Float32bits(v))
			}
			at += size
		}
	}
	for i := range d.Len() {
		if cfg.Layout == moe.ExpertMajor {
			if d.Source[i] < 0 {
				for range cfg.Hidden * size {
					y[at] = 0xee // never looked at
					at++
				}
				continue
			}
			row(d.Local[i], d.Source[i], d.Token[i])
			continue
		}
		for _, l := range d.Local[i*cfg.TopK : (i+1)*cfg.TopK] {
			if l >= 0 {
				row(l, d.Source[i], d.Token[i])
			}
		}
	}
	return y
}

// wantCombine is the oracle's answer for a rank, as bytes.
func wantCombine(cfg moe.Config, in oracle.Input, s, seed int, bias []float32) []byte {
	y := func(s, t, k int) []float32 {
		return expert(cfg, seed, int(in.Idx[s][t*in.TopK+k]), s, t)
	}
	var rows [][]uint16
	if cfg.Combine == moe.WeightsAtExpert {
		rows = oracle.CombineAtExpert(in, s, cfg.Hidden, y, bias, cfg.Share == moe.BF16)
	} else {
		rows = oracle.CombineAtSource(in, s, cfg.Hidden, y, bias)
	}
	out := make([]byte, 0, len(rows)*cfg.Hidden*2)
	for _, r := range rows {
		for _, v := range r {
			out = binary.LittleEndian.AppendUint16(out, v)
		}
	}
	return out
}

// sameDispatch compares everything that a rank received with the oracle.
func sameDispatch(cfg moe.Config, in oracle.Input, d *moe.Dispatched, rank int) error {
	want := oracle.RankMajor(in, rank)
	per := cfg.TopK
	if cfg.Layout == moe.ExpertMajor {
		want = oracle.ExpertMajor(in, rank, max(cfg.Alignment, 1))
		per = 1
	}
	if d.Len() != len(want.Rows) {
		return fmt.Errorf("%d rows, want %d", d.Len(), len(want.Rows))
	}
	if len(d.Rows) != d.Len()*in.RowBytes || len(d.Scales) != d.Len()*in.ScaleBytes || len(d.Local) != d.Len()*per || len(d.Weights) != d.Len()*per {
		return fmt.Errorf("%d B of rows, %d of scales, %d experts, %d weights for %d rows", len(d.Rows), len(d.Scales), len(d.Local), len(d.Weights), d.Len())
	}
	for i, w := range want.Rows {
		if !bytes.Equal(d.Rows[i*in.RowBytes:(i+1)*in.RowBytes], w.X) {
			return fmt.Errorf("row %d is not token %d of rank %d", i, w.Token, w.Source)
		}
		if !bytes.Equal(d.Scales[i*in.ScaleBytes:(i+1)*in.ScaleBytes], w.Scales) {
			return fmt.Errorf("scales of row %d are not those of token %d of rank %d", i, w.Token, w.Source)
		}
		if int(d.Source[i]) != w.Source || int(d.Token[i]) != w.Token {
			return fmt.Errorf("row %d: from (%d, %d), want (%d, %d)", i, d.Source[i], d.Token[i], w.Source, w.Token)
		}
		if cfg.Layout == moe.ExpertMajor && int(d.Choice[i]) != w.K {
			return fmt.Errorf("row %d: choice %d, want %d", i, d.Choice[i], w.K)
		}
		for k, l := range w.Local {
			if int(d.Local[i*per+k]) != l || math.Float32bits(d.Weights[i*per+k]) != math.Float32bits(w.Weights[k]) {
				return fmt.Errorf("row %d, k %d: expert %d weight %g, want %d, %g", i, k, d.Local[i*per+k], d.Weights[i*per+k], l, w.Weights[k])
			}
		}
	}
	if !equal(d.Counts, want.PerExpert) || !equal(d.FromCounts, want.PerSource) {
		return fmt.Errorf("counts %v from %v, want %v from %v", d.Counts, d.FromCounts, want.PerExpert, want.PerSource)
	}
	if cfg.Layout == moe.ExpertMajor && !equal(d.Offsets, want.Offsets) {
		return fmt.Errorf("offsets %v, want %v", d.Offsets, want.Offsets)
	}
	if len(d.Counts)+1 != len(d.Offsets) {
		return fmt.Errorf("%d counts, %d offsets", len(d.Counts), len(d.Offsets))
	}
	return nil
}

func equal(have []int64, want []int) bool {
	return slices.EqualFunc(have, want, func(a int64, b int) bool { return a == int64(b) })
}

// sameBytes compares a combine's result with the oracle's.
func sameBytes(have, want []byte, hidden int) error {
	if bytes.Equal(have, want) {
		return nil
	}
	if len(have) != len(want) {
		return fmt.Errorf("%d B combined, want %d", len(have), len(want))
	}
	i := 0
	for have[i] == want[i] {
		i++
	}
	i /= 2
	return fmt.Errorf("token %d, element %d: %x, want %x", i/hidden, i%hidden, have[2*i:2*i+2], want[2*i:2*i+2])
}

func fill(b []byte) []byte {
	for i := range b {
		b[i] = 0xa5
	}
	return b
}

// roundTrip dispatches and combines once on a rank and compares all of it with
// the oracle.
func roundTrip(ctx context.Context, cfg moe.Config, e *moe.Engine, in oracle.Input, bias []float32) error {
	rank := e.Team().Rank()
	d, err := e.Dispatch(ctx, in.X[rank], in.Scales[rank], in.Idx[rank], in.Weights[rank])
	if err != nil {
		return err
	}
	if err := sameDispatch(cfg, in, d, rank); err != nil {
		return err
	}
	return combineAndCompare(ctx, cfg, e, in, d, bias, 1)
}

func combineAndCompare(ctx context.Context, cfg moe.Config, e *moe.Engine, in oracle.Input, d *moe.Dispatched, bias []float32, seed int) error {
	rank := e.Team().Rank()
	out := fill(make([]byte, in.Tokens(rank)*cfg.Hidden*2))
	if _, err := e.Combine(ctx, d, outputs(cfg, e, d, seed), bias, out); err != nil {
		return err
	}
	return sameBytes(out, wantCombine(cfg, in, rank, seed, bias), cfg.Hidden)
}

// ramp is a bias that differs by element.
func ramp(hidden int) []float32 {
	b := make([]float32, hidden)
	for h := range b {
		b[h] = float32(h%7) - 3.25
	}
	return b
}
