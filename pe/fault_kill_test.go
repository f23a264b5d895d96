package pe_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/internal/faultlab"
)

// Each rank in turn is killed while all work; the others are told who it was,
// and close.
func TestKill(t *testing.T) {
	const n = 3
	type scene struct {
		name        string
		work        string
		spin, sleep bool
	}
	scenes := []scene{
		{name: "put", work: "put"},
		{name: "wait spinning", work: "wait", spin: true},
		{name: "wait asleep", work: "wait", sleep: true},
		{name: "barrier", work: "barrier"},
		{name: "alloc", work: "alloc"},
	}
	for _, launcher := range []bool{false, true} {
		for _, path := range []string{"direct", "proxy", "tcp"} {
			for _, s := range scenes {
				if path == "tcp" && (launcher || s.work != "put" && !s.sleep) {
					continue
				}
				for victim := range n {
					holder := "rank 0"
					if launcher {
						holder = "launcher"
					}
					t.Run(fmt.Sprintf("%s/hub at %s/%s/rank %d", s.name, holder, path, victim), func(t *testing.T) {
						j := faultlab.Start(t, faultlab.Spec{
							Role: "work", N: n, Launcher: launcher,
							Args: workArgs{Work: s.work, Path: path, Spin: s.spin, Sleep: s.sleep, FailureDeadline: time.Minute},
						})
						j.Expect("ready")
						j.Procs[victim].Kill()
						expectLoss(t, j, victim)
					})
				}
			}
		}
	}
}

// Without the launcher's hub nobody can tell of losses: the world is closed.
func TestHubGone(t *testing.T) {
	for _, work := range []string{"put", "wait", "barrier", "alloc"} {
		t.Run(work, func(t *testing.T) {
			j := faultlab.Start(t, faultlab.Spec{
				Role: "work", N: 3, Launcher: true, Args: workArgs{Work: work, Path: "direct", FailureDeadline: time.Minute},
			})
			j.Expect("ready")
			require.NoError(t, j.Hub.Close())
			for _, p := range j.Procs {
				f := p.ExpectFailure("failed with")
				require.True(t, f.Has("ErrClosed"), "rank %d: %v", p.Rank, f)
			}
			j.WaitAll()
		})
	}
}

// expectLoss checks that every process still there was told of the victim's
// loss, and of no other, closed, and ended.
func expectLoss(t *testing.T, j *faultlab.Job, victim int) {
	t.Helper()
	for _, p := range j.Procs {
		if p.Rank == victim {
			continue
		}
		f := p.ExpectFailure("failed with")
		require.True(t, f.Has("ErrPeerLost"), "rank %d: %v", p.Rank, f)
		require.Equal(t, victim, f.PE, "rank %d: %v", p.Rank, f)
		var lost []int
		p.Expect("lost", &lost)
		require.Equal(t, []int{victim}, lost, "rank %d", p.Rank)
	}
	for _, p := range j.Procs {
		if p.Rank != victim {
			f := p.ExpectFailure("closed")
			require.Nil(t, f, "rank %d", p.Rank)
			p.WaitDone()
		}
	}
}
