package main

import (
	"fmt"
	"io"
	"os"
)

// Exit statuses of the tool itself.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// stdio is what a command reads and writes.
type stdio struct {
	in       *os.File
	out, err io.Writer
}

func main() {
	os.Exit(dispatch(stdio{os.Stdin, os.Stdout, os.Stderr}, os.Args[1:]))
}

// dispatch runs the command that args name and returns the exit status.
func dispatch(std stdio, args []string) int {
	if len(args) == 0 {
		overview(std.err)
		return exitUsage
	}
	name, rest := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		return help(std, rest)
	case "-version", "--version":
		name = "version"
	}
	c, ok := find(name)
	if !ok {
		fmt.Fprintf(std.err, "goshmem: no command %q; see goshmem help\n", name)
		return exitUsage
	}
	return c.invoke(std, rest)
}
