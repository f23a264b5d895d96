package launch

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"goshmem/internal/bootstrap"
	"goshmem/internal/errs"
	"goshmem/internal/options"
)

// DefaultGrace is how long PEs may go on after one failed.
const DefaultGrace = 5 * time.Second

// Exit statuses that are the launcher's own.
const (
	StatusFailed        = 1
	StatusTimeout       = 124
	StatusNotExecutable = 126
	StatusNotFound      = 127
	statusSignal        = 128 // and the signal's number
)

// Bind says where a PE's process may run.
type Bind string

// Bindings.
const (
	BindNone Bind = "none" // wherever the launcher may
	BindCore Bind = "core" // on one core each, in turn
)

// Config describes a job.
type Config struct {
	N       int
	Program string // a path, or a name that is looked up in PATH
	Args    []string
	Env     []string // K=V, added to the launcher's own environment
	Nodes   int      // simulated nodes that the PEs are dealt to; 0: as the environment says
	Dir     string   // where the PEs start; empty: where the launcher is

	// Hosts are where the PEs run; empty: here. N may then be 0.
	Hosts  []string
	PPN    int    // PEs of a host; 0: dealt evenly
	Agent  string // what starts a program on a host, as in AGENT HOST PROGRAM; empty: DefaultAgent
	Remote string // this tool on the hosts; empty: by the same path as here
	// Rendezvous is where the PEs meet, as bootstrap.Listen has it. Empty: an
	// abstract socket, or a free port at the interface that the hosts are seen by.
	Rendezvous string

	Prefix  bool          // put "[rank] " before each line of output
	Timeout time.Duration // ends the job; 0: never
	Grace   time.Duration // for the others to end by themselves after a failure
	Bind    Bind
	Verbose bool // tell of joins, goodbyes and ends too

	Stdin          *os.File  // rank 0's input; nil: none
	Stdout, Stderr io.Writer // nil: dropped

	blocks [][]int // ranks of each host
}

// check refuses what cannot be started.
func (c *Config) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("launch: "+format+": %w", append(args, errs.ErrConfig)...)
	}
	if len(c.Hosts) > 0 {
		blocks, err := deal(len(c.Hosts), c.N, c.PPN)
		if err != nil {
			return err
		}
		c.blocks = blocks
		last := blocks[len(blocks)-1]
		c.N = last[len(last)-1] + 1
	}
	switch {
	case len(c.Hosts) == 0 && (c.PPN != 0 || c.Agent != "" || c.Remote != ""):
		return bad("-ppn, -agent or -remote without -hosts")
	case c.PPN < 0:
		return bad("%d PEs on a host", c.PPN)
	case c.Agent != "" && strings.TrimSpace(c.Agent) == "":
		return bad("agent %q", c.Agent)
	case c.N < 1 || c.N > bootstrap.MaxSize:
		return bad("%d PEs are not in 1..%d", c.N, bootstrap.MaxSize)
	case len(c.Hosts) > 0 && c.Nodes > 0:
		return bad("%d simulated nodes on %d hosts", c.Nodes, len(c.Hosts))
	case c.Nodes < 0 || c.Nodes > c.N:
		return bad("%d simulated nodes of %d PEs", c.Nodes, c.N)
	case c.Program == "":
		return bad("no program")
	case c.Timeout < 0:
		return bad("timeout %v", c.Timeout)
	case c.Grace < 0:
		return bad("grace %v", c.Grace)
	case c.Bind != BindNone && c.Bind != BindCore:
		return bad("binding %q is neither %q nor %q", c.Bind, BindNone, BindCore)
	}
	for _, kv := range c.Env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || strings.ContainsRune(kv, 0) {
			return bad("environment %q is not of the form NAME=VALUE", kv)
		}
		if slices.Contains(launchNames(), name) {
			return bad("environment %s: the launcher sets it", name)
		}
		if name == envNodes && c.Nodes > 0 {
			return bad("%d simulated nodes, and %s in the environment given", c.Nodes, kv)
		}
	}
	return nil
}

// envNodes is the option that simulates nodes.
const envNodes = options.Prefix + "NODES"

// environ is the environment of all PEs, and the options in it.
func (c *Config) environ(own []string) ([]string, options.Resolved, error) {
	env := append(bootstrap.WithoutLaunch(own), c.Env...)
	if c.Nodes > 0 {
		env = append(env, fmt.Sprint(envNodes, "=", c.Nodes))
	}
	opt, err := options.Resolve(options.Values{}, env)
	if err == nil && opt.Values.Nodes > c.N {
		err = fmt.Errorf("launch: %d simulated nodes (%s) of %d PEs: %w", opt.Values.Nodes, envNodes, c.N, errs.ErrConfig)
	}
	return env, opt, err
}

// launchNames are the variables that say which PE a process is.
func launchNames() []string {
	return []string{
		bootstrap.EnvRank, bootstrap.EnvSize, bootstrap.EnvLocalRank, bootstrap.EnvLocalSize,
		bootstrap.EnvRendezvous, bootstrap.EnvSecret, bootstrap.EnvSecretFile, bootstrap.EnvHub,
	}
}
