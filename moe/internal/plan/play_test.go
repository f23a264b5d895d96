package plan

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"goshmem/moe/oracle"
	"goshmem/moe/routing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A dispatch played through with plain memory: every function of the package in
// its place, the transport replaced by copy. What comes out is compared with the
// oracle.

type played struct {
	p  Params
	o  *Owners
	sz Sizes

	sent     []Sent
	matrix   Matrix
	place    []Placement
	rows     [][]byte
	scales   [][]byte
	records  [][]byte
	arrivals []Arrived
}

func play(t fataler, p Params, in oracle.Input) *played {
	t.Helper()
	w := &played{p: p, o: NewOwners(p.Ranks, p.Experts)}
	sz, ok := Measure(&p)
	if !ok {
		t.Fatalf("sizes overflow")
	}
	w.sz = sz
	w.sent = make([]Sent, p.Ranks)
	w.place = make([]Placement, p.Ranks)
	w.arrivals = make([]Arrived, p.Ranks)
	w.matrix.Reset(&p)
	for s := range p.Ranks {
		if f := Route(&p, w.o, in.Idx[s], in.Weights[s], &w.sent[s]); f != (Fault{}) {
			t.Fatalf("rank %d: %+v", s, f)
		}
		head := make([]byte, sz.HeadBytes)
		h := Head{Seq: 7, Call: CallDispatch, T: uint32(w.sent[s].T), Plan: 9}
		h.Encode(head)
		EncodeCounts(head, &w.sent[s])
		back, ok := DecodeHead(head)
		if !ok || back != h {
			t.Fatalf("head %+v became %+v", h, back)
		}
		if f := w.matrix.Decode(&p, w.o, s, back, head); f != (Fault{}) {
			t.Fatalf("counts of rank %d: %+v", s, f)
		}
	}
	for r := range p.Ranks {
		if f := Place(&p, w.o, &sz, &w.matrix, r, &w.place[r]); f != (Fault{}) {
			t.Fatalf("place %d: %+v", r, f)
		}
		w.rows = append(w.rows, make([]byte, w.place[r].Rows*p.RowBytes))
		w.scales = append(w.scales, make([]byte, w.place[r].Rows*p.ScaleBytes))
		w.records = append(w.records, make([]byte, w.place[r].Records*sz.RecordBytes))
	}
	for s := range p.Ranks {
		for d := range p.Ranks {
			for _, run := range Runs(&p, w.o, &w.sent[s], &w.place[s], d, nil) {
				put(w.rows[d], run, p.RowBytes, in.X[s])
				put(w.scales[d], run, p.ScaleBytes, in.Scales[s])
			}
			Records(&p, w.o, &w.sent[s], d, w.records[d][w.place[s].RecordBase[d]*sz.RecordBytes:])
		}
	}
	for r := range p.Ranks {
		if f := Unpack(&p, &w.place[r], w.records[r], &w.arrivals[r]); f != (Fault{}) {
			t.Fatalf("unpack %d: %+v", r, f)
		}
	}
	return w
}

func put(dst []byte, run Run, size int64, src []byte) {
	copy(dst[run.Row*size:(run.Row+run.N)*size], src[int64(run.Token)*size:])
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// received puts what a rank has into the oracle's words.

func (w *played) received(r int) oracle.Received {
	pl, a, p := &w.place[r], &w.arrivals[r], &w.p
	out := oracle.Received{PerExpert: ints(pl.Counts)}
	per := 1
	if p.ExpertMajor {
		out.PerSource = ints(pl.PairsBy)
		out.Offsets = ints(pl.Offsets)
	} else {
		per = p.TopK
		for s := range p.Ranks {
			out.PerSource = append(out.PerSource, int(pl.From[s+1]-pl.From[s]))
		}
	}
	for i := range int(pl.Rows) {
		row := oracle.Row{X: cut(w.rows[r], i, p.RowBytes), Scales: cut(w.scales[r], i, p.ScaleBytes), Source: int(a.Source[i]), Token: int(a.Token[i])}
		if p.ExpertMajor {
			row.K = int(a.Choice[i])
		}
		for _, l := range a.Local[i*per : (i+1)*per] {
			row.Local = append(row.Local, int(l))
		}
		row.Weights = a.Weight[i*per : (i+1)*per]
		out.Rows = append(out.Rows, row)
	}
	return out
}

func cut(b []byte, i int, size int64) []byte {
	if size == 0 {
		return nil
	}
	return b[int64(i)*size : int64(i+1)*size]
}

func ints(in []int64) []int {
	out := make([]int, len(in))
	for i, n := range in {
		out[i] = int(n)
	}
	return out
}

func TestDispatchMatchesOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, in := anyInput(t)
		w := play(t, p, in)
		for r := range p.Ranks {
			want := oracle.RankMajor(in, r)
			if p.ExpertMajor {
				want = oracle.ExpertMajor(in, r, int(p.Alignment))
				if p.ScaleBytes == 0 {
					for i := range want.Rows {
						want.Rows[i].Scales = nil
					}
				}
			}
			if diff := cmp.Diff(want, w.received(r)); diff != "" {
				t.Fatalf("rank %d (-want +have):\n%s", r, diff)
			}
		}
		w.checkReturns(t, in)
	})
}

// checkReturns plays the way back with rows that name themselves: each rank

// writes (s, t, k), or (d, s, t), where the placement says, and the source must

// find them all there, each once.

func (w *played) checkReturns(t fataler, in oracle.Input) {
	p := &w.p
	back := make([][][3]int, p.Ranks)
	for s := range back {
		back[s] = make([][3]int, w.place[s].HomeRank[p.Ranks])
		for i := range back[s] {
			back[s][i] = [3]int{-1}
		}
	}
	for d := range p.Ranks {
		pl, a := &w.place[d], &w.arrivals[d]
		n := append([]int64(nil), pl.ReturnPair...)
		for s := range p.Ranks {
			at := pl.ReturnBase[s]
			for i := pl.From[s]; i < pl.From[s+1]; i++ {
				if p.AtExpert {
					back[s][at] = [3]int{d, s, int(w.token(d, i))}
					at++
					continue
				}
				for pair := a.PairStart[i]; pair < a.PairStart[i+1]; pair++ {
					if !p.ExpertMajor {
						k := nthValid(a.Local[int(i)*p.TopK:int(i+1)*p.TopK], int(pair-a.PairStart[i]))
						back[s][at] = [3]int{s, int(a.Token[i]), k}
						at++
						continue
					}
					row := a.PairRow[pair]
					slot := &n[s*len(pl.Counts)+int(a.Local[row])]
					back[s][*slot] = [3]int{s, int(a.Token[row]), int(a.Choice[row])}
					*slot++
				}
			}
		}
	}
	for s := range p.Ranks {
		var h Homing
		h.Start(p, w.o, &w.place[s])
		found := 0
		for tok := range w.sent[s].T {
			choices := in.Idx[s][tok*p.TopK : (tok+1)*p.TopK]
			if p.AtExpert {
				ranks := w.o.RanksOf(choices, nil)
				if !slices.IsSorted(ranks) {
					t.Fatalf("ranks %v", ranks)
				}
				for _, r := range ranks {
					if have := back[s][h.Share(r)]; have != [3]int{int(r), s, tok} {
						t.Fatalf("source %d token %d: share of rank %d is %v", s, tok, r, have)
					}
					found++
				}
				continue
			}
			for k, e := range choices {
				if e < 0 {
					continue
				}
				if have := back[s][h.Choice(e)]; have != [3]int{s, tok, k} {
					t.Fatalf("source %d token %d k %d: result of %v", s, tok, k, have)
				}
				found++
			}
		}
		if found != len(back[s]) {
			t.Fatalf("source %d: %d results, %d rows", s, found, len(back[s]))
		}
	}
}

func (w *played) token(d int, record int64) uint32 {
	return binary.LittleEndian.Uint32(w.records[d][record*w.sz.RecordBytes:])
}

func nthValid(locals []int32, n int) int {
	for k, l := range locals {
		if l >= 0 {
			if n == 0 {
				return k
			}
			n--
		}
	}
	return -1
}

func anyInput(t *rapid.T) (Params, oracle.Input) {
	p := Params{
		Ranks:        rapid.IntRange(1, 6).Draw(t, "ranks"),
		Experts:      rapid.IntRange(1, 20).Draw(t, "experts"),
		RowBytes:     rapid.Int64Range(1, 9).Draw(t, "row"),
		ScaleBytes:   rapid.SampledFrom([]int64{0, 3}).Draw(t, "scales"),
		Hidden:       4,
		YBytes:       2,
		PartialBytes: 2,
		ExpertMajor:  rapid.Bool().Draw(t, "expert-major"),
		AtExpert:     rapid.Bool().Draw(t, "at expert"),
		Alignment:    rapid.SampledFrom([]int64{1, 2, 16}).Draw(t, "alignment"),
		Slots:        1,
	}
	p.TopK = rapid.IntRange(1, p.Experts).Draw(t, "topk")
	spec := routing.Spec{
		Kind:     rapid.SampledFrom([]routing.Kind{routing.Uniform, routing.Zipf, routing.OneRank, routing.OneExpert}).Draw(t, "kind"),
		Experts:  p.Experts,
		TopK:     p.TopK,
		Ranks:    p.Ranks,
		Exponent: 1,
		Seed:     rapid.Uint64().Draw(t, "seed"),
		Holes:    rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "holes"),
		Blank:    rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(t, "blank"),
	}
	spec.Target = rapid.IntRange(0, min(p.Ranks, p.Experts)-1).Draw(t, "target")
	counts, err := routing.Ragged(spec.Seed, p.Ranks, 12, 0.2)
	if err != nil {
		t.Fatal(err)
	}
	return p.with(t, spec, counts)
}

// with fills MaxTokens and makes the input of all ranks.

func (p Params) with(t fataler, spec routing.Spec, counts []int) (Params, oracle.Input) {
	in := oracle.Input{Ranks: p.Ranks, Experts: p.Experts, TopK: p.TopK, RowBytes: int(p.RowBytes), ScaleBytes: int(p.ScaleBytes)}
	rng := rand.New(rand.NewPCG(spec.Seed, 1))
	for s, n := range counts {
		p.MaxTokens = max(p.MaxTokens, int64(n))
		b, err := spec.Batch(s, n)
		if err != nil {
			t.Fatalf("%v", err)
		}
		in.Idx = append(in.Idx, b.Idx)
		in.Weights = append(in.Weights, b.Weights)
		in.X = append(in.X, noise(rng, n*int(p.RowBytes)))
		in.Scales = append(in.Scales, noise(rng, n*int(p.ScaleBytes)))
	}
	return p, in
}

func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func small() Params {
	return Params{Ranks: 2, Experts: 4, TopK: 2, MaxTokens: 3, RowBytes: 8, Hidden: 4, YBytes: 2, PartialBytes: 2, Alignment: 1, Slots: 1}
}

// The input is copied: what the caller does to it later changes nothing.

// Counts that contradict each other never become positions.

// Far over 4 GiB sizes are exact, and beyond 2^63 they are refused.

// Reusing the structures for other inputs leaves nothing of earlier ones.
