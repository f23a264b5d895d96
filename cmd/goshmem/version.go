package main

import (
	"flag"
	"fmt"
	"io"

	"goshmem/cmd/goshmem/internal/info"
)

func versionCommand() command {
	return command{
		name:  "version",
		brief: "print the version of the tool",
		setup: func(*flag.FlagSet) func(stdio, []string) int {
			return func(std stdio, args []string) int {
				if len(args) > 0 {
					return misused(std, "version", fmt.Errorf("unexpected %q", args[0]))
				}
				if _, err := io.WriteString(std.out, info.Version()); err != nil {
					return exitFailed
				}
				return exitOK
			}
		},
	}
}
