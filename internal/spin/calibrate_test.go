package spin

import (
	"errors"
	"math"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"goshmem/internal/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCPUs(t *testing.T) {
	cpus, err := CPUs()
	if err != nil || len(cpus) == 0 || !slices.IsSorted(cpus) {
		t.Fatalf("%v, %v", cpus, err)
	}
}

func TestPingPong(t *testing.T) {
	cpus, err := CPUs()
	if err != nil {
		t.Fatal(err)
	}
	first, last := cpus[0], cpus[len(cpus)-1]
	for _, tc := range []struct {
		name            string
		batches, rounds int
		a, b            int
	}{
		{"two CPUs", 5, 100, first, last},
		{"unpinned", 3, 50, -1, -1},
		{"one CPU", 2, 5, first, first},
		{"no batches", 0, 1, -1, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := PingPong(tc.batches, tc.rounds, tc.a, tc.b)
			if err != nil || len(got) != tc.batches {
				t.Fatalf("%v, %v", got, err)
			}
			for _, ns := range got {
				if ns <= 0 || math.IsInf(ns, 0) || math.IsNaN(ns) {
					t.Errorf("one way %v ns", ns)
				}
			}
			t.Log(got)
		})
	}
	after, err := CPUs()
	if err != nil || !slices.Equal(cpus, after) {
		t.Errorf("affinity %v before, %v after, %v", cpus, after, err)
	}
}

func TestPingPongRefuses(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		batches, rounds, a, b int
	}{
		{"no rounds", 1, 0, -1, -1},
		{"negative batches", -1, 1, -1, -1},
		{"product wraps", math.MaxInt, 3, -1, -1},
		{"negative CPU", 1, 1, -2, -1},
		{"CPU past every set", 1, 1, -1, math.MaxInt},
	} {
		if got, err := PingPong(tc.batches, tc.rounds, tc.a, tc.b); got != nil || !errors.Is(err, errs.ErrConfig) {
			t.Errorf("%s: %v, %v", tc.name, got, err)
		}
	}
	// A CPU that the machine lacks: the kernel refuses.
	if got, err := PingPong(1, 1, 1000, -1); got != nil || err == nil {
		cpus, _ := CPUs()
		if !slices.Contains(cpus, 1000) {
			t.Errorf("CPU 1000: %v, %v", got, err)
		}
	}
}
