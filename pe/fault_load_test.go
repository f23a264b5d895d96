package pe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/coll"
	"goshmem/internal/faultlab"
	"goshmem/pe"
	"goshmem/rma"
)

// loadArgs says what a process under load does.
type loadArgs struct {
	Path            string
	Rounds          int
	FailureDeadline time.Duration
	Busy            int           // the PE that computes without looking up
	For             time.Duration // how long
}

func (a loadArgs) join(ctx context.Context, c *faultlab.Child) (*pe.PE, *site, error) {
	return begin(ctx, c, workArgs{Path: a.Path, FailureDeadline: a.FailureDeadline})
}

// crowdRole hands a payload round all PEs and meets them in barriers.
func crowdRole(ctx context.Context, c *faultlab.Child, a loadArgs) error {
	p, s, err := a.join(ctx, c)
	if err != nil {
		return err
	}
	if !p.World().Oversubscribed() {
		c.Report("cores", "enough")
	}
	all := livingOf(p.Size(), -1)
	for i := range a.Rounds {
		if err := hop(ctx, s, all, 1+i*5, 5, named); err != nil {
			return err
		}
		if err := coll.Barrier(ctx, p.Team()); err != nil {
			return err
		}
	}
	return p.Close(ctx)
}

// More PEs than cores, each with one P of the Go scheduler.
func TestCrowd(t *testing.T) {
	for _, n := range []int{8, 16} {
		t.Run(fmt.Sprintf("%d PEs", n), func(t *testing.T) {
			bothPaths(t, func(t *testing.T, path string) {
				faultlab.Start(t, faultlab.Spec{
					Role: "crowd", N: n, Env: []string{"GOMAXPROCS=1"},
					Args: loadArgs{Path: path, Rounds: 20, FailureDeadline: time.Minute},
				}).WaitAll()
			})
		})
	}
}

// idleFor waits for what does not come.
func idleFor(ctx context.Context, p *pe.PE, d time.Duration) error {
	sigs, err := p.AllocSignals(ctx, 1)
	if err != nil {
		return err
	}
	if err := coll.Sync(ctx, p.Team()); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if err := rma.WaitSignal(short, p.Context(), sigs.At(0), rma.GE, 1); !errors.Is(err, pe.ErrTimeout) {
		return fmt.Errorf("idle: %w", err)
	}
	return coll.Sync(ctx, p.Team())
}

func idleRole(ctx context.Context, c *faultlab.Child, a loadArgs) error {
	p, _, err := a.join(ctx, c)
	if err != nil {
		return err
	}
	before, err := faultlab.Measure()
	if err != nil {
		return err
	}
	if err := idleFor(ctx, p, a.For); err != nil {
		return err
	}
	after, err := faultlab.Measure()
	if err != nil {
		return err
	}
	c.Report("cpu", after.CPU-before.CPU)
	return p.Close(ctx)
}

// An idle world uses next to no processor time.
func TestIdle(t *testing.T) {
	const while, most = 2 * time.Second, 500 * time.Millisecond
	t.Run("processes", func(t *testing.T) {
		j := faultlab.Start(t, faultlab.Spec{Role: "idle", N: 2, Args: loadArgs{FailureDeadline: time.Minute, For: while}})
		for _, p := range j.Procs {
			var used time.Duration
			p.Expect("cpu", &used)
			t.Logf("rank %d: %v in %v", p.Rank, used, while)
			require.Less(t, used, most)
		}
		j.WaitAll()
	})
	t.Run("one process", func(t *testing.T) {
		ctx := testContext(t)
		before, err := faultlab.Measure()
		require.NoError(t, err)
		cfg := pe.Config{Size: 2, HeapSize: 64 << 10, Contexts: 4}
		require.NoError(t, pe.Run(ctx, cfg, func(p *pe.PE) error { return idleFor(ctx, p, while) }))
		after, err := faultlab.Measure()
		require.NoError(t, err)
		t.Logf("%v in %v", after.CPU-before.CPU, while)
		require.Less(t, after.CPU-before.CPU, most)
	})
}

// compute keeps its processor without ever giving the scheduler a chance.
func compute(n uint64) uint64 {
	x := n
	for range n {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// busyRole: one PE computes for a part of the failure deadline at a time, so that
// even its heartbeat does not get to run; the others wait for it.
func busyRole(ctx context.Context, c *faultlab.Child, a loadArgs) error {
	p, s, err := a.join(ctx, c)
	if err != nil {
		return err
	}
	ctxt, sig := p.Context(), s.sigs.At(p.Size())
	if p.Rank() != a.Busy {
		if err := rma.WaitSignal(ctx, ctxt, sig, rma.GE, uint64(a.Rounds), rma.From(a.Busy)); err != nil {
			return err
		}
		return p.Close(ctx)
	}
	const probe = 1 << 22
	start := time.Now()
	sink := compute(probe)
	n := uint64(float64(probe) * float64(a.For) / float64(time.Since(start)))
	for i := range a.Rounds {
		sink += compute(n)
		for to := range p.Size() {
			if err := rma.Signal(ctxt, sig, rma.SignalSet, uint64(i+1), to); err != nil {
				return fmt.Errorf("%d: %w", sink%2, err)
			}
		}
	}
	return p.Close(ctx)
}

// A PE that computes is not lost, though with one P and no preemption its
// heartbeat waits meanwhile.
func TestBusy(t *testing.T) {
	for _, busy := range []int{0, 1} {
		t.Run(fmt.Sprintf("rank %d", busy), func(t *testing.T) {
			t.Parallel()
			j := faultlab.Start(t, faultlab.Spec{
				Role: "busy", N: 2, Env: []string{"GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1"},
				Args: loadArgs{FailureDeadline: 4 * time.Second, For: 500 * time.Millisecond, Rounds: 3, Busy: busy},
			})
			j.WaitAll()
		})
	}
}

// burnRole keeps a core busy until it is killed.
func burnRole(c *faultlab.Child) error {
	c.Report("burning", nil)
	for n := uint64(1 << 30); ; n |= 1 << 30 {
		n = compute(n) % (1 << 30)
	}
}

// descheduledRole hands signals round for longer than the failure deadline.
func descheduledRole(ctx context.Context, c *faultlab.Child, a loadArgs) error {
	p, s, err := a.join(ctx, c)
	if err != nil {
		return err
	}
	for i, end := 0, time.Now().Add(a.For); ; i++ {
		// PE 0 decides when it is enough, for all.
		stop := uint64(0)
		if time.Now().After(end) {
			stop = 1
		}
		if p.Rank() == 0 {
			for to := range p.Size() {
				if err := rma.PutMem(p.Context(), s.box, []byte{byte(stop)}, to); err != nil {
					return err
				}
			}
		}
		if err := coll.Barrier(ctx, p.Team()); err != nil {
			return err
		}
		told, err := p.LocalBytes(s.box, 1)
		if err != nil {
			return err
		}
		over := told[0] == 1
		if err := coll.Sync(ctx, p.Team()); err != nil {
			return err
		}
		if over {
			break
		}
	}
	return p.Close(ctx)
}

// PEs of the lowest priority beside processes that take all there is are slow,
// not lost.
func TestDescheduled(t *testing.T) {
	burners := faultlab.Start(t, faultlab.Spec{Role: "burn", N: 2})
	burners.Expect("burning")
	j := faultlab.Start(t, faultlab.Spec{
		Role: "descheduled", N: 2, Nice: 19, Bound: 2 * time.Minute,
		Args: loadArgs{FailureDeadline: 4 * time.Second, For: 5 * time.Second},
	})
	j.WaitAll()
}

// A short stop is no loss.
func TestShortStop(t *testing.T) {
	for stopped := range 2 {
		t.Run(fmt.Sprintf("rank %d", stopped), func(t *testing.T) {
			t.Parallel()
			j := faultlab.Start(t, faultlab.Spec{
				Role: "short stop", N: 2, Args: loadArgs{FailureDeadline: 30 * time.Second},
			})
			j.Expect("ready")
			j.Procs[stopped].Stop()
			time.Sleep(300 * time.Millisecond)
			j.Procs[stopped].Cont()
			j.Say("go")
			j.WaitAll()
		})
	}
}

func shortStopRole(ctx context.Context, c *faultlab.Child, a loadArgs) error {
	p, s, err := a.join(ctx, c)
	if err != nil {
		return err
	}
	c.Report("ready", nil)
	if _, err := c.Await("go"); err != nil {
		return err
	}
	if err := hop(ctx, s, livingOf(p.Size(), -1), 1, 20, named); err != nil {
		return err
	}
	return p.Close(ctx)
}
