package pe_test

import (
	"context"
	"fmt"
	"time"

	"goshmem/coll"
	"goshmem/heap"
	"goshmem/internal/faultlab"
	"goshmem/pe"
	"goshmem/rma"
)

// faultRoles is what the processes of these tests do.
func faultRoles() map[string]faultlab.Role {
	roles := map[string]faultlab.Role{
		"work":     role(workRole),
		"carry on": role(carryOnRole),
		"stopped":  role(stoppedRole),
		"join":     role(joinRole),
		"traffic":  role(trafficRole),
		"full":     role(fullRole),
		"pending":  role(pendingRole),
		"early":    role(earlyRole),

		"second world": role(secondWorldRole),
		"rejoin":       role(rejoinRole),
		"crowd":        role(crowdRole),
		"idle":         role(idleRole),
		"busy":         role(busyRole),
		"burn":         burnRole,
		"device cases": deviceCasesRole,
		"device work":  deviceWorkRole,
		"descheduled":  role(descheduledRole),
		"short stop":   role(shortStopRole),
	}
	sleepRoles(roles)
	return roles
}

// workArgs says what a process does until it is told that a PE is lost.
type workArgs struct {
	Work string // a key of works
	Path string
	// Never sleep, or sleep at once, in waits.
	Spin, Sleep     bool
	FailureDeadline time.Duration

	Driver, Share string // of devices; empty: none
	Engine        bool
	Map           string
}

func (a workArgs) config(c *faultlab.Child) pe.Config {
	cfg := pe.Config{
		HeapSize: 1 << 20, Contexts: 8, Path: a.Path, RingCapacity: 4,
		FailureDeadline: a.FailureDeadline, CloseTimeout: 10 * time.Second,
	}
	if a.Driver != "" {
		cfg.DeviceEngine, cfg.DeviceMap = a.Engine, a.Map
		cfg.DeviceHeap, cfg.DeviceDriver, cfg.DeviceShare, cfg.DeviceStreams = 256<<20, a.Driver, a.Share, 4
	}
	if a.Spin {
		cfg.SleepAfter = time.Hour
	}
	if a.Sleep {
		cfg.SleepAfter, cfg.SpinTurns = 1, 1
	}
	if !c.Launcher {
		cfg.Rank, cfg.Size, cfg.Rendezvous = c.Rank, c.Size, c.Rendezvous
	}
	return cfg
}

// site is what the works share: the same on every PE.
type site struct {
	child *faultlab.Child
	pe    *pe.PE
	box   heap.Ref // 4 KiB for each source PE
	sigs  heap.Signals
}

const boxSize = 4 << 10

func newSite(ctx context.Context, c *faultlab.Child, p *pe.PE) (*site, error) {
	box, err := p.AllocMem(ctx, int64(boxSize*p.Size()), 0)
	if err != nil {
		return nil, err
	}
	sigs, err := p.AllocSignals(ctx, 2*p.Size())
	if err != nil {
		return nil, err
	}
	return &site{child: c, pe: p, box: box, sigs: sigs}, nil
}

// ready tells the test, once, that the work is well underway.
func (s *site) ready(round, at uint64) {
	if round == at {
		s.child.Report("ready", nil)
	}
}

// works go on until they fail.
func works() map[string]func(ctx context.Context, s *site) error {
	return map[string]func(ctx context.Context, s *site) error{
		"put":     putWork,
		"wait":    waitWork,
		"barrier": barrierWork,
		"alloc":   allocWork,
	}
}

func putWork(ctx context.Context, s *site) error {
	c, src := s.pe.Context(), make([]byte, boxSize)
	for round := uint64(1); ; round++ {
		for i := 1; i < c.Size(); i++ {
			to := (c.Rank() + i) % c.Size()
			dst := s.box.Add(uint64(boxSize * c.Rank()))
			if err := rma.PutMemSignal(c, dst, src, s.sigs.At(c.Rank()), rma.SignalSet, round, to); err != nil {
				return err
			}
		}
		if round%64 == 0 {
			if err := rma.Quiet(ctx, c); err != nil {
				return err
			}
		}
		s.ready(round, 200)
	}
}

func waitWork(ctx context.Context, s *site) error {
	done := make(chan struct{})
	defer func() { <-done }()
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(done)
		// Ready when it waits; with an eager sleeper, when it sleeps.
		for wait.Err() == nil {
			if a := (workArgs{}); s.child.Args(&a) == nil && (!a.Sleep || pe.Asleep(s.pe) > 0) {
				s.child.Report("ready", nil)
				return
			}
			time.Sleep(100 * time.Microsecond)
		}
	}()
	// Nobody sends it.
	return rma.WaitSignal(ctx, s.pe.Context(), s.sigs.At(s.pe.Size()), rma.GE, 1)
}

func barrierWork(ctx context.Context, s *site) error {
	for round := uint64(1); ; round++ {
		if err := coll.Barrier(ctx, s.pe.Team()); err != nil {
			return err
		}
		s.ready(round, 20)
	}
}

func allocWork(ctx context.Context, s *site) error {
	for round := uint64(1); ; round++ {
		ref, err := s.pe.AllocMem(ctx, 1000, 0)
		if err != nil {
			return err
		}
		if err := s.pe.Free(ctx, ref); err != nil {
			return err
		}
		s.ready(round, 5)
	}
}

// begin joins and waits for the others.
func begin(ctx context.Context, c *faultlab.Child, a workArgs) (*pe.PE, *site, error) {
	p, err := pe.Join(ctx, a.config(c))
	if err != nil {
		return nil, nil, err
	}
	s, err := newSite(ctx, c, p)
	if err != nil {
		return nil, nil, err
	}
	return p, s, coll.Sync(ctx, p.Team())
}

// workRole joins, works until a PE is lost, and closes.
func workRole(ctx context.Context, c *faultlab.Child, a workArgs) error {
	p, s, err := begin(ctx, c, a)
	if err != nil {
		return err
	}
	work, ok := works()[a.Work]
	if !ok {
		return fmt.Errorf("no work %q", a.Work)
	}
	c.Report("failed with", faultlab.Describe(work(ctx, s)))
	c.Report("lost", p.Lost())
	c.Report("closed", faultlab.Describe(p.Close(ctx)))
	return afterClose(ctx, p, s.box, s.sigs)
}

// role is what a process with arguments of type A does. What it has not given
// back at the end is an error.
func role[A any](body func(ctx context.Context, c *faultlab.Child, a A) error) faultlab.Role {
	return func(c *faultlab.Child) error {
		ctx, cancel := c.Context()
		defer cancel()
		var a A
		if err := c.Args(&a); err != nil {
			return err
		}
		return within(c, func() error { return body(ctx, c, a) })
	}
}

// within runs a body and reports as an error what it has not given back.
func within(c *faultlab.Child, body func() error) error {
	before, err := faultlab.Measure()
	if err != nil {
		return err
	}
	if err := body(); err != nil {
		return err
	}
	ctx, cancel := c.Context()
	defer cancel()
	for {
		after, err := faultlab.Measure()
		if err != nil {
			return err
		}
		leaks := after.Leaks(before)
		if len(leaks) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("left behind: %q", leaks)
		}
		time.Sleep(time.Millisecond)
	}
}
