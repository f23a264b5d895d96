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

// envLonely is an address of the last PE's port to which nobody else has a route.
const envLonely = "GOSHMEM_TEST_LONELY"

// Between hosts path rdma is taken by itself where both ends can, else TCP, and
// both ends say the same. What was asked for and cannot be is an error of both.
func TestBetweenHosts(t *testing.T) {
	rank, size, ok := spmd(t)
	if !ok {
		t.Skip("of several processes only")
	}
	lonely := os.Getenv(envLonely)
	for _, c := range []struct {
		nics, gid, net string // of the last PE, the last of these of all
		path, why      string
		err            error
	}{
		{path: "rdma", why: "both have RDMA: pe 0 rxe0:1 192.0.2.1, pe 1 rxe0:1 192.0.2."},
		{nics: "^rxe0", path: "tcp", why: "pe 1 has no RDMA: "},
		{gid: lonely, path: "tcp", why: "no common RDMA: pe 0, rxe0:1 192.0.2.1, has no route to " + lonely + " by eth0"},
		{gid: lonely, net: "rdma", err: pe.ErrUnsupported, why: "pe 0, rxe0:1 192.0.2.1, has no route to " + lonely + " by eth0"},
		{nics: "nosuch0", err: pe.ErrConfig, why: "looked for RDMA ports GOSHMEM_NICS=nosuch0: no usable RDMA port: rxe0:1: not among those wished for (nosuch0)"},
	} {
		if c.gid == "" && strings.Contains(c.why, "no route") {
			continue // in one guest every address is its own
		}
		cfg := pe.Config{Size: size, HostID: fmt.Sprint("host", rank), Net: c.net}
		t.Setenv("GOSHMEM_RDMA_GID", "")
		if rank == size-1 {
			cfg.NICs = c.nics
			t.Setenv("GOSHMEM_RDMA_GID", c.gid)
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
		if c.err != nil && errors.Is(err, c.err) && strings.Contains(err.Error(), c.why) {
			t.Log(err)
		} else if err != nil || c.err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
