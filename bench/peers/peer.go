package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

//go:embed src
var sources embed.FS

// peer is another library's program, with one way to start it.
type peer struct {
	name     string
	source   string
	compiler []string // and its flags
	launcher []string
	program  string // once built
}

// peers are those that are compared with, in the ways that make one or the other
// of them fast.
func peers(getenv func(string) string) []peer {
	command := func(variable, standard string) []string {
		if f := strings.Fields(getenv(variable)); len(f) > 0 {
			return f
		}
		return []string{standard}
	}
	mpi := func(name string, flags ...string) peer {
		return peer{name: name, source: "mpi.c", compiler: command("MPICC", "mpicc"), launcher: append(command("MPIRUN", "mpirun"), flags...)}
	}
	shmem := func(name string, flags ...string) peer {
		return peer{name: name, source: "shmem.c", compiler: command("OSHCC", "oshcc"), launcher: append(command("OSHRUN", "oshrun"), flags...)}
	}
	bound := []string{"--bind-to", "core:overload-allowed", "--oversubscribe"}
	free := []string{"--bind-to", "none", "--oversubscribe"}
	vader := []string{"--mca", "pml", "ob1", "--mca", "btl", "self,vader"}
	return []peer{
		mpi("openmpi", bound...), mpi("openmpi-free", free...),
		mpi("openmpi-vader", append(vader, bound...)...), mpi("openmpi-vader-free", append(vader, free...)...),
		shmem("oshmem", bound...), shmem("oshmem-free", free...),
	}
}

// build compiles the program, once for all peers that have it in common.
func (p *peer) build(ctx context.Context, dir string) error {
	program := filepath.Join(dir, strings.TrimSuffix(p.source, ".c"))
	if _, err := os.Stat(program); err != nil {
		for _, name := range []string{"measure.h", p.source} {
			text, err := sources.ReadFile("src/" + name)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				return err
			}
		}
		// Libraries go last: a compiler given as gcc with flags has them among these.
		args := append([]string{"-O2", "-o", program, filepath.Join(dir, p.source)}, p.compiler[1:]...)
		if _, err := output(ctx, settings{limit: time.Minute}, p.compiler[0], append(args, "-lm")...); err != nil {
			return fmt.Errorf("cannot be built: %w", err)
		}
	}
	p.program = program
	return nil
}

// run is one job.
func (p *peer) run(ctx context.Context, s settings, l suite) ([]byte, error) {
	args := append([]string{}, p.launcher[1:]...)
	if os.Geteuid() == 0 {
		args = append(args, "--allow-run-as-root")
	}
	batch := 50 * time.Microsecond
	if l.pes > runtime.NumCPU() {
		batch = 2 * time.Millisecond
	}
	args = append(args, "-n", strconv.Itoa(l.pes), p.program, l.op, strconv.FormatInt(s.time.Nanoseconds(), 10), strconv.FormatInt(batch.Nanoseconds(), 10))
	for _, n := range l.sizes {
		args = append(args, strconv.FormatInt(n, 10))
	}
	return output(ctx, s, p.launcher[0], args...)
}
