package bench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRunsCoverBars(t *testing.T) {
	for name, list := range lists() {
		for _, c := range list() {
			if _, err := c.complete(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if c.expected() <= 0 {
				t.Errorf("%s: %v takes no time", name, c)
			}
		}
	}
	for _, name := range programNames() {
		if !slices.ContainsFunc(runs(), func(c run) bool { return c.Name == name }) {
			t.Errorf("all leaves out %s", name)
		}
	}
	for _, b := range bars() {
		i := slices.IndexFunc(runs(), func(c run) bool {
			return c.Name == b.match.Bench && (c.PEs == 0 || b.match.PEs == 0 || c.PEs == b.match.PEs) &&
				(b.match.Size == 0 || c.Sizes == nil || slices.Contains(c.Sizes, b.match.Size))
		})
		if i < 0 {
			t.Errorf("nothing measures %s", b.figure)
		}
	}
}

func programNames() []string {
	names, _ := Names()
	return names
}

// What remains follows what was expected, and how the runs so far compare with it.
func TestRemains(t *testing.T) {
	list := []run{{fixed: 10 * time.Second}, {fixed: 20 * time.Second}, {fixed: 30 * time.Second}}
	for _, tc := range []struct {
		done        int
		since, want time.Duration
	}{
		{0, 0, 60 * time.Second},
		{1, 10 * time.Second, 50 * time.Second},
		{1, 40 * time.Second, 100 * time.Second}, // 60 s instead of 30 s, with a usual 20 s on top
		{2, 5 * time.Second, 15 * time.Second},
	} {
		if got := remains(list, tc.done, tc.since); got != tc.want {
			t.Errorf("%d done in %v: %v, want %v", tc.done, tc.since, got, tc.want)
		}
	}
	long := run{Config: Config{Time: time.Second}, fixed: time.Second, figures: 3}
	if long.expected() != 4*time.Second {
		t.Errorf("expected %v", long.expected())
	}
}

func TestJudge(t *testing.T) {
	r := Result{Bench: "put", Metric: "latency", Path: "direct", PEs: 2, Size: 8, Unit: unitNS, P50: 10, P99: 30, Floor: 8}
	for _, tc := range []struct {
		kind  barKind
		limit float64
		met   bool
		have  string
	}{
		{atMost, 10, true, "10.00 ns"},
		{atMost, 9.9, false, "10.00 ns"},
		{atLeast, 10, true, "10.00 ns"},
		{atLeast, 11, false, "10.00 ns"},
		{atMostFloors, 1.25, true, "1.25 x floor"},
		{atMostFloors, 1.2, false, "1.25 x floor"},
		{atLeastFloors, 1.25, true, "1.25 x floor"},
		{atLeastFloors, 1.3, false, "1.25 x floor"},
		{badEndAtMost, 30, true, "30.00 ns p99"},
		{badEndAtMost, 20, false, "30.00 ns p99"},
	} {
		have, want, met := bar{kind: tc.kind, limit: tc.limit}.judge(r)
		if met != tc.met || have != tc.have || want == "" {
			t.Errorf("%+v: %s, %s, %v", tc, have, want, met)
		}
	}
	for _, tc := range []struct {
		match Result
		is    bool
	}{
		{Result{Bench: "put", Metric: "latency"}, true},
		{Result{Bench: "put", Metric: "latency", Size: 8, PEs: 2, Path: "direct"}, true},
		{Result{Bench: "put", Metric: "latency", Size: 16}, false},
		{Result{Bench: "put", Metric: "latency", PEs: 8}, false},
		{Result{Bench: "put", Metric: "latency", Algo: "x"}, false},
		{Result{Bench: "get", Metric: "latency"}, false},
	} {
		if got := (bar{match: tc.match}).is(r); got != tc.is {
			t.Errorf("%+v: %v", tc.match, got)
		}
	}
}

// All prints figures and verdicts, goes on after a failure, and reports it.
func TestAll(t *testing.T) {
	failed := errors.New("no such luck")
	launch := func(_ context.Context, j Job) error {
		switch j.Args[0] {
		case "put":
			r := Result{Bench: "put", Metric: "latency", Path: "direct", Size: 8, PEs: 2, Unit: unitNS, P50: 7, Floor: 2, CalibBefore: 50, CalibAfter: 50, Verified: true}
			return r.WriteJSON(j.Stdout)
		case "amo":
			r := Result{Bench: "amo", Metric: "fetch-add", Path: "direct", Size: 8, PEs: 2, Unit: unitNS, P50: 70, Floor: 2, CalibBefore: 50, CalibAfter: 250, Flipped: true, Verified: true}
			return r.WriteJSON(j.Stdout)
		}
		return failed
	}
	var out bytes.Buffer
	err := runList(bounded(t), commandLine{Config: Config{Name: all}, Bind: bindAuto},
		[]run{{Config: Config{Name: "put"}}, {Config: Config{Name: "get"}}, {Config: Config{Name: "amo"}}}, &out, io.Discard, launch)
	if !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{
		"Put + Quiet, 8 B           <= 9 ns              7.00 ns              met\n",
		"FetchAdd                   <= 9 ns              70.00 ns             MISSED, flipped\n",
		"Get, 8 B                   -                    -                    not measured\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	emit := printTo(&out, false)
	for _, r := range []Result{
		{Bench: "put", Metric: "bandwidth", Path: "direct", Algo: "memcpy", PEs: 2, Size: 4096, Unit: unitGBs, P50: 100.25, P99: 99.5, Mean: 100, Floor: 80.2, CalibBefore: 44.6, CalibAfter: 45, Verified: true},
		{Bench: "moe", Metric: "dispatch", Path: "direct", PEs: 4, Size: 13499733, Unit: unitNS, P50: 21800104, P99: 3e7, Mean: 2.2e7, CalibBefore: 215, CalibAfter: 220},
		{Bench: "gc", Metric: "stopping", Unit: unitNS, P50: 5, CalibBefore: 50, CalibAfter: 90, Flipped: true, Verified: true},
	} {
		if err := emit(r); err != nil {
			t.Fatal(err)
		}
	}
	want := `bench         metric           path   algo              pes     size        p50        p99       mean unit         floor  ratio  calib ns  
put           bandwidth        direct memcpy              2     4KiB      100.2      99.50      100.0 GB/s         80.20   1.25     45 45  verified
moe           dispatch         direct -                   4  12.9MiB   21800104   30000000   22000000 ns               -      -   215 220  WRONG DATA, far
gc            stopping         -      -                   -        -       5.00          0          0 ns               -      -     50 90  verified, flipped
`
	if out.String() != want {
		t.Errorf("printed\n%s", &out)
	}
	broken := printTo(brokenWriter{}, false)
	if err := broken(Result{}); err == nil {
		t.Error("a writer's error is lost")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
