package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"goshmem/internal/options"
)

// command is one row of the table.
type command struct {
	name  string
	args  string // what follows the name: "[flags] program [arguments]"
	brief string // one line for the overview
	text  string // paragraphs for its own help; empty: none
	// setup declares the flags and returns the body, which gets what follows
	// them and returns the exit status.
	setup func(fs *flag.FlagSet) func(std stdio, args []string) int
}

// commands is the table, in the order of the overview.
func commands() []command {
	return []command{
		runCommand(),
		agentCommand(),
		infoCommand(),
		benchCommand(),
		planCommand(),
		versionCommand(),
	}
}

func find(name string) (command, bool) {
	for _, c := range commands() {
		if c.name == name {
			return c, true
		}
	}
	return command{}, false
}

// invoke parses the flags and runs the body.
func (c command) invoke(std stdio, args []string) int {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // what it would say is said below
	body := c.setup(fs)
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		c.help(std.out, fs)
		return exitOK
	}
	if err != nil {
		return misused(std, c.name, options.FlagError(fs, err))
	}
	return body(std, fs.Args())
}

// misused reports a wrong command line.
func misused(std stdio, name string, err error) int {
	fmt.Fprintf(std.err, "goshmem %s: %v\nsee goshmem help %s\n", name, err, name)
	return exitUsage
}

// help writes a command's own help.
func (c command) help(w io.Writer, fs *flag.FlagSet) {
	fmt.Fprintf(w, "usage: goshmem %s\n\n%s\n", strings.TrimSpace(c.name+" "+c.args), c.brief)
	if c.text != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(c.text))
	}
	flags := 0
	fs.VisitAll(func(*flag.Flag) { flags++ })
	if flags > 0 {
		fmt.Fprint(w, "\nFlags:\n")
		fs.SetOutput(w)
		fs.PrintDefaults()
	}
}

// overview writes the list of commands.
func overview(w io.Writer) {
	fmt.Fprint(w, "usage: goshmem command [flags] [arguments]\n\nCommands:\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range commands() {
		fmt.Fprintf(t, "  %s\t%s\n", c.name, c.brief)
	}
	_ = t.Flush()
	fmt.Fprint(w, "\ngoshmem help COMMAND tells more of one.\n")
}

// help is goshmem help [command].
func help(std stdio, args []string) int {
	if len(args) == 0 {
		overview(std.out)
		return exitOK
	}
	c, ok := find(args[0])
	if !ok {
		fmt.Fprintf(std.err, "goshmem: no command %q; see goshmem help\n", args[0])
		return exitUsage
	}
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	c.setup(fs)
	c.help(std.out, fs)
	return exitOK
}
