package pe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"goshmem/internal/bootstrap"
	"goshmem/internal/faultlab"
	"goshmem/pe"
)

// joinArgs is the part of pe.Config that these tests make different.
type joinArgs struct {
	FromEnv    bool // Size 0: the environment tells the place
	Rendezvous string
	HeapSize   int64
	Contexts   int
	Path       string
	Secret     string
	Timeout    time.Duration
}

func (a joinArgs) config(c *faultlab.Child) pe.Config {
	cfg := pe.Config{
		HeapSize: 64 << 10, Contexts: 8, CloseTimeout: 10 * time.Second,
		Rank: c.Rank, Size: c.Size, Rendezvous: c.Rendezvous, Secret: a.Secret, Path: a.Path, JoinTimeout: a.Timeout,
	}
	if a.FromEnv {
		cfg.Rank, cfg.Size, cfg.Rendezvous = 0, 0, ""
	}
	if a.HeapSize != 0 {
		cfg.HeapSize = a.HeapSize
	}
	if a.Contexts != 0 {
		cfg.Contexts = a.Contexts
	}
	return cfg
}

// joinRole joins, stays as long as it is told to, and leaves.
func joinRole(ctx context.Context, c *faultlab.Child, a joinArgs) error {
	p, err := pe.Join(ctx, a.config(c))
	c.Report("joined", faultlab.Describe(err))
	if err != nil {
		return nil
	}
	if _, err := c.Await("leave"); err != nil {
		return err
	}
	return p.Close(ctx)
}

func TestJoinMissing(t *testing.T) {
	const soon = 5 * time.Second // the others must be there by then
	type job struct {
		*faultlab.Job
		missing int
	}
	jobs := map[string]job{} // all at once: they only wait
	for _, launcher := range []bool{false, true} {
		for missing := range 3 {
			jobs[fmt.Sprintf("launcher %v/rank %d", launcher, missing)] = job{faultlab.Start(t, faultlab.Spec{
				Role: "join", N: 3, Launcher: launcher, JoinTimeout: soon,
				Args: joinArgs{FromEnv: launcher, Timeout: soon},
				Each: func(rank int, p *faultlab.Plan) { p.Absent = rank == missing },
			}), missing}
		}
	}
	for name, j := range jobs {
		for _, p := range j.Procs {
			if p == nil {
				continue
			}
			f := p.ExpectFailure("joined")
			require.True(t, f.Has("ErrTimeout"), "%s: rank %d: %v", name, p.Rank, f)
			require.Equal(t, []int{j.missing}, f.Missing, "%s: rank %d: %v", name, p.Rank, f)
		}
		j.WaitAll()
	}
}

// A PE that dies before all have joined is lost, not missing.
func TestJoinLost(t *testing.T) {
	j := faultlab.Start(t, faultlab.Spec{
		Role: "join", N: 3, Launcher: true, Args: joinArgs{FromEnv: true},
		Each: func(rank int, p *faultlab.Plan) { p.Absent = rank == 2 },
	})
	require.Eventually(t, func() bool {
		_, a := j.Hub.Peer(0)
		_, b := j.Hub.Peer(1)
		return a && b
	}, 30*time.Second, time.Millisecond)
	j.Procs[1].Kill()
	f := j.Procs[0].ExpectFailure("joined")
	require.True(t, f.Has("ErrPeerLost"), "%v", f)
	require.Equal(t, 1, f.PE)
	j.WaitAll()
}

func TestJoinTwiceAsOneRank(t *testing.T) {
	for _, twice := range []int{0, 2} {
		t.Run(fmt.Sprintf("rank %d", twice), func(t *testing.T) {
			j := faultlab.Start(t, faultlab.Spec{
				Role: "join", N: 4, Args: joinArgs{},
				Each: func(rank int, p *faultlab.Plan) {
					p.Size = 3
					if rank == 3 {
						p.Rank = twice
					}
				},
			})
			var refused *faultlab.Failure
			for _, p := range j.Procs {
				if f := p.ExpectFailure("joined"); f != nil {
					require.Equal(t, twice, p.Rank, "%v", f)
					require.Nil(t, refused)
					refused = f
				}
			}
			require.True(t, refused.Has("ErrConfig"), "%v", refused)
			for _, p := range j.Procs {
				p.TrySay("leave") // the refused one has ended
			}
			j.WaitAll()
		})
	}
}

// refused checks that one process was refused, and why, and ends the others, which
// wait for it.
func refused(t *testing.T, j *faultlab.Job, odd int, is, text string) {
	t.Helper()
	f := j.Procs[odd].ExpectFailure("joined")
	require.True(t, f.Has(is), "%v", f)
	require.Contains(t, f.Text, text)
	for _, p := range j.Procs {
		if p.Rank != odd {
			p.End() // it may hear just then that another one is gone
		}
	}
	j.WaitAll()
}

func TestJoinDifferences(t *testing.T) {
	const odd = 1
	for _, tc := range []struct {
		name     string
		other    joinArgs
		size     int // of the odd one's world, where it differs
		is, text string
	}{
		{name: "size", size: 4, is: "ErrMismatch", text: "the job has 3 ranks, not 4"},
		{name: "secret", other: joinArgs{Secret: "0badc0de"}, is: "ErrConfig", text: "secret"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			j := faultlab.Start(t, faultlab.Spec{
				Role: "join", N: 3, Args: joinArgs{},
				Each: func(rank int, p *faultlab.Plan) {
					if rank == odd {
						p.Args, p.Size = tc.other, max(p.Size, tc.size)
					}
				},
			})
			refused(t, j, odd, tc.is, tc.text)
		})
	}
}

// A launch's secret lets its own processes in, and nobody else.
func TestJoinSecret(t *testing.T) {
	for _, odd := range []int{-1, 0, 2} {
		t.Run(fmt.Sprintf("stranger %d", odd), func(t *testing.T) {
			j := faultlab.Start(t, faultlab.Spec{
				Role: "join", N: 3, Launcher: true, Secret: []byte("of this job"), Args: joinArgs{FromEnv: true},
				Each: func(rank int, p *faultlab.Plan) {
					if rank == odd {
						p.Env = append(p.Env, "GOSHMEM_SECRET=0badc0de")
					}
				},
			})
			if odd >= 0 {
				refused(t, j, odd, "ErrConfig", "secret")
				return
			}
			for _, p := range j.Procs {
				require.Nil(t, p.ExpectFailure("joined"))
			}
			j.Say("leave")
			j.WaitAll()
		})
	}
}

func TestJoinMismatch(t *testing.T) {
	for _, tc := range []struct {
		field string
		other joinArgs
	}{
		{"heap size", joinArgs{HeapSize: 128 << 10}},
		{"contexts", joinArgs{Contexts: 9}},
		{"path", joinArgs{Path: "proxy"}},
	} {
		for _, launcher := range []bool{false, true} {
			for odd := range 3 {
				t.Run(fmt.Sprintf("%s/launcher %v/rank %d", tc.field, launcher, odd), func(t *testing.T) {
					j := faultlab.Start(t, faultlab.Spec{
						Role: "join", N: 3, Launcher: launcher, Args: joinArgs{FromEnv: launcher},
						Each: func(rank int, p *faultlab.Plan) {
							if rank == odd {
								tc.other.FromEnv = launcher
								p.Args = tc.other
							}
						},
					})
					for _, p := range j.Procs {
						f := p.ExpectFailure("joined")
						require.True(t, f.Has("ErrMismatch"), "rank %d: %v", p.Rank, f)
						require.Equal(t, tc.field, f.Field)
						if p.Rank != odd {
							require.Equal(t, odd, f.PE)
						}
					}
					j.WaitAll()
				})
			}
		}
	}
}

// More than the machine has is refused alike on every PE, before any allocates.
func TestJoinNoMemory(t *testing.T) {
	for _, size := range []int64{1 << 42, 1 << 45} {
		t.Run(fmt.Sprint(size>>40, " TiB"), func(t *testing.T) {
			j := faultlab.Start(t, faultlab.Spec{Role: "join", N: 3, Args: joinArgs{HeapSize: size}})
			for _, p := range j.Procs {
				f := p.ExpectFailure("joined")
				require.True(t, f.Has("ErrNoMemory"), "rank %d: %v", p.Rank, f)
				require.Contains(t, f.Text, "GOSHMEM_HEAP_SIZE")
			}
			j.WaitAll()
		})
	}
}

// A launch in the environment and a Config that says something else.
func TestJoinDisagrees(t *testing.T) {
	addr, err := bootstrap.NewAddress()
	require.NoError(t, err)
	launch := map[string]string{
		"GOSHMEM_RANK": "0", "GOSHMEM_SIZE": "2", "GOSHMEM_RENDEZVOUS": addr,
	}
	for _, tc := range []struct {
		name  string
		cfg   pe.Config
		env   map[string]string
		words []string
	}{
		{"rank", pe.Config{Rank: 1, Size: 2}, launch, []string{"rank 1 of 2", "rank 0 of 2", "goshmem"}},
		{"size", pe.Config{Rank: 0, Size: 3}, launch, []string{"rank 0 of 3", "rank 0 of 2"}},
		{"same rendezvous", pe.Config{Rank: 1, Size: 2, Rendezvous: addr}, launch, []string{"rank 1 of 2", "rank 0 of 2"}},
		{
			"two launchers", pe.Config{},
			map[string]string{"GOSHMEM_RANK": "0", "GOSHMEM_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
			[]string{"GOSHMEM_RANK=0", "OMPI_COMM_WORLD_RANK=1"},
		},
		{"rank without size", pe.Config{Rank: 1}, nil, []string{"rank 1", "size"}},
		{"negative size", pe.Config{Size: -1}, nil, []string{"rank 0 of -1"}},
		{"rank beyond", pe.Config{Rank: 2, Size: 2, Rendezvous: addr}, nil, []string{"rank 2 of 2"}},
		{"negative rank", pe.Config{Rank: -1, Size: 2, Rendezvous: addr}, nil, []string{"rank -1 of 2"}},
		{"no rendezvous", pe.Config{Rank: 1, Size: 2}, nil, []string{"Rendezvous", "GOSHMEM_RENDEZVOUS"}},
		{"no address", pe.Config{Rank: 1, Size: 2, Rendezvous: "somewhere"}, nil, []string{"somewhere"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			_, err := pe.Join(testContext(t), tc.cfg)
			require.ErrorIs(t, err, pe.ErrConfig)
			for _, w := range tc.words {
				require.ErrorContains(t, err, w)
			}
		})
	}
}

func TestBadEnvironment(t *testing.T) {
	for _, tc := range []struct {
		name, value string
		launch      bool // as one of one
	}{
		{name: "GOSHMEM_HEAP_SIZE", value: "much"},
		{name: "GOSHMEM_HEAP_SIZE", value: "-1"},
		{name: "GOSHMEM_HEAP_SIZE", value: "1"},
		{name: "GOSHMEM_PATH", value: "scenic"},
		{name: "GOSHMEM_RING_CAPACITY", value: "0"},
		{name: "GOSHMEM_FAILURE_DEADLINE", value: "never"},
		{name: "GOSHMEM_HEARTBEAT", value: "1h"},
		{name: "GOSHMEM_SPARSE", value: "perhaps"},
		{name: "GOSHMEM_RANK", value: "first", launch: true},
		{name: "GOSHMEM_RANK", value: "-1", launch: true},
		{name: "GOSHMEM_SIZE", value: "0", launch: true},
		{name: "GOSHMEM_SIZE", value: "many", launch: true},
		{name: "GOSHMEM_SECRET", value: "not hex"},
		{name: "GOSHMEM_SECRET_FILE", value: "/nonexistent"},
		{name: "GOSHMEM_RENDEZVOUS", value: "unix:@somewhere"},
		{name: "GOSHMEM_CLOSE_TIMEOUT", value: "-1s"},
	} {
		t.Run(tc.name+"="+tc.value, func(t *testing.T) {
			if tc.launch {
				t.Setenv("GOSHMEM_RANK", "0")
				t.Setenv("GOSHMEM_SIZE", "1")
			}
			t.Setenv(tc.name, tc.value)
			_, err := pe.Join(testContext(t), pe.Config{HeapSize: heapUnless(tc.name)})
			require.ErrorIs(t, err, pe.ErrConfig)
			require.ErrorContains(t, err, tc.name)
		})
	}
}

// heapUnless keeps worlds small, unless the heap's size is the test's.
func heapUnless(name string) int64 {
	if name == "GOSHMEM_HEAP_SIZE" {
		return 0
	}
	return 64 << 10
}

// A world of one with a rendezvous, or with a launcher's words, needs nobody.
func TestJoinAlone(t *testing.T) {
	ctx := testContext(t)
	for _, cfg := range []pe.Config{{}, {Size: 1}, {Size: 1, Rendezvous: "unix:@goshmem-alone"}} {
		cfg.HeapSize = 64 << 10
		p, err := pe.Join(ctx, cfg)
		require.NoError(t, err)
		require.Equal(t, 1, p.Size())
		require.NoError(t, p.Close(ctx))
		require.NoError(t, p.Close(ctx))
	}
}

// Who knows its rank may have the rendezvous from the environment, and the secret
// before the secret's file.
func TestJoinByEnvironment(t *testing.T) {
	addr, err := bootstrap.NewAddress()
	require.NoError(t, err)
	t.Setenv("GOSHMEM_RENDEZVOUS", addr)
	t.Setenv("GOSHMEM_SECRET", "00ff")
	t.Setenv("GOSHMEM_SECRET_FILE", "/nonexistent")
	ctx := testContext(t)
	var g errgroup.Group
	for rank := range 2 {
		g.Go(func() error {
			p, err := pe.Join(ctx, pe.Config{Rank: rank, Size: 2, HeapSize: 64 << 10})
			if err != nil {
				return err
			}
			return p.Close(ctx)
		})
	}
	require.NoError(t, g.Wait())
}

// A caller that gives up joining leaves nothing behind.
func TestJoinCancelled(t *testing.T) {
	addr, err := bootstrap.NewAddress()
	require.NoError(t, err)
	for rank := range 2 {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(testContext(t))
		timer := time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
		_, err := pe.Join(ctx, pe.Config{Rank: rank, Size: 2, Rendezvous: addr, HeapSize: 64 << 10})
		require.ErrorIs(t, err, context.Canceled)
		timer.Stop()
		cancel(nil)
	}
}

// Under a launcher a second world of the same processes meets elsewhere, with a
// rank of them holding its hub.
func secondWorldRole(ctx context.Context, c *faultlab.Child, _ struct{}) error {
	first, err := pe.Join(ctx, pe.Config{HeapSize: 64 << 10})
	if err != nil {
		return err
	}
	for _, cfg := range []pe.Config{
		{Rendezvous: c.Rendezvous + "-b"},
		{Rendezvous: c.Rendezvous + "-c", Rank: c.Size - 1 - c.Rank, Size: c.Size},
	} {
		cfg.HeapSize = 64 << 10
		p, err := pe.Join(ctx, cfg)
		if err != nil {
			return err
		}
		if _, err := p.AllocMem(ctx, 100, 0); err != nil {
			return err
		}
		if err := p.Close(ctx); err != nil {
			return err
		}
	}
	return first.Close(ctx)
}

func TestSecondWorldUnderLauncher(t *testing.T) {
	faultlab.Start(t, faultlab.Spec{Role: "second world", N: 3, Launcher: true}).WaitAll()
}
