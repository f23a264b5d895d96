package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"goshmem/cmd/goshmem/internal/info"
)

const infoText = `
Prints the version, the options in force and where each came from, the machine,
how memory is copied, and by which path each PE of a world on this host would
reach each other one, and why. The paths are found out with a small world in
this process.

The exit status is 1 if some part could not be had, such as an option whose
value is not allowed.
`

const (
	infoTime   = 30 * time.Second // for all of it
	infoMaxPEs = 256              // whose pairs are still worth looking at
)

func infoCommand() command {
	return command{
		name:  "info",
		args:  "[flags]",
		brief: "tell options, machine and paths",
		text:  infoText,
		setup: func(fs *flag.FlagSet) func(stdio, []string) int {
			n := fs.Int("n", 2, "`number` of PEs of the world to look at")
			nodes := fs.Int("nodes", 0, "simulate `K` nodes in that world (GOSHMEM_NODES)")
			markdown := fs.Bool("md", false, "print Markdown")
			return func(std stdio, args []string) int {
				if len(args) > 0 {
					return misused(std, "info", fmt.Errorf("unexpected %q", args[0]))
				}
				if *n < 1 || *n > infoMaxPEs {
					return misused(std, "info", fmt.Errorf("-n %d is not in 1..%d", *n, infoMaxPEs))
				}
				if *nodes < 0 || *nodes > *n {
					return misused(std, "info", fmt.Errorf("-nodes %d is not in 0..%d", *nodes, *n))
				}
				ctx, cancel := context.WithTimeout(context.Background(), infoTime)
				defer cancel()
				sections := info.All(ctx, *n, *nodes)
				if err := info.Print(std.out, sections, *markdown); err != nil {
					return exitFailed
				}
				for _, s := range sections {
					if s.Err != nil {
						return exitFailed
					}
				}
				return exitOK
			}
		},
	}
}
