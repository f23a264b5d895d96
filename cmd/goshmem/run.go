package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"goshmem/cmd/goshmem/internal/launch"
	"goshmem/internal/bootstrap"
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

Where PEs with device heaps (GOSHMEM_DEVICE_HEAP) share a GPU, an MPS daemon of
their own is started if none runs, and stopped behind them.

Lines of output stay whole. PE 0 gets the standard input.

When a PE ends with a status other than 0, or without leaving its world, the
others have the grace period to notice (their operations give ErrPeerLost) and to
end by themselves; then they get SIGTERM, and SIGKILL a little later. With a long
-grace the rest of a job can go on without a PE.

^C, SIGTERM, SIGHUP and SIGQUIT are passed on; the second one kills. ^Z stops
the PEs too. If the launcher itself is killed, so are the PEs.

With -hosts the PEs are dealt to hosts in blocks. On each the launcher starts
this tool's agent by ssh, or by another -agent (AGENT HOST TOOL agent), and talks
to it over its standard input and output; the job's secret goes that way, never
by a command line. An agent that ends, or is silent for the failure deadline, takes
its PEs with it, and an agent whose launcher is gone ends them. The PEs meet at a
TCP port of the launcher, whose interface is the one that faces the hosts
(GOSHMEM_INTERFACE chooses another), or at -rendezvous, or else at
GOSHMEM_RENDEZVOUS. They start in the
launcher's directory with its GOSHMEM_ variables and those of -env. A program
that cannot be started on one of the hosts is started nowhere for long.

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
			hosts := fs.String("hosts", "", "run on these `hosts`, a,b,c; -n is then for all of them, by default one PE each")
			fs.IntVar(&cfg.PPN, "ppn", 0, "`number` of PEs on each host")
			fs.StringVar(&cfg.Agent, "agent", "", "`command` that starts a program on a host (default "+launch.DefaultAgent+")")
			fs.StringVar(&cfg.Remote, "remote", "", "`path` of goshmem on the hosts; by default as here")
			fs.StringVar(&cfg.Dir, "dir", "", "`directory` that the PEs start in; by default this one")
			fs.StringVar(&cfg.Rendezvous, "rendezvous", "", "`address` that the PEs meet at, host:port of this host; by default a free one")
			stdin := fs.Bool("stdin", true, "give PE 0 the standard input; otherwise it is empty as the others' is")
			fs.BoolVar(&cfg.Verbose, "v", false, "tell of starts, joins, goodbyes and ends")
			return func(std stdio, args []string) int {
				if len(args) == 0 {
					return misused(std, "run", errors.New("no program"))
				}
				if *hosts != "" {
					var err error
					if cfg.Hosts, err = launch.ParseHosts(*hosts); err != nil {
						return misused(std, "run", err)
					}
					if !isSet(fs, "n") {
						cfg.N = 0
					}
					if cfg.Rendezvous == "" && os.Getenv(bootstrap.EnvRank) == "" { // else it is of the job that we are in
						cfg.Rendezvous = os.Getenv(bootstrap.EnvRendezvous)
					}
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

func isSet(fs *flag.FlagSet, name string) (set bool) {
	fs.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

func agentCommand() command {
	return command{
		name:  "agent",
		brief: "what run -hosts starts on each host",
		text:  "Takes its orders from the standard input, and ends when that does.",
		setup: func(*flag.FlagSet) func(stdio, []string) int {
			return func(std stdio, args []string) int {
				if len(args) > 0 {
					return misused(std, "agent", fmt.Errorf("unexpected %q", args[0]))
				}
				if err := launch.Agent(std.in, os.Stdout); err != nil {
					fmt.Fprintf(std.err, "goshmem: %v\n", err)
					return exitFailed
				}
				return exitOK
			}
		},
	}
}

func runJob(std stdio, cfg launch.Config) int {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, launch.Signals()...)
	defer signal.Stop(signals)
	stop := withGPUs(&cfg, std.err)
	defer stop()
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
