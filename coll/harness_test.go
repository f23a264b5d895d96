package coll_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"goshmem/coll"
	"goshmem/internal/fabric"
	"goshmem/internal/faultlab"
	"goshmem/pe"
)

// The test binary runs itself as the processes of a job: see package faultlab.
func TestMain(m *testing.M) {
	if code, child := faultlab.Hook(faultRoles()); child {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// lane is a way for operations to reach a peer; every suite runs on each.
type lane struct {
	name string
	cfg  pe.Config
}

// netPath is the path between nodes that the suites run over, if one was asked for.
var netPath = os.Getenv("GOSHMEM_TEST_NET")

func lanes() []lane {
	if netPath != "" {
		return []lane{{netPath, pe.Config{Path: netPath}}}
	}
	return []lane{
		{"direct", pe.Config{Path: "direct"}},
		{"proxy", pe.Config{Path: "proxy"}},
		{"proxy-ring-1", pe.Config{Path: "proxy", RingCapacity: 1}},
	}
}

// everyLane are the near ones and one with two nodes.
func everyLane(t testing.TB) []lane { return append(lanes(), farLanes(t, 5)[0]) }

// farLanes are worlds of several nodes, with an adversarial fabric between them.
func farLanes(t testing.TB, seed uint64) []lane {
	var out []lane
	if netPath != "" {
		return []lane{{netPath + "-nodes-2", pe.Config{Nodes: 2, Net: netPath}}}
	}
	for _, nodes := range []int{2, 3, 100} {
		f, err := fabric.New(fabric.Random(seed + uint64(nodes)))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, lane{fmt.Sprint("nodes-", nodes), pe.Config{Nodes: nodes, Remote: f.Factory()}})
	}
	return out
}

// world runs fn on every PE of a world of n.
func world(t testing.TB, l lane, n int, fn func(ctx context.Context, p *pe.PE) error) {
	t.Helper()
	if err := tryWorld(t, l, n, fn); err != nil {
		t.Fatal(err)
	}
}

func tryWorld(t testing.TB, l lane, n int, fn func(ctx context.Context, p *pe.PE) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cfg := l.cfg
	cfg.Size = n
	cfg.Nodes = min(cfg.Nodes, n) // at most one a PE
	if cfg.HeapSize == 0 {
		cfg.HeapSize = 8 << 20
	}
	cfg.Sparse = true
	return pe.Run(ctx, cfg, func(p *pe.PE) error { return fn(ctx, p) })
}

// comm runs fn with a Comm of the world team.
func comm(t testing.TB, l lane, n int, cfg coll.Config, fn func(ctx context.Context, c *coll.Comm) error) {
	t.Helper()
	world(t, l, n, func(ctx context.Context, p *pe.PE) error {
		c, err := coll.New(ctx, p.Team(), cfg)
		if err != nil {
			return err
		}
		if err := fn(ctx, c); err != nil {
			return fmt.Errorf("rank %d: %w", p.Rank(), err)
		}
		return c.Free(ctx)
	})
}
