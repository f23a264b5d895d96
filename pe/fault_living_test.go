package pe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"goshmem/coll"
	"goshmem/internal/faultlab"
	"goshmem/pe"
	"goshmem/rma"
)

// carryOnArgs says who will be lost, and how.
type carryOnArgs struct {
	workArgs
	Victim int
	Holder bool // the victim holds the hub: its loss closes the world
}

// carryOnRole loses a PE, acknowledges that, and goes on among the living.
func carryOnRole(ctx context.Context, c *faultlab.Child, a carryOnArgs) error {
	p, err := pe.Join(ctx, a.config(c))
	if err != nil {
		return err
	}
	s, err := newSite(ctx, c, p)
	if err != nil {
		return err
	}
	old, err := p.AllocMem(ctx, 1<<10, 0)
	if err != nil {
		return err
	}
	if err := coll.Sync(ctx, p.Team()); err != nil {
		return err
	}
	c.Report("ready", nil)
	err = rma.WaitSignal(ctx, p.Context(), s.sigs.At(p.Size()), rma.GE, 1)
	c.Report("failed with", faultlab.Describe(err))
	if !errors.Is(err, pe.ErrPeerLost) {
		return fmt.Errorf("the wait ended with %w", err)
	}
	if err := ackLost(p, a.Victim); err != nil {
		return err
	}
	if a.Holder {
		return closedWorld(ctx, s)
	}
	if err := amongTheLiving(ctx, s, a.Victim); err != nil {
		return err
	}
	if err := p.Free(ctx, old); err != nil {
		return fmt.Errorf("free: %w", err)
	}
	c.Report("freed", nil)
	if err := smallerTeam(ctx, s, a.Victim); err != nil {
		return err
	}
	if err := smallerWorld(ctx, c, a); err != nil {
		return err
	}
	return p.Close(ctx)
}

func ackLost(p *pe.PE, victim int) error {
	if err := p.AckLost(victim); err != nil {
		return err
	}
	if err := p.AckLost(p.Rank()); !errors.Is(err, pe.ErrConfig) {
		return fmt.Errorf("acknowledged the loss of the living: %w", err)
	}
	if err := p.AckLost(p.Size()); !errors.Is(err, pe.ErrPeer) {
		return fmt.Errorf("acknowledged the loss of nobody: %w", err)
	}
	return p.AckLost(victim) // again
}

// hop sends payloads with a signal round the PEs in order: each to the next, and
// so on. first is the number of the first, the same on every PE.
func hop(ctx context.Context, s *site, members []int, first, rounds int, opts func(prev int) []rma.WaitOption) error {
	c := s.pe.Context()
	at := -1
	for i, m := range members {
		if m == s.pe.Rank() {
			at = i
		}
	}
	n := len(members)
	next, prev := members[(at+1)%n], members[(at+n-1)%n]
	src := make([]byte, boxSize)
	own, err := s.pe.LocalBytes(s.box.Add(uint64(boxSize*prev)), boxSize)
	if err != nil {
		return err
	}
	for round := range uint64(rounds) {
		v := uint64(first) + round
		for i := range src {
			src[i] = byte(v)
		}
		if err := rma.PutMemSignal(c, s.box.Add(uint64(boxSize*c.Rank())), src, s.sigs.At(0), rma.SignalSet, v, next); err != nil {
			return fmt.Errorf("hop %d to pe %d: %w", v, next, err)
		}
		if err := rma.WaitSignal(ctx, c, s.sigs.At(0), rma.GE, v, opts(prev)...); err != nil {
			return fmt.Errorf("hop %d from pe %d: %w", v, prev, err)
		}
		// The sender may be ahead, by less than once round.
		if ahead := own[0] - byte(v); int(ahead) >= n {
			return fmt.Errorf("hop %d from pe %d: a payload of %d", v, prev, own[0])
		}
	}
	return nil
}

func named(prev int) []rma.WaitOption { return []rma.WaitOption{rma.From(prev)} }
func unnamed(int) []rma.WaitOption    { return nil }

func livingOf(n, victim int) []int {
	var out []int
	for i := range n {
		if i != victim {
			out = append(out, i)
		}
	}
	return out
}

func amongTheLiving(ctx context.Context, s *site, victim int) error {
	p, living := s.pe, livingOf(s.pe.Size(), victim)
	for i, opts := range []func(int) []rma.WaitOption{named, unnamed} {
		if err := hop(ctx, s, living, 1+50*i, 50, opts); err != nil {
			return err
		}
	}
	c := p.Context()
	for what, err := range map[string]error{
		"put":              rma.PutMem(c, s.box, make([]byte, 8), victim),
		"signal":           rma.Signal(c, s.sigs.At(0), rma.SignalSet, 1, victim),
		"wait that names":  rma.WaitSignal(ctx, c, s.sigs.At(p.Size()), rma.GE, 1, rma.From(victim)),
		"barrier of all":   coll.Barrier(ctx, p.Team()),
		"another such one": coll.Sync(ctx, p.Team()),
	} {
		if e, ok := errors.AsType[*pe.PeerLostError](err); !ok || e.PE != victim {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	ref, err := p.AllocMem(ctx, 64<<10, 0)
	if err != nil {
		return fmt.Errorf("alloc: %w", err)
	}
	return p.Free(ctx, ref)
}

// smallerTeam splits the world anew and uses the collectives of what is left.
func smallerTeam(ctx context.Context, s *site, victim int) error {
	t, err := s.pe.Team().Split(ctx, 0, 0)
	if err != nil {
		return fmt.Errorf("split: %w", err)
	}
	if t.Size() != s.pe.Size()-1 {
		return fmt.Errorf("split: a team of %d without pe %d", t.Size(), victim)
	}
	for range 20 {
		if err := coll.Barrier(ctx, t); err != nil {
			return fmt.Errorf("barrier of the living: %w", err)
		}
	}
	return t.Free(ctx)
}

// smallerWorld makes another world of the processes that are left, while the old
// one is still open.
func smallerWorld(ctx context.Context, c *faultlab.Child, a carryOnArgs) error {
	cfg := a.config(c)
	cfg.Rank, cfg.Size, cfg.Rendezvous = c.Rank, c.Size-1, c.Rendezvous+"-again"
	if cfg.Rank > a.Victim {
		cfg.Rank--
	}
	cfg.HeapSize *= 2
	p, err := pe.Join(ctx, cfg)
	if err != nil {
		return err
	}
	s, err := newSite(ctx, c, p)
	if err != nil {
		return err
	}
	if err := hop(ctx, s, livingOf(p.Size(), -1), 1, 50, named); err != nil {
		return fmt.Errorf("the new world: %w", err)
	}
	return p.Close(ctx)
}

// closedWorld checks that nothing waits for losses that nobody tells of.
func closedWorld(ctx context.Context, s *site) error {
	other := (s.pe.Rank() + 1) % s.pe.Size()
	if other == 0 {
		other++
	}
	c := s.pe.Context()
	_, allocErr := s.pe.AllocMem(ctx, 64, 0)
	for what, err := range map[string]error{
		"wait from the other": rma.WaitSignal(ctx, c, s.sigs.At(s.pe.Size()), rma.GE, 1, rma.From(other)),
		"put to the other":    rma.PutMem(c, s.box, make([]byte, 8), other),
		"alloc":               allocErr,
	} {
		if e, ok := errors.AsType[*pe.PeerLostError](err); !ok || e.PE != 0 {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return s.pe.Close(ctx)
}

// stoppedRole is a worker that will be stopped and find itself lost.
func stoppedRole(ctx context.Context, c *faultlab.Child, a workArgs) error {
	_, s, err := begin(ctx, c, a)
	if err != nil {
		return err
	}
	return selfLost(ctx, c, s, waitWork(ctx, s))
}

func selfLost(ctx context.Context, c *faultlab.Child, s *site, err error) error {
	other := (c.Rank + 1) % c.Size
	_, allocErr := s.pe.AllocMem(ctx, 64, 0)
	for what, err := range map[string]error{
		"the wait":                err,
		"put":                     rma.PutMem(s.pe.Context(), s.box, make([]byte, 8), other),
		"signal":                  rma.Signal(s.pe.Context(), s.sigs.At(0), rma.SignalSet, 1, other),
		"wait":                    rma.WaitSignal(ctx, s.pe.Context(), s.sigs.At(c.Size), rma.GE, 1),
		"a wait that names":       rma.WaitSignal(ctx, s.pe.Context(), s.sigs.At(c.Size), rma.GE, 1, rma.From(other)),
		"barrier":                 coll.Barrier(ctx, s.pe.Team()),
		"alloc":                   allocErr,
		"an exchange of the team": gather(ctx, s.pe),
	} {
		if e, ok := errors.AsType[*pe.PeerLostError](err); !ok || e.PE != c.Rank {
			return fmt.Errorf("%s, by the lost: %w", what, err)
		}
	}
	return s.pe.Close(ctx)
}

func gather(ctx context.Context, p *pe.PE) error {
	_, err := p.Team().Gather(ctx, "x", nil)
	return err
}

func TestCarryOn(t *testing.T) {
	for _, path := range []string{"direct", "proxy"} {
		for _, launcher := range []bool{false, true} {
			for _, n := range []int{3, 5} {
				t.Run(fmt.Sprintf("%s/launcher %v/%d PEs", path, launcher, n), func(t *testing.T) {
					victim := 1
					if launcher {
						victim = 0
					}
					j := faultlab.Start(t, faultlab.Spec{
						Role: "carry on", N: n, Launcher: launcher,
						Args: carryOnArgs{workArgs: workArgs{Path: path, FailureDeadline: time.Minute}, Victim: victim},
					})
					j.Expect("ready")
					j.Procs[victim].Kill()
					j.WaitAll()
				})
			}
		}
	}
}

// The loss of who holds the hub closes the world: nobody could tell of others.
func TestHolderKilled(t *testing.T) {
	j := faultlab.Start(t, faultlab.Spec{
		Role: "carry on", N: 3,
		Args: carryOnArgs{workArgs: workArgs{Path: "direct", FailureDeadline: time.Minute}, Holder: true},
	})
	j.Expect("ready")
	j.Procs[0].Kill()
	j.WaitAll()
}

const stopDeadline = time.Second

// A PE that is stopped past the failure deadline is lost, and finds itself lost
// when it resumes.
func TestStopPastDeadline(t *testing.T) {
	for _, launcher := range []bool{false, true} {
		for victim := range 3 {
			t.Run(fmt.Sprintf("launcher %v/rank %d", launcher, victim), func(t *testing.T) {
				t.Parallel()
				j := faultlab.Start(t, faultlab.Spec{
					Role: "work", N: 3, Launcher: launcher, FailureDeadline: stopDeadline,
					Args: workArgs{Work: "wait", FailureDeadline: stopDeadline},
					Each: func(rank int, p *faultlab.Plan) {
						if rank == victim {
							p.Role = "stopped"
						}
					},
				})
				j.Expect("ready")
				stopped := j.Procs[victim]
				stopped.Stop()
				expectLoss(t, j, victim)
				stopped.Cont()
				stopped.WaitDone()
			})
		}
	}
}

// A lost PE that only is stopped may wake up in the middle of a copy: it is
// killed before memory that it may write to is used again.
func TestFreeKillsTheStopped(t *testing.T) {
	t.Parallel()
	const victim = 1
	j := faultlab.Start(t, faultlab.Spec{
		Role: "carry on", N: 3,
		Args: carryOnArgs{workArgs: workArgs{FailureDeadline: stopDeadline}, Victim: victim},
	})
	j.Expect("ready")
	j.Procs[victim].Stop()
	j.Procs[victim].WaitKilled()
	j.WaitAll()
}
