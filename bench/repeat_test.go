package bench

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
)

func sample(p50, before, after float64) Result {
	return Result{Bench: "put", Metric: "latency", Path: "direct", PEs: 2, Size: 8, Unit: unitNS, P50: p50, Floor: 2,
		CalibBefore: before, CalibAfter: after, Flipped: after > flip*before, Verified: true}
}

// Samples that the machine changed under are left out, and the others compared
// within one placement.
func TestSteady(t *testing.T) {
	near, far, flipped := sample(7, 40, 41), sample(9, 210, 212), sample(20, 40, 212)
	slow, rate, slowRate := near, near, near
	slow.Floor = 1.3 * near.Floor
	rate.Unit, rate.Floor, slowRate.Unit, slowRate.Floor = unitMs, 300, unitMs, 200
	for _, tc := range []struct {
		all  []Result
		kept int
		far  bool
	}{
		{nil, 0, false},
		{[]Result{near, near, flipped}, 2, false},
		{[]Result{near, far}, 1, false},
		{[]Result{slow, near, slow}, 1, false},
		{[]Result{rate, slowRate, rate}, 2, false},
		{[]Result{near, far, far}, 2, true},
		{[]Result{flipped, flipped}, 0, false},
	} {
		if keep, isFar := steady(tc.all); len(keep) != tc.kept || isFar != tc.far {
			t.Errorf("%v: kept %d, far %v", tc.all, len(keep), isFar)
		}
	}
	for _, tc := range []struct {
		v               []float64
		median, percent float64
	}{{nil, 0, 0}, {[]float64{100}, 100, 0}, {[]float64{110, 80, 100}, 100, 20}, {[]float64{100, 130, 90}, 100, 30}} {
		if m, p := around(tc.v); m != tc.median || p != tc.percent {
			t.Errorf("%v: %v +- %v %%", tc.v, m, p)
		}
	}
}

// A program is started again for every figure that the machine changed under, but
// not for ever.
func TestRepeat(t *testing.T) {
	for _, tc := range []struct {
		name   string
		runs   []Result // in turn, the last one again and again
		starts int
		says   string
	}{
		{"quiet", []Result{sample(7, 40, 41), sample(7.1, 40, 41), sample(7.2, 41, 40)}, 3, "1 of 1 figures repeat"},
		{"one flipped", []Result{sample(7, 40, 41), sample(30, 40, 212), sample(7, 41, 40)}, 4, "1 of 1 figures repeat"},
		{"never still", []Result{sample(7, 40, 212)}, 6, "DIFFER"},
		{"differ", []Result{sample(7, 40, 41), sample(9, 40, 41), sample(7, 41, 40)}, 3, "0 of 1 figures repeat"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			starts := 0
			launch := func(_ context.Context, j Job) error {
				r := tc.runs[min(starts, len(tc.runs)-1)]
				starts++
				return r.WriteJSON(j.Stdout)
			}
			var out bytes.Buffer
			if err := Main(bounded(t), []string{"put", "-repeat", "3"}, &out, io.Discard, launch); err != nil {
				t.Fatal(err)
			}
			if starts != tc.starts || !strings.Contains(out.String(), tc.says) {
				t.Errorf("%d starts, printed\n%s", starts, &out)
			}
		})
	}
}

// Programs whose proxy needs a processor beside its PE's are not bound to one.
func TestBinding(t *testing.T) {
	for args, want := range map[string]bool{"put": true, "overlap": false, "overlap -bind core": true, "put -bind none": false} {
		launch := func(_ context.Context, j Job) error {
			if j.Bind != want {
				t.Errorf("%s: bound %v", args, j.Bind)
			}
			return sample(7, 40, 40).WriteJSON(j.Stdout)
		}
		if err := Main(bounded(t), strings.Fields(args), io.Discard, io.Discard, launch); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}
