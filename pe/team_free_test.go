package pe_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// A signal that a member queued last in its team, as the release of a barrier is,
// does not turn up in the words of the team that gets the slot next.
func TestFreedTeamIsQuiet(t *testing.T) {
	ctx := testContext(t)
	require.NoError(t, pe.Run(ctx, pe.Config{Size: 1, Path: "proxy"}, func(p *pe.PE) error {
		team, err := p.Team().Split(ctx, 0, 0)
		if err != nil {
			return err
		}
		held, goOn := make(chan struct{}), make(chan struct{})
		hook := p.AddHook(func() bool { // holds the proxy's role, which no hook should
			close(held)
			<-goOn
			return false
		})
		hook.Arm()
		<-held
		hook.Disarm()
		c := team.CollContext()
		if err := rma.Signal(c, c.ReleaseWord(), rma.SignalAdd, 1, 0); err != nil {
			return err
		}
		time.AfterFunc(20*time.Millisecond, func() { close(goOn) })
		if err := team.Free(ctx); err != nil {
			return err
		}
		_, err = team.AllocMem(ctx, 8, 0)
		require.ErrorIs(t, err, pe.ErrClosed)
		_, err = team.Gather(ctx, "", nil)
		require.ErrorIs(t, err, pe.ErrClosed)
		require.ErrorIs(t, team.ResetSignals(ctx, heap.Signals{}), pe.ErrClosed)
		next, err := p.Team().Split(ctx, 0, 0)
		if err != nil {
			return err
		}
		if err := p.Quiet(ctx); err != nil {
			return err
		}
		n, err := rma.ReadSignal(next.CollContext(), next.CollContext().ReleaseWord())
		require.Zero(t, n)
		return err
	}))
}

// Teams that were freed leave nothing behind.
func TestFreedTeamsLeaveNothing(t *testing.T) {
	ctx := testContext(t)
	require.NoError(t, pe.Run(ctx, pe.Config{Size: 2}, func(p *pe.PE) error {
		var objects [2]uint64
		const teams = 500
		for k := range objects {
			for range teams {
				team, err := p.Team().Split(ctx, 0, p.Rank())
				if err != nil {
					return err
				}
				if err := team.Free(ctx); err != nil {
					return err
				}
			}
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			objects[k] = m.HeapObjects
		}
		if p.Rank() == 0 {
			require.Less(t, int64(objects[1]-objects[0]), int64(teams), "objects kept of %d teams", teams)
		}
		return nil
	}))
}
