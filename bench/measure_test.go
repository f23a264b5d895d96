package bench

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"goshmem/internal/raceflag"
	"goshmem/pe"
)

func TestQuantile(t *testing.T) {
	hundred := make(series, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, tc := range []struct {
		s    series
		q    float64
		want float64
	}{
		{nil, 0.5, 0},
		{series{7}, 0.99, 7},
		{series{3, 1, 2}, 0.5, 2},
		{series{4, 1, 3, 2}, 0.5, 2},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 1, 100},
		{hundred, 0, 1},
	} {
		if got := tc.s.quantile(tc.q); got != tc.want {
			t.Errorf("%v of %d values: %v, want %v", tc.q, len(tc.s), got, tc.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := series(rapid.SliceOfN(rapid.Float64Range(0, 1e9), 1, 50).Draw(t, "s"))
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		v, below := s.quantile(q), 0
		for _, x := range s {
			if x <= v {
				below++
			}
		}
		if !slices.Contains(s, v) || float64(below) < q*float64(len(s)) {
			t.Fatalf("%v of %v: %v", q, s, v)
		}
	})
}

func TestFigure(t *testing.T) {
	for _, tc := range []struct {
		unit  string
		bytes int64
		ns    float64
		want  float64
	}{
		{unitNS, 8, 12.5, 12.5},
		{unitGBs, 1 << 20, 1 << 15, 32},
		{unitMs, 8, 4, 250},
		{unitGBs, 8, 0, 0},
	} {
		if got := figure(tc.unit, tc.bytes, tc.ns); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
	// The bad end of a rate is its low one.
	r := Result{Unit: unitMs}
	r.fill(series{1, 1, 1, 10}, series{1}, 0)
	if r.P99 != 100 || r.P50 != 1000 || r.Floor != 1000 || r.Ratio() != 1 {
		t.Errorf("%+v", r)
	}
	if (Result{P50: 3}).Ratio() != 0 {
		t.Error("a ratio to no floor")
	}
}

func TestBetter(t *testing.T) {
	at := func(before, after float64) *taken { return &taken{before: before, after: after} }
	order := []*taken{at(40, 42), at(45, 45), at(210, 220), at(250, 240), at(50, 100), at(50, 240)}
	for i, a := range order {
		if !a.better(nil) {
			t.Errorf("%v: not better than nothing", a)
		}
		for _, b := range order[i+1:] {
			if !a.better(b) || b.better(a) {
				t.Errorf("%v against %v", a, b)
			}
		}
	}
}

func TestGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, maxOps).Draw(t, "most")
		n := rapid.IntRange(1, most).Draw(t, "n")
		want := time.Duration(rapid.Int64Range(1, 1e7).Draw(t, "want"))
		took := time.Duration(rapid.Int64Range(0, int64(want)-1).Draw(t, "took"))
		next := grow(n, took, want, most)
		if next < n || next > most || next > 10*n+1 || next == n && n < most {
			t.Fatalf("from %d to %d", n, next)
		}
	})
}

func TestPattern(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := make([]byte, rapid.IntRange(1, 100).Draw(t, "n"))
		seed := rapid.Uint64().Draw(t, "seed")
		pattern(b, seed)
		if !samePattern(b, seed) {
			t.Fatal("not its own pattern")
		}
		i := rapid.IntRange(0, len(b)-1).Draw(t, "i")
		b[i] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if samePattern(b, seed) {
			t.Fatal("a changed byte goes unseen")
		}
	})
	for n := range 10 {
		b := make([]byte, n)
		stamp(b, 5)
		if !stamped(b, 5) || n > 0 && stamped(b, 6) {
			t.Errorf("stamp of %d B", n)
		}
	}
}

func TestHistogram(t *testing.T) {
	h := histogram{counts: []uint64{0, 98, 1, 1}, buckets: []float64{0, 1e-6, 2e-6, 3e-6, math.Inf(1)}, total: 100}
	for q, want := range map[float64]float64{0.5: 2000, 0.98: 2000, 0.99: 3000, 1: 3000} {
		if got := h.quantile(q); math.Abs(got-want) > 1e-6 {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
	if m := h.mean(); m < 1500 || m > 1600 {
		t.Errorf("mean %v", m)
	}
	if (histogram{}).mean() != 0 || (histogram{}).quantile(0.5) != 0 {
		t.Error("figures of nothing")
	}
}

// Hot loops allocate nothing: neither the operation nor its floor.
func TestLoopsAllocateNothing(t *testing.T) {
	if raceflag.Enabled {
		t.Skip("race builds allocate")
	}
	ctx := bounded(t)
	check := func(name string, trials []trial) {
		for _, tr := range trials {
			for which, f := range map[string]func(int) error{"work": tr.work, "floor": tr.floor} {
				if n := testing.AllocsPerRun(5, func() {
					if err := f(100); err != nil {
						t.Error(err)
					}
				}); n > 0 {
					t.Errorf("%s %s of %d B: %s allocates %v objects in 100 operations", name, tr.metric, tr.size, which, n)
				}
			}
		}
	}
	err := pe.Run(ctx, pe.Config{Size: 1, HeapSize: 8 << 20}, func(p *pe.PE) error {
		e, err := newEnv(ctx, p, Config{Name: "put", PEs: 1, Sizes: []int64{8, 4096}}, nil)
		if err != nil {
			return err
		}
		o, err := newOneSided(ctx, e)
		if err != nil {
			return err
		}
		for _, size := range []int64{8, 4096} {
			// The floor of a bandwidth is one call into C.
			small := func(ts []trial) []trial {
				return slices.DeleteFunc(ts, func(t trial) bool { return t.unit == unitGBs })
			}
			check("put", small(o.putTrials(ctx, size)))
			check("get", small(o.getTrials(ctx, size)))
		}
		w, err := rawWord(p.Context(), o.dst, 0)
		if err != nil {
			return err
		}
		arr, err := pe.ArrayAt[uint64](p, o.dst, 16)
		if err != nil {
			return err
		}
		var ws []*word
		for i := range 5 {
			ws = append(ws, &word{ptr: arr.At(i), floor: w})
		}
		check("amo", amoTrials(p.Context(), 0, ws))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Retries stop when figures are steady, and a calibration is the PEs' own.
func TestCalibrate(t *testing.T) {
	ctx := bounded(t)
	for _, n := range []int{1, 2, 3} {
		err := pe.Run(ctx, pe.Config{Size: n, HeapSize: 1 << 20}, func(p *pe.PE) error {
			e, err := newEnv(ctx, p, Config{Name: "put", PEs: n}, nil)
			if err != nil {
				return err
			}
			for range 2 {
				ns, err := e.calibrate()
				if err != nil {
					return err
				}
				if (ns > 0) != (p.Rank() == 0 || n == 1) && p.Rank() != 1 {
					t.Errorf("rank %d of %d: %v ns", p.Rank(), n, ns)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A guess at the number of batches that was too low is made good; one that filled
// most of the time is left.
func TestMore(t *testing.T) {
	e := &env{cfg: Config{Time: time.Second}}
	for _, tc := range []struct {
		done int
		took time.Duration
		want int
	}{
		{10, 100 * time.Millisecond, 90},
		{10, 800 * time.Millisecond, 0},
		{10, 2 * time.Second, 0},
		{maxBatches, time.Millisecond, 0},
		{maxBatches - 5, time.Millisecond, 5},
	} {
		if got := e.more(tc.done, tc.took); got != tc.want {
			t.Errorf("%d done in %v: %d more, want %d", tc.done, tc.took, got, tc.want)
		}
	}
	e.cfg.Iters = 10
	if got := e.more(10, time.Millisecond); got != 0 {
		t.Errorf("%d more than wanted", got)
	}
}
