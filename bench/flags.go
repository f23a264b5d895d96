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
	if name != all {
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
		return bad("%s: %w", name, err)
	}
	if fs.NArg() > 0 {
		return bad("%s: unexpected argument %q", name, fs.Arg(0))
	}
	switch {
	case c.Bind != bindAuto && c.Bind != bindCore && c.Bind != bindNone:
		return bad("%s: -bind %q: want auto, core or none", name, c.Bind)
	case c.Join && c.InProcess:
		return bad("%s: -join and -inprocess exclude each other", name)
	}
	if name == all {
		return c, nil
	}
	check := c.Config
	prog, err := check.complete()
	if err == nil && c.Join && prog.solo {
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
	if c.Name == all {
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
	fs.StringVar(&c.Bind, "bind", bindAuto, "bind the processes: auto, core (one core each in turn), none")
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
	fmt.Fprintf(w, "  %-13s %s\n", all, "every figure that has a bar, and how far from it it is (-json, -time, -quick)")
	fmt.Fprintf(w, "\nFlags, after the program's name:\n")
	fs := newFlags(&commandLine{Config: Config{Name: "moe"}})
	fs.SetOutput(w)
	fs.PrintDefaults()
}
