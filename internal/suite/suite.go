package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"goshmem/pe"
)

// Case is one test: the body of every PE.
type Case struct {
	Name string
	PEs  int              // fewest PEs that it makes sense with; 0: 1
	Heap int64            // bytes of heap; 0: 1 MiB
	Set  func(*pe.Config) // what else it needs; nil: nothing
	// Leaves: PEs leave when they are done; else they wait for each other.
	Leaves bool
	Run    func(e *Env)
}

// Setup is where cases run.
type Setup struct {
	Name   string
	Config pe.Config
	Launch Launcher // nil: pe.Run
}

// Launcher runs fn as the body of every PE of a world of cfg.Size PEs.
type Launcher func(ctx context.Context, cfg pe.Config, fn func(*pe.PE) error) error

// patience ends a wait that would never end; a test that needs it has failed.
const patience = 30 * time.Second

// Run runs the cases, each in a world of its own, as subtests.
func Run(t *testing.T, s Setup, cases []Case) {
	t.Helper()
	t.Run(s.Name, func(t *testing.T) {
		for _, c := range cases {
			if c.PEs <= s.Config.Size {
				t.Run(c.Name, func(t *testing.T) { c.run(t, s) })
			}
		}
	})
}

func (c Case) run(t *testing.T, s Setup) {
	cfg := s.Config
	cfg.HeapSize = c.Heap
	if cfg.HeapSize == 0 {
		cfg.HeapSize = 1 << 20
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = patience
	}
	if c.Set != nil {
		c.Set(&cfg)
	}
	launch := s.Launch
	if launch == nil {
		launch = pe.Run
	}
	ctx := t.Context()
	err := launch(ctx, cfg, func(p *pe.PE) error {
		return Body(ctx, p, cfg, func(e *Env) {
			c.Run(e)
			if !c.Leaves {
				e.Barrier()
			}
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// Body runs fn for one PE; a check of fn that fails becomes the error.
func Body(ctx context.Context, p *pe.PE, cfg pe.Config, fn func(e *Env)) error {
	return guarded(p.Rank(), func() { fn(&Env{Ctx: ctx, P: p, C: p.Context(), Config: cfg}) })
}

// guarded turns a failed check into an error.
func guarded(rank int, fn func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = fmt.Errorf("pe %d: %w", rank, r.err)
		default:
			panic(r)
		}
	}()
	fn()
	return nil
}

// failure is what a failed check panics with.
type failure struct{ err error }

// Joined is a Launcher whose PEs join one by one, each with a world, mappings
// and proxy of its own, as processes do; they only share this one.
func Joined(ctx context.Context, cfg pe.Config, fn func(*pe.PE) error) error {
	cfg.Rendezvous = fmt.Sprintf("unix:@goshmem-suite-%d-%d", os.Getpid(), joins.Add(1))
	var g errgroup.Group
	for rank := range cfg.Size {
		cfg := cfg
		cfg.Rank = rank
		g.Go(func() error {
			p, err := pe.Join(ctx, cfg)
			if err != nil {
				return err
			}
			// Nobody abandons a PE without a process of its own: the others end by
			// their deadlines.
			return errors.Join(fn(p), p.Close(context.WithoutCancel(ctx)))
		})
	}
	return g.Wait()
}

var joins atomic.Uint64

// Matrix is the setups that every suite runs on: paths, ring capacities, and
// numbers of PEs up to more than there are cores; joined PEs last. A short one
// has a few of each.
func Matrix(short bool) []Setup {
	var all []Setup
	add := func(path string, ring int, sizes ...int) {
		for _, size := range sizes {
			all = append(all, Setup{
				Name:   fmt.Sprintf("%s/ring%d/pes%d", path, ring, size),
				Config: pe.Config{Path: path, RingCapacity: ring, Size: size},
			})
		}
	}
	joined := func(path string, ring int) {
		all = append(all, Setup{
			Name:   "joined/" + path,
			Config: pe.Config{Path: path, RingCapacity: ring, Size: 3},
			Launch: Joined,
		})
	}
	if short {
		add("direct", 1024, 2, 5)
		add("proxy", 1, 1, 3)
		add("proxy", 1024, 2)
		add("tcp", 16, 2)
		joined("proxy", 4)
		joined("tcp", 1024)
		return all
	}
	add("direct", 1024, 1, 2, 3, 5)
	add("direct", 1, 2)
	add("proxy", 1, 1, 2, 3, 5)
	add("proxy", 2, 2, 5)
	add("proxy", 1024, 1, 3, 5)
	add("tcp", 1, 2)
	add("tcp", 1024, 1, 3, 5)
	all = append(all, Setup{Name: "nodes/pes4", Config: pe.Config{Nodes: 2, Net: "tcp", Size: 4, RingCapacity: 1024}})
	joined("direct", 1024)
	joined("proxy", 4)
	joined("tcp", 1024)
	return all
}
