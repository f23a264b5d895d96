package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asWorker makes this test binary a PE: its arguments are Main's.
const asWorker = "GOSHMEM_TEST_BENCH"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// processes is a Launcher that starts this test binary.
func processes(t *testing.T) Launcher {
	return func(ctx context.Context, j Job) error {
		meet := fmt.Sprintf("unix:@goshmem-bench-test-%d-%d", os.Getpid(), time.Now().UnixNano())
		done := make(chan error, j.PEs)
		for rank := range j.PEs {
			cmd := exec.CommandContext(ctx, os.Args[0], j.Args...)
			cmd.Env = append(os.Environ(), asWorker+"=1", "GOSHMEM_RENDEZVOUS="+meet,
				fmt.Sprintf("GOSHMEM_RANK=%d", rank), fmt.Sprintf("GOSHMEM_SIZE=%d", j.PEs))
			cmd.Stderr = j.Stderr
			if rank == 0 {
				cmd.Stdout = j.Stdout
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			go func() { done <- cmd.Wait() }()
		}
		var all error
		for range j.PEs {
			all = errors.Join(all, <-done)
		}
		return all
	}
}

// quick are the runs of the tests: every program, small.
func quick() []Config {
	small := MoE{Tokens: 20, Hidden: 64, Experts: 16, TopK: 3}
	expert := small
	expert.Layout, expert.Combine, expert.DType, expert.Routing = "expert", "expert", "fp8", "uniform,holes=0.2"
	all := []Config{
		{Name: "put", Sizes: []int64{1, 8, 5000, 300 << 10}},
		{Name: "put", PEs: 1, Sizes: []int64{8}},
		{Name: "get", Sizes: []int64{1, 8, 5000, 300 << 10}},
		{Name: "put-signal", Sizes: []int64{0, 3, 8, 5000}},
		{Name: "amo"},
		{Name: "barrier"},
		{Name: "barrier", PEs: 5},
		{Name: "ring", PEs: 3},
		{Name: "moe", PEs: 2, MoE: small},
		{Name: "moe", PEs: 3, MoE: expert},
		{Name: "channel"},
		{Name: "gc", PEs: 3},
		{Name: "pairs", PEs: 3, Sizes: []int64{8, 5000}},
		{Name: "pairs", PEs: 4, Sizes: []int64{1}},
		{Name: "contended", PEs: 3},
		{Name: "order"},
		{Name: "wait", PEs: 3},
		{Name: "overlap", Sizes: []int64{8, 300 << 10}},
		{Name: "idle", Time: 50 * time.Millisecond},
		{Name: "join", PEs: 3},
		{Name: "worlds", Time: 50 * time.Millisecond},
		{Name: "barrier", PEs: 4, Nodes: 2},
		{Name: "alltoallv", PEs: 5, Nodes: 3, Algo: "relay", Sizes: []int64{1, 1000}},
		{Name: "alltoallv", PEs: 4, Spread: "zipf", Sizes: []int64{1, 1000, 70000}},
		{Name: "alltoallv", PEs: 3, Nodes: 3, Spread: "one-hot", Sizes: []int64{1000, 70000}},
		{Name: "alltoallv", PEs: 1, Sizes: []int64{8}},
	}
	for i, k := range collectives() {
		all = append(all, Config{Name: k.name, PEs: 2 + i%3, Nodes: i % 3, Sizes: []int64{max(4, k.elem()), 1000, 70000}})
	}
	return all
}

func label(c Config) string {
	s := c.Name
	if c.PEs > 0 {
		s += fmt.Sprintf("-%d", c.PEs)
	}
	if c.Nodes > 0 {
		s += fmt.Sprintf("-nodes-%d", c.Nodes)
	}
	return s + c.Algo + c.Spread + c.Path
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}
