package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"goshmem/bench"
	"goshmem/bench/report"
	"goshmem/cmd/goshmem/internal/launch"
	"goshmem/internal/errs"
)

const benchText = `
Runs a program of package bench and prints each figure beside the floor that the
machine had in the same run: latencies in ns, bandwidths in GB/s, rates in M/s.
"far" marks figures taken while a cache line took long between the two PEs,
"flipped" those during which that changed.

The PEs are processes that this command starts, each bound to a core; with
-inprocess they are goroutines. With -hosts a,b they are on these hosts, as by goshmem
run -hosts, and what goes over TCP has a raw connection between them as its floor. Under another launcher every process is given
-join: mpirun -n 2 goshmem bench put -join.

goshmem bench report FILE… [-o PAGE.html] makes a page of files of JSON lines (-json);
without -o it prints Markdown. goshmem bench diff OLD NEW [-percent 10] compares two;
with the lines of several runs in each file (>>) it tells change from chance.

Exit status: 0, 1 if data was wrong, a program failed or diff found a regression, 2
for a wrong command line.
`

func benchCommand() command {
	var usage strings.Builder
	bench.Usage(&usage)
	return command{
		name:  "bench",
		args:  "program [flags]",
		brief: "measure the runtime on this machine",
		text:  strings.TrimSpace(benchText) + "\n\n" + usage.String(),
		setup: func(*flag.FlagSet) func(stdio, []string) int { return runBench },
	}
}

func runBench(std stdio, args []string) int {
	var err error
	if len(args) > 0 && (args[0] == "report" || args[0] == "diff") {
		err = report.Main(args, std.out)
	} else {
		err = bench.Main(context.Background(), args, std.out, std.err, startBench)
	}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errs.ErrConfig) && !errors.Is(err, bench.ErrVerify):
		return misused(std, "bench", err)
	}
	fmt.Fprintf(std.err, "goshmem: %v\n", err)
	return exitFailed
}

// startBench starts this program again as the PEs of a world.
func startBench(ctx context.Context, j bench.Job) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cfg := launch.Config{
		N: j.PEs, Program: self, Args: append([]string{"bench"}, j.Args...),
		Bind: launch.BindNone, Grace: launch.DefaultGrace, Stdout: j.Stdout, Stderr: j.Stderr,
	}
	if j.Hosts != "" {
		if cfg.Hosts, err = launch.ParseHosts(j.Hosts); err != nil {
			return err
		}
		cfg.Agent, cfg.Remote = j.Agent, j.Remote
		if cfg.Remote != "" {
			cfg.Program = cfg.Remote
		}
	}
	if j.Bind {
		cfg.Bind = launch.BindCore
	}
	if j.Device {
		defer onGPUs(&cfg, j.Stderr)()
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, launch.Signals()...)
	defer signal.Stop(signals)
	status, err := launch.Run(ctx, cfg, signals)
	if err != nil {
		return err
	}
	if status != 0 {
		return fmt.Errorf("the processes ended with status %d", status)
	}
	return nil
}
