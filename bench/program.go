package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"goshmem/pe"
)

// program is one entry of the tool's list.
type program struct {
	name, text string

	pes      int // default number of PEs; 0: none of its own
	least    int // fewest PEs
	sizes    []int64
	time     time.Duration // default for each figure; 0: defaultTime
	smallest int64         // size allowed
	multiple int64         // of which sizes must be; 0: any
	only     []int64       // sizes allowed; nil: any
	algo     bool          // has -algo
	unbound  bool          // needs more processors than PEs: not bound unless -bind core says so

	solo bool // runs in the tool's process, with worlds of its own
	work func(ctx context.Context, e *env) error
	cuda func(ctx context.Context, e *env) error                // work on device memory; nil: it has none
	run  func(ctx context.Context, cfg Config, emit Emit) error // of a solo program

	heap  func(c *Config) (int64, error) // symmetric memory beside one buffer of the largest size
	check func(c *Config) error          // further conditions
}

// Emit takes a result; on PE 0 only.
type Emit func(Result) error

func programs() []program {
	all := []program{
		putProgram(), getProgram(), putSignalProgram(), amoProgram(), barrierProgram(),
		ringProgram(), pairsProgram(), contendedProgram(), orderProgram(), waitProgram(), overlapProgram(),
		channelProgram(), moeProgram(), gcProgram(), idleProgram(), worldsProgram(), joinProgram(),
	}
	return append(all, collPrograms()...)
}

// Names lists the programs, each with what it measures.
func Names() (names, texts []string) {
	for _, p := range programs() {
		names, texts = append(names, p.name), append(texts, p.text)
	}
	return names, texts
}

func find(name string) (program, error) {
	names, _ := Names()
	names = append(names, all, scale)
	for _, p := range programs() {
		if p.name == name {
			return p, nil
		}
	}
	if name == "" {
		return program{}, fmt.Errorf("bench: no program named: want one of %s: %w", strings.Join(names, ", "), pe.ErrConfig)
	}
	return program{}, fmt.Errorf("bench: no program %q: want one of %s: %w", name, strings.Join(names, ", "), pe.ErrConfig)
}

// Work is the part of one PE in a program that runs in a world. Every PE of the
// world calls it with the same configuration; PE 0 emits the results, and gets
// ErrVerify if some data was wrong.
func Work(ctx context.Context, p *pe.PE, cfg Config, emit Emit) error {
	prog, err := cfg.complete()
	if err != nil {
		return err
	}
	if prog.solo {
		return fmt.Errorf("bench: %s runs in a process of its own: %w", cfg.Name, pe.ErrUnsupported)
	}
	if !cfg.entered.IsZero() {
		cfg.joined = time.Since(cfg.entered)
	}
	if p.Size() != cfg.PEs {
		return fmt.Errorf("bench: %s: the world has %d PEs, not %d (-n): %w", cfg.Name, p.Size(), cfg.PEs, pe.ErrConfig)
	}
	e, err := newEnv(ctx, p, cfg, emit)
	if err != nil {
		return err
	}
	work := prog.work
	if cfg.Mem == memCUDA {
		work = prog.cuda
	}
	if err := work(ctx, e); err != nil {
		return err
	}
	return e.verdict()
}

// Run runs a program in this process: PEs are goroutines.
func Run(ctx context.Context, cfg Config, emit Emit) error {
	prog, err := cfg.complete()
	if err != nil {
		return err
	}
	if prog.solo {
		return prog.run(ctx, cfg, emit)
	}
	wc, err := cfg.World()
	if err != nil {
		return err
	}
	wc.Size = cfg.PEs
	cfg.entered = time.Now()
	// What the caller's function said goes before what the other PEs then found.
	var stopped error
	err = pe.Run(ctx, wc, func(p *pe.PE) error {
		return Work(ctx, p, cfg, func(r Result) error {
			stopped = emit(r)
			return stopped
		})
	})
	if stopped != nil {
		return stopped
	}
	return err
}
