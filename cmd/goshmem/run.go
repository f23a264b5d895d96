package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"goshmem/cmd/goshmem/internal/launch"
	"goshmem/internal/errs"
	"goshmem/internal/options"
)

const runText = `
Starts N processes of the program. Each is one PE of a world that it joins by
pe.Run or pe.Join; which PE it is and where they meet it finds in GOSHMEM_RANK,
GOSHMEM_SIZE, GOSHMEM_LOCAL_RANK, GOSHMEM_LOCAL_SIZE, GOSHMEM_RENDEZVOUS,
GOSHMEM_SECRET and GOSHMEM_HUB. Options (GOSHMEM_*, see goshmem info) come from
the environment and from -env.

With -nodes PEs of different simulated nodes share no memory: what they send each
other takes a simulated link, whose latency, bandwidth and time a post are
options (GOSHMEM_SIM_*).

Lines of output stay whole. PE 0 gets the standard input.

When a PE ends with a status other than 0, or without leaving its world, the
others have the grace period to notice (their operations give ErrPeerLost) and to
end by themselves; then they get SIGTERM, and SIGKILL a little later. With a long
-grace the rest of a job can go on without a PE.

^C, SIGTERM, SIGHUP and SIGQUIT are passed on; the second one kills. ^Z stops
the PEs too. If the launcher itself is killed, so are the PEs.

Exit status: 0 if all PEs ended with 0, else that of the PE that failed first,
128 and the number of the signal for one that a signal ended; 124 after
-timeout; 127 if there is no such program, 126 if it cannot be executed, 2 for a
wrong command line.
`

func runCommand() command {
	return command{
		name:  "run",
		args:  "[flags] program [arguments]",
		brief: "start a program as the PEs of one world",
		text:  runText,
		setup: func(fs *flag.FlagSet) func(stdio, []string) int {
			cfg := launch.Config{Bind: launch.BindNone}
			fs.IntVar(&cfg.N, "n", 1, "`number` of PEs")
			fs.IntVar(&cfg.Nodes, "nodes", 0, "simulate `K` nodes: the PEs are dealt to them in blocks (GOSHMEM_NODES)")
			fs.BoolVar(&cfg.Prefix, "prefix", false, "put the PE's rank before each line of output: [3] text")
			fs.DurationVar(&cfg.Timeout, "timeout", 0, "end the job after this `time`, with status 124; 0: never")
			fs.DurationVar(&cfg.Grace, "grace", launch.DefaultGrace, "`time` for the other PEs to end by themselves after one failed")
			fs.StringVar((*string)(&cfg.Bind), "bind", string(cfg.Bind), "`where` a PE may run: none (anywhere) or core (a core for each, in turn)")
			fs.Func("env", "set a variable for the PEs, `NAME=VALUE`; may be repeated", func(s string) error {
				cfg.Env = append(cfg.Env, s)
				return nil
			})
			stdin := fs.Bool("stdin", true, "give PE 0 the standard input; otherwise it is empty as the others' is")
			fs.BoolVar(&cfg.Verbose, "v", false, "tell of starts, joins, goodbyes and ends")
			return func(std stdio, args []string) int {
				if len(args) == 0 {
					return misused(std, "run", errors.New("no program"))
				}
				cfg.Program, cfg.Args = args[0], args[1:]
				cfg.Stdout, cfg.Stderr = std.out, std.err
				if *stdin {
					cfg.Stdin = std.in
				}
				return runJob(std, cfg)
			}
		},
	}
}

func runJob(std stdio, cfg launch.Config) int {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, launch.Signals()...)
	defer signal.Stop(signals)
	status, err := launch.Run(context.Background(), cfg, signals)
	if err == nil {
		return status
	}
	if e, ok := errors.AsType[*launch.StartError](err); ok {
		fmt.Fprintf(std.err, "goshmem: %v\n", e)
		return e.Status()
	}
	if _, isOption := errors.AsType[*options.Error](err); !isOption && errors.Is(err, errs.ErrConfig) {
		return misused(std, "run", err)
	}
	fmt.Fprintf(std.err, "goshmem: %v\n", err)
	if errors.Is(err, errs.ErrConfig) {
		return exitUsage
	}
	return exitFailed
}
