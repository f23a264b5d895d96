package coll_test

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
)

// callArgs says which collective a process calls, over and over, until it fails.
type callArgs struct {
	Call            string
	Nodes           int
	FailureDeadline time.Duration
}

func faultRoles() map[string]faultlab.Role { return map[string]faultlab.Role{"calls": callsRole} }

func callsRole(c *faultlab.Child) error {
	ctx, cancel := c.Context()
	defer cancel()
	var a callArgs
	if err := c.Args(&a); err != nil {
		return err
	}
	p, err := pe.Join(ctx, pe.Config{
		Rank: c.Rank, Size: c.Size, Rendezvous: c.Rendezvous, HeapSize: 8 << 20, Nodes: a.Nodes,
		FailureDeadline: a.FailureDeadline, CloseTimeout: 10 * time.Second,
	})
	if err != nil {
		return err
	}
	cm, err := coll.New(ctx, p.Team(), relayed(c.Size))
	if err != nil {
		return err
	}
	call, err := faultCall(ctx, cm, a.Call)
	if err != nil {
		return err
	}
	for i := 0; err == nil; i++ {
		if err = call(); i == 20 {
			c.Report("ready", nil)
		}
	}
	c.Report("failed with", faultlab.Describe(err))
	if a.Call == "send" { // its neighbours hear of the loss by themselves
		err = coll.Barrier(ctx, p.Team())
	}
	for what, e := range map[string]error{
		"the call": err, "the same again": call(), "a barrier": coll.Barrier(ctx, p.Team()), "another collective": coll.Broadcast(ctx, cm, 0, []byte{1}),
	} {
		if !errors.Is(e, pe.ErrPeerLost) {
			return fmt.Errorf("%s: %w", what, e)
		}
	}
	return p.Close(ctx)
}

// faultCall is one of the calls of a kind; long, so that something is on the way.
func faultCall(ctx context.Context, c *coll.Comm, name string) (func() error, error) {
	const n = 3000
	x, y := make([]float32, n), make([]float32, n*c.Size())
	next, prev := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	started := func(p *coll.Pending, err error) error { return (&pend{p}).wait(ctx, err) }
	switch name {
	case "alltoallv":
		a, err := pe.Calloc[float32](ctx, c.Team().PE(), len(y))
		counts := make([]int, c.Size())
		for i := range counts {
			counts[i] = n
		}
		return func() error { return coll.AllToAllV(ctx, c, a, counts, nil, y, counts, nil) }, err
	case "allreduce":
		return func() error { return coll.AllReduce(ctx, c, coll.Sum, x, x) }, nil
	case "started":
		return func() error { return started(coll.StartFCollect(c, y, x)) }, nil
	case "send":
		return func() error {
			p, err := coll.StartRecv(c, prev, 1, y[:n])
			if err != nil {
				return err
			}
			if err := coll.Send(ctx, c, next, 1, x); err != nil {
				return err
			}
			return p.Wait(ctx)
		}, nil
	}
	return nil, fmt.Errorf("no call %q", name)
}

// A process that is killed in the middle of a call: the others, on its node and on
// others, learn who it was, and their later calls give that too.
func TestKilledInACall(t *testing.T) {
	for _, call := range []string{"alltoallv", "allreduce", "started", "send"} {
		for _, nodes := range []int{1, 2} {
			t.Run(fmt.Sprint(call, "/nodes ", nodes), func(t *testing.T) {
				inACall(t, callArgs{Call: call, Nodes: nodes, FailureDeadline: time.Minute}, 3, func(p *faultlab.Proc) { p.Kill() }, nil)
			})
		}
	}
}

// One that is stopped past the failure deadline is lost, and finds itself lost when
// it goes on.
func TestStoppedInACall(t *testing.T) {
	for _, call := range []string{"alltoallv", "started"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			inACall(t, callArgs{Call: call, Nodes: 2, FailureDeadline: time.Second}, 1, (*faultlab.Proc).Stop, func(p *faultlab.Proc) {
				p.Cont()
				f := p.ExpectFailure("failed with")
				require.True(t, f.Has("ErrPeerLost"), "%v", f)
				require.Equal(t, p.Rank, f.PE, "%v", f)
				p.WaitDone()
			})
		})
	}
}

func inACall(t *testing.T, a callArgs, victim int, strike, after func(p *faultlab.Proc)) {
	j := faultlab.Start(t, faultlab.Spec{Role: "calls", N: 4, Args: a})
	j.Expect("ready")
	strike(j.Procs[victim])
	for _, p := range j.Procs {
		if p.Rank != victim {
			f := p.ExpectFailure("failed with")
			require.True(t, f.Has("ErrPeerLost"), "rank %d: %v", p.Rank, f)
			require.Equal(t, victim, f.PE, "rank %d: %v", p.Rank, f)
			p.WaitDone()
		}
	}
	if after != nil {
		after(j.Procs[victim])
	}
}
