package bench

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"goshmem/internal/options"
	"goshmem/pe"
)

// options of a command line.
type commandLine struct {
	Config
	JSON      bool
	InProcess bool // PEs as goroutines
	Join      bool // be a PE of the launcher's world
	Bind      string
	Repeat    int // how often; 0: once

	Hosts         string // that the processes run on, "a,b"; empty: this one
	Agent, Remote string // what starts a program on a host, and the tool there; empty: the launcher's defaults
}

// The bindings of processes.
const (
	bindAuto = "auto" // one core each
	bindCore = "core"
	bindNone = "none"
)

// quickTime is for each figure of all -quick.
const quickTime = 60 * time.Millisecond

// all is the name that stands for every program.
const all = "all"

// errHelp asks for the usage.
var errHelp = errors.New("bench: help wanted")

// parse reads NAME and flags.
func parse(args []string) (commandLine, error) {
	bad := func(format string, a ...any) (commandLine, error) {
		return commandLine{}, fmt.Errorf("bench: "+format+": %w", append(a, pe.ErrConfig)...)
	}
	if len(args) == 0 {
		_, err := find("")
		return commandLine{}, err
	}
	name := args[0]
	if strings.HasPrefix(name, "-") {
		if h := strings.TrimLeft(name, "-"); h == "h" || h == "help" {
			return commandLine{}, errHelp
		}
		return bad("the program's name comes first, not %q", name)
	}
	listed := lists()[name] != nil
	if !listed {
		if _, err := find(name); err != nil {
			return commandLine{}, err
		}
	}
	c := commandLine{Config: Config{Name: name}}
	fs := newFlags(&c)
	if err := fs.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return commandLine{}, errHelp
		}
		return bad("%s: %w", name, options.FlagError(fs, err))
	}
	if fs.NArg() > 0 {
		return bad("%s: unexpected argument %q", name, fs.Arg(0))
	}
	switch {
	case c.Bind != bindAuto && c.Bind != bindCore && c.Bind != bindNone:
		return bad("%s: -bind %q: want auto, core or none", name, c.Bind)
	case c.Repeat < 0 || c.Repeat > maxRepeat:
		return bad("%s: -repeat %d: want 1 to %d", name, c.Repeat, maxRepeat)
	case c.Join && c.Repeat > 1:
		return bad("%s: -join and -repeat exclude each other", name)
	case c.Join && c.InProcess:
		return bad("%s: -join and -inprocess exclude each other", name)
	case c.Hosts != "" && (c.Join || c.InProcess):
		return bad("%s: -hosts, and -join or -inprocess", name)
	case c.Hosts == "" && (c.Agent != "" || c.Remote != ""):
		return bad("%s: -agent and -remote are for -hosts", name)
	}
	if listed {
		if c.Time < 0 {
			return bad("%s: -time %v", name, c.Time)
		}
		return c, nil
	}
	check := c.Config
	prog, err := check.complete()
	if err == nil && (c.Join || c.Hosts != "") && prog.solo {
		return bad("%s: it runs in one process and joins no world", name)
	}
	return c, err
}

// newFlags declares the flags of a program.
func newFlags(c *commandLine) *flag.FlagSet {
	fs := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.BoolVar(&c.JSON, "json", false, "print one JSON object a figure")
	fs.DurationVar(&c.Time, "time", 0, "time for each figure (300ms)")
	fs.IntVar(&c.Repeat, "repeat", 0, "start the program so often, again where the machine changed, and tell how the medians agree")
	if lists()[c.Name] != nil {
		c.Bind = bindAuto
		fs.BoolFunc("quick", "a short time for each figure (60ms): in three minutes on two cores", func(string) error {
			c.Time = quickTime
			return nil
		})
		return fs
	}
	fs.IntVar(&c.PEs, "n", 0, "number of PEs (the program's default)")
	fs.StringVar(&c.Path, "path", "", "how operations reach a peer: auto, direct, proxy, … (GOSHMEM_PATH, auto)")
	fs.IntVar(&c.Nodes, "nodes", 0, "simulated nodes that the PEs are dealt to (GOSHMEM_NODES, none)")
	fs.StringVar(&c.Algo, "algo", "", "alltoallv between nodes: auto, direct or relay (auto)")
	fs.StringVar(&c.Spread, "spread", "", "bytes of an alltoallv's pairs: uniform, zipf, one-hot, zeros; a size is the longest pair's (uniform)")
	fs.StringVar(&c.Mem, "mem", "", "memory that payloads lie in: host, or cuda (put, get, put-signal, amo, barrier, moe)")
	fs.Func("sizes", "message sizes, as in 8,4KiB,1MiB (the program's default)", func(s string) error {
		for f := range strings.SplitSeq(s, ",") {
			n, err := options.ParseBytes(f)
			if err != nil {
				return err
			}
			c.Sizes = append(c.Sizes, n)
		}
		return nil
	})
	fs.IntVar(&c.Iters, "iters", 0, "operations for each figure, instead of a time")
	fs.BoolVar(&c.InProcess, "inprocess", false, "PEs are goroutines of one process")
	fs.BoolVar(&c.Join, "join", false, "take part in the world that a launcher started this process for; -n is its size")
	fs.Int64Var(&c.begun, "begun", 0, "with -join: when the processes were started, ns since 1970 (0: unknown)")
	fs.StringVar(&c.Bind, "bind", bindAuto, "bind the processes: core (one core each in turn), none, auto (core; overlap, -mem cuda and -hosts: none)")
	fs.StringVar(&c.Hosts, "hosts", "", "run the processes on these hosts, a,b: as goshmem run -hosts")
	fs.StringVar(&c.Agent, "agent", "", "with -hosts: command that starts a program on a host")
	fs.StringVar(&c.Remote, "remote", "", "with -hosts: path of goshmem there")
	if c.Name == "moe" {
		c.MoE.flags(fs)
	}
	return fs
}

// args is the command line of a process that joins: NAME and flags.
func (c commandLine) args() []string {
	a := []string{c.Name, "-join", "-json"}
	if c.PEs != 0 {
		a = append(a, "-n", fmt.Sprint(c.PEs))
	}
	if c.Path != "" {
		a = append(a, "-path", c.Path)
	}
	if c.Nodes != 0 {
		a = append(a, "-nodes", fmt.Sprint(c.Nodes))
	}
	if c.Algo != "" {
		a = append(a, "-algo", c.Algo)
	}
	if c.Spread != "" {
		a = append(a, "-spread", c.Spread)
	}
	if c.Mem != "" {
		a = append(a, "-mem", c.Mem)
	}
	if c.Sizes != nil {
		var s []string
		for _, n := range c.Sizes {
			s = append(s, fmt.Sprint(n))
		}
		a = append(a, "-sizes", strings.Join(s, ","))
	}
	if c.Iters > 0 {
		a = append(a, "-iters", fmt.Sprint(c.Iters))
	}
	if c.Time > 0 {
		a = append(a, "-time", c.Time.String())
	}
	if c.Name == "join" && c.begun > 0 {
		a = append(a, "-begun", fmt.Sprint(c.begun))
	}
	if c.Name == "moe" {
		a = append(a, c.MoE.args()...)
	}
	return a
}

// Usage describes the programs and the flags.
func Usage(w io.Writer) {
	names, texts := Names()
	fmt.Fprintf(w, "Programs:\n")
	for i, n := range names {
		fmt.Fprintf(w, "  %-13s %s\n", n, texts[i])
	}
	fmt.Fprintf(w, "  %-13s %s\n", all, "every program, and how figures that have a bar stand to it (-json, -time, -quick)")
	fmt.Fprintf(w, "  %-13s %s\n", scale, "join, barrier, alltoallv and memory of 1 to 64 goroutines and 1 to 16 processes (-json, -time, -quick)")
	fmt.Fprintf(w, "\nFlags, after the program's name:\n")
	fs := newFlags(&commandLine{Config: Config{Name: "moe"}})
	fs.SetOutput(w)
	fs.PrintDefaults()
}
