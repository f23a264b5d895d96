//go:build rdma

package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"goshmem/coll"
	"goshmem/internal/suite"
	"goshmem/pe"
	"goshmem/rma"
)

// The suites of the operations over path rdma: between PEs of one process, and,
// where the variables below are set, between processes that all run this test and
// are one PE each of the world of every case.
const (
	envRank = "GOSHMEM_TEST_RANK"
	envSize = "GOSHMEM_TEST_SIZE"
	envMeet = "GOSHMEM_TEST_MEET" // unix:@name, or host:port
)

// spmd is this process's part; false: there are no others.
func spmd(t testing.TB) (rank, size int, ok bool) {
	if os.Getenv(envMeet) == "" {
		return 0, 0, false
	}
	rank, err := strconv.Atoi(os.Getenv(envRank))
	size, err2 := strconv.Atoi(os.Getenv(envSize))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return rank, size, true
}

var meetings atomic.Uint64

// together is a suite.Launcher of one PE a process: the n-th world of each is the
// same.
func together(t testing.TB, rank int) suite.Launcher {
	return func(ctx context.Context, cfg pe.Config, fn func(*pe.PE) error) error {
		cfg.Rank, cfg.Rendezvous = rank, meeting(t)
		cfg.JoinTimeout, cfg.Secret = 20*time.Second, "5ec3e7"
		p, err := pe.Join(ctx, cfg)
		if err != nil {
			return err
		}
		return errors.Join(fn(p), p.Close(context.WithoutCancel(ctx)))
	}
}

// meeting is where the next world meets.
func meeting(t testing.TB) string {
	n := meetings.Add(1)
	at := os.Getenv(envMeet)
	if host, port, ok := splitPort(at); ok {
		return fmt.Sprintf("%s:%d", host, port+int(n))
	}
	return fmt.Sprintf("%s-%d", at, n)
}

func splitPort(at string) (host string, port int, ok bool) {
	for i := len(at) - 1; i > 0; i-- {
		if at[i] == ':' {
			n, err := strconv.Atoi(at[i+1:])
			return at[:i], n, err == nil
		}
	}
	return "", 0, false
}

func setups(t testing.TB) []suite.Setup {
	cfg := func(size, ring int) pe.Config { return pe.Config{Path: "rdma", Size: size, RingCapacity: ring} }
	if rank, size, ok := spmd(t); ok {
		return []suite.Setup{{Name: "processes", Config: cfg(size, 1024), Launch: together(t, rank)}}
	}
	return []suite.Setup{
		{Name: "one", Config: cfg(1, 16)},
		{Name: "two", Config: cfg(2, 1024)},
		{Name: "joined", Config: cfg(3, 1024), Launch: suite.Joined},
	}
}

func TestSuites(t *testing.T) {
	for _, s := range setups(t) {
		suite.Run(t, s, slices.Concat(suite.RMA(), suite.AMO(), suite.PE(), suite.Coll()))
	}
}

// Between hosts path rdma is taken by itself where both ends can, else TCP, and
// both ends say the same.
func TestBetweenHosts(t *testing.T) {
	rank, size, ok := spmd(t)
	if !ok {
		t.Skip("of several processes only")
	}
	for _, c := range []struct{ last, path, why string }{
		{"", "rdma", "both have RDMA: pe 0 rxe0:1 192.0.2.1, pe 1 rxe0:1 192.0.2."},
		{"^rxe0", "tcp", "pe 1 has no RDMA: "},
	} {
		cfg := pe.Config{Size: size, HostID: fmt.Sprint("host", rank)}
		if rank == size-1 {
			cfg.NICs = c.last
		}
		err := together(t, rank)(t.Context(), cfg, func(p *pe.PE) error {
			info, _ := p.Peer(1 - rank)
			t.Log(info.Path, info.Why, p.World().Transports())
			if info.Path != c.path || !strings.Contains(info.Why, c.why) {
				return fmt.Errorf("path %s: %s", info.Path, info.Why)
			}
			a, err := pe.Calloc[uint64](t.Context(), p, 2)
			if err != nil {
				return err
			}
			if err := rma.PutValue(p.Context(), a.At(rank), 7, 1-rank); err != nil {
				return err
			}
			if err := rma.Quiet(t.Context(), p.Context()); err != nil {
				return err
			}
			return coll.Barrier(t.Context(), p.Team())
		})
		if err != nil {
			t.Error(err)
		}
	}
}
