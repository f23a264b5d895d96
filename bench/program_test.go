package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"goshmem/pe"
)

// sound checks what must be true of every result.
func sound(t *testing.T, c Config, r Result) {
	t.Helper()
	if !r.Verified {
		t.Errorf("not verified: %+v", r)
	}
	if r.Bench != c.Name || r.Metric == "" || r.Path == "" || r.Mem != "host" || r.Nodes != max(c.Nodes, 1) || r.Impl == "" {
		t.Errorf("incomplete: %+v", r)
	}
	for _, x := range []float64{r.P50, r.P99, r.Mean, r.Floor, r.CalibBefore, r.CalibAfter} {
		if x < 0 || math.IsNaN(x) || math.IsInf(x, 0) {
			t.Errorf("impossible figure: %+v", r)
		}
	}
	if r.Unit != unitObjects && r.Unit != unitPercent && r.Unit != unitLoad && (r.P50 == 0 || r.Mean == 0) {
		t.Errorf("nothing measured: %+v", r)
	}
}

// expected are the figures that a configuration must report, in order, with sizes.
func expected(c Config) []string {
	var s []string
	for _, n := range c.Sizes {
		switch c.Name {
		case "overlap":
			s = append(s, fmt.Sprint("hidden ", n))
			continue
		case "pairs":
			what := "rate"
			if n > rateUpTo {
				what = "bandwidth"
			}
			s = append(s, fmt.Sprint(what, " ", n), fmt.Sprint(what, " ", n))
			continue
		case "put":
			s = append(s, fmt.Sprint("latency ", n))
			if n <= rateUpTo {
				s = append(s, fmt.Sprint("rate ", n))
			}
		case "get", "put-signal":
			s = append(s, fmt.Sprint("latency ", n))
			if c.Name == "put-signal" {
				if n <= rateUpTo {
					s = append(s, fmt.Sprint("rate ", n))
				}
				continue
			}
		}
		if n >= bandwidthFrom {
			s = append(s, fmt.Sprint("bandwidth ", n))
		}
		if n >= queuedFrom {
			s = append(s, fmt.Sprint("nbi-bandwidth ", n))
		}
	}
	if isCollective(c.Name) {
		s = nil
		for _, n := range c.Sizes {
			s = append(s, fmt.Sprint("latency ", n))
			if n >= bandwidthFrom && c.PEs != 1 && c.Spread == "" {
				s = append(s, fmt.Sprint("bandwidth ", n))
			}
			if c.Name == "alltoallv" {
				s = append(s, fmt.Sprint("used ", n))
			}
		}
	}
	switch c.Name {
	case "amo":
		s = []string{"fetch-add 8", "compare-swap 8", "swap 8", "fetch 8", "add 8"}
	case "barrier":
		s = []string{"latency 0", "sync 0"}
	case "ring":
		s = []string{"latency 0"}
	case "contended":
		s = []string{"fetch-add 8"}
	case "order":
		s = []string{"fence 0", "quiet 0", "puts-fence 0", "puts-quiet 0"}
	case "wait":
		s = []string{"spinning 0", "sleeping 0"}
	case "idle":
		s = []string{"waiting 0"}
	case "join":
		s = []string{"join 0", "memory-silent 0", "memory-all-talk 0"}
	case "worlds":
		s = []string{"open 0", "close 0", "heap-silent 0", "heap-all-talk 0"}
	case "gc":
		s = []string{"stopping 0", "stopping 0", "stopping 0", "stopping 0"}
	}
	return s
}

func isCollective(name string) bool {
	return slices.ContainsFunc(collectives(), func(k collective) bool { return k.name == name })
}

func named(rs []Result) (s []string) {
	for _, r := range rs {
		s = append(s, fmt.Sprint(r.Metric, " ", r.Size))
	}
	return s
}

func TestProgramsInProcess(t *testing.T) {
	for i, c := range quick() {
		for _, path := range []string{"", "proxy"} {
			if (c.Name == "gc" || c.Name == "worlds" || isCollective(c.Name) && i%2 == 0) && path != "" {
				continue
			}
			c.Path = path
			c.Iters = 3
			t.Run(label(c), func(t *testing.T) {
				var got []Result
				if err := Run(bounded(t), c, func(r Result) error { got = append(got, r); return nil }); err != nil {
					t.Fatal(err)
				}
				for _, r := range got {
					sound(t, c, r)
				}
				if want := expected(c); want != nil && !slices.Equal(named(got), want) {
					t.Errorf("reported %v, want %v", named(got), want)
				}
				if len(got) == 0 {
					t.Error("no results")
				}
			})
		}
	}
}

// fields are those that -json promises.
func fields() []string {
	return []string{"bench", "metric", "path", "mem", "algo", "nodes", "impl", "pes", "size", "unit",
		"p50", "p99", "mean", "floor", "calib_before_ns", "calib_after_ns", "flipped", "verified"}
}

// Every program as processes, through the command line, with its output as JSON.
func TestProgramsAsProcesses(t *testing.T) {
	for i, c := range quick() {
		if testing.Short() && i%2 == 0 {
			continue
		}
		c.Iters = 2
		t.Run(label(c), func(t *testing.T) {
			var out bytes.Buffer
			args := append(commandLine{Config: c}.args(), "-iters", "2")
			args = slices.DeleteFunc(args, func(s string) bool { return s == "-join" })
			if err := Main(bounded(t), args, &out, io.Discard, processes(t)); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			for _, line := range lines {
				var m map[string]any
				if err := json.Unmarshal([]byte(line), &m); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				for _, f := range fields() {
					if _, ok := m[f]; !ok {
						t.Errorf("no %s in %s", f, line)
					}
				}
				var r Result
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatal(err)
				}
				sound(t, c, r)
			}
		})
	}
}

// A check must see wrong data, and say so in the result and in the error.
func TestWrongData(t *testing.T) {
	for _, c := range quick() {
		prog, err := find(c.Name)
		if err != nil {
			t.Fatal(err)
		}
		if prog.solo || c.PEs == 1 || c.Name == "idle" { // which moves no data
			continue
		}
		c.Iters = 1
		c.Sizes = slices.DeleteFunc(c.Sizes, func(n int64) bool { return n == 0 })
		c.corrupt = func(b []byte) {
			if len(b) > 0 {
				b[len(b)/2] ^= 0x10
			}
		}
		t.Run(label(c), func(t *testing.T) {
			wrong := 0
			err := Run(bounded(t), c, func(r Result) error {
				if !r.Verified {
					wrong++
				}
				return nil
			})
			if !errors.Is(err, ErrVerify) || wrong == 0 {
				t.Errorf("%d figures wrong, error %v", wrong, err)
			}
		})
	}
}

// The error of a process that found wrong data reaches the one that started it.
func TestWrongDataOfProcesses(t *testing.T) {
	line := func(r Result) string {
		var b bytes.Buffer
		if err := r.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	good, bad := line(Result{Bench: "amo", Verified: true}), line(Result{Bench: "amo"})
	failed := errors.New("status 1")
	for _, tc := range []struct {
		name   string
		out    string
		ended  error
		want   error
		figure int
	}{
		{"good", good, nil, nil, 1},
		{"wrong", good + bad, failed, ErrVerify, 2},
		{"failed", good, failed, failed, 1},
		{"nothing", "", nil, errOutput, 0},
		{"junk", "hello\n", nil, errOutput, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			figures := 0
			launch := func(_ context.Context, j Job) error {
				if j.PEs != 2 || !j.Bind {
					t.Errorf("job %+v", j)
				}
				for i := range tc.out { // byte by byte: lines are put together
					if _, err := j.Stdout.Write([]byte(tc.out[i : i+1])); err != nil {
						t.Fatal(err)
					}
				}
				return tc.ended
			}
			c := commandLine{Config: Config{Name: "amo"}, Bind: bindAuto}
			err := c.start(bounded(t), func(Result) error { figures++; return nil }, io.Discard, launch)
			if !errors.Is(err, tc.want) || figures != tc.figure {
				t.Errorf("error %v, %d figures", err, figures)
			}
		})
	}
}

func TestWorkRefuses(t *testing.T) {
	err := pe.Run(bounded(t), pe.Config{Size: 1}, func(p *pe.PE) error {
		for _, c := range []Config{{Name: "gc"}, {Name: "barrier", PEs: 2}, {Name: "nothing"}} {
			if err := Work(bounded(t), p, c, nil); err == nil {
				t.Errorf("%s: no error", c.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A program ends with its context, in the middle of a figure.
func TestCancel(t *testing.T) {
	for _, c := range []Config{{Name: "put"}, {Name: "put-signal"}, {Name: "barrier"}, {Name: "barrier", PEs: 4}, {Name: "channel"},
		{Name: "channel", Path: "proxy"}, {Name: "gc"}} {
		t.Run(label(c), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			c.Time = time.Hour
			if c.Name == "gc" || c.Name == "barrier" { // they would end by themselves
				c.Iters = 1 << 30
			}
			done := make(chan error, 1)
			go func() { done <- Run(ctx, c, func(Result) error { return nil }) }()
			select {
			case err := <-done:
				if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, pe.ErrClosed) && !errors.Is(err, pe.ErrTimeout) {
					t.Errorf("ended with %v", err)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("goes on")
			}
		})
	}
}

// The caller's emit can stop a program.
func TestEmitFails(t *testing.T) {
	enough := errors.New("enough")
	for i, c := range quick() {
		if testing.Short() && i%3 > 0 {
			continue
		}
		c.Iters = 1
		t.Run(label(c), func(t *testing.T) {
			if err := Run(bounded(t), c, func(Result) error { return enough }); !errors.Is(err, enough) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}
