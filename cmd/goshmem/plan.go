package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"goshmem/coll"
	"goshmem/coll/relaysim"
	"goshmem/heap"
	"goshmem/internal/options"
)

const planText = `
Tells by formula, for machines that are not at hand, what a world of so many PEs
needs and what an alltoallv between all of them takes: the memory of a PE, the queue
pairs it uses, and for direct and relayed transfers the messages that a PE posts,
the bytes on its port and the time. docs/planning.md has the formulas and how well
they hold. The options of the runtime (GOSHMEM_CONTEXTS, GOSHMEM_HEAP_SIZE) count.
`

// planFlags are the machine and the call.
type planFlags struct {
	relaysim.Config
	pes []int
}

func planCommand() command {
	return command{
		name:  "plan",
		args:  "[flags]",
		brief: "predict memory, messages and time on larger machines",
		text:  planText,
		setup: func(fs *flag.FlagSet) func(stdio, []string) int {
			p := planFlags{Config: relaysim.Default()}
			p.pes = []int{8, 64, 512, 4096, 32768, 100000}
			p.Bytes = []int64{1 << 10, 16 << 10, 256 << 10}
			p.PerNode = 8
			p.declare(fs)
			return func(std stdio, args []string) int {
				if len(args) > 0 {
					return misused(std, "plan", fmt.Errorf("unexpected %q", args[0]))
				}
				if err := p.print(std.out); err != nil {
					return misused(std, "plan", err)
				}
				return exitOK
			}
		},
	}
}

func (p *planFlags) declare(fs *flag.FlagSet) {
	list(fs, "pes", "numbers of PEs (8,64,512,4096,32768,100000)", &p.pes, number)
	list(fs, "bytes", "bytes a pair of PEs (1KiB,16KiB,256KiB)", &p.Bytes, options.ParseBytes)
	fs.IntVar(&p.PerNode, "per-node", p.PerNode, "PEs of a node; each has a port of its own")
	fs.DurationVar(&p.Latency, "latency", p.Latency, "of a message between nodes")
	fs.DurationVar(&p.Post, "post", p.Post, "time of a PE for each message it posts")
	fs.DurationVar(&p.CopyPost, "copy-post", p.CopyPost, "time of a PE for each copy within the node, beside its bytes")
	size := func(name, text string, to *int64) {
		fs.Func(name, fmt.Sprintf("%s (%s)", text, options.FormatBytes(*to)), func(s string) (err error) {
			*to, err = options.ParseBytes(s)
			return err
		})
	}
	size("bandwidth", "bytes a second of a port, each way", &p.Bandwidth)
	size("copy", "bytes a second that a PE copies within its node", &p.Copy)
}

// list declares a flag of values with commas between.
func list[T any](fs *flag.FlagSet, name, text string, to *[]T, parse func(string) (T, error)) {
	fs.Func(name, text, func(s string) error {
		var all []T
		for f := range strings.SplitSeq(s, ",") {
			v, err := parse(f)
			if err != nil {
				return err
			}
			all = append(all, v)
		}
		*to = all
		return nil
	})
}

func number(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("%q is no number", s)
	}
	return n, nil
}

// perPeer is what a process keeps of each other PE whether or not it talks to it,
// outside symmetric memory: measured, see docs/planning.md.
const perPeer = 260

func (p *planFlags) print(w io.Writer) error {
	set, err := options.Resolve(options.Values{}, os.Environ())
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "PEs\tnodes\theap\truntime\tcollectives\tprocess\tbytes a pair\tway\tpeers (QPs)\trounds\tmessages\tport\ttime\t")
	for _, n := range p.pes {
		m, err := p.memory(n, set.Values)
		if err != nil {
			return err
		}
		for _, bytes := range p.Bytes {
			if err := p.rows(t, n, bytes, m); err != nil {
				return err
			}
			m = "\t\t\t\t\t\t"
		}
	}
	fmt.Fprintf(w, "%d PEs a node; ports of %.3g GB/s, %v a message, %v a post; copies at %.3g GB/s, %v each.\n\n",
		p.PerNode, float64(p.Bandwidth)/1e9, p.Latency, p.Post, float64(p.Copy)/1e9, p.CopyPost)
	return t.Flush()
}

// memory is the columns of memory of one PE in a world of n.
func (p *planFlags) memory(n int, vals options.Values) (string, error) {
	if n < 1 || n > 1<<22 || p.PerNode < 1 {
		return "", fmt.Errorf("%d PEs, %d a node: want 1 to %d", n, p.PerNode, 1<<22)
	}
	l, err := heap.PlanLayout(heap.LayoutConfig{HeapSize: vals.HeapSize, PEs: n, Contexts: vals.Contexts, IndicesPerSource: 8})
	if err != nil {
		return "", err
	}
	nodes := make([]int, n)
	for r := range nodes {
		nodes[r] = r / p.PerNode
	}
	comm, err := p.Coll.BytesOn(nodes)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d\t%d\t%s\t%s\t%s\t%s\t", n, p.nodes(n), short(l.HeapSize()), short(l.RuntimeSize()), short(comm), short(int64(n)*perPeer)), nil
}

func (p *planFlags) nodes(n int) int { return (n-1)/p.PerNode + 1 }

// rows is both ways of one call.
func (p *planFlags) rows(w io.Writer, n int, bytes int64, memory string) error {
	c := p.Config
	c.Nodes, c.PerNode = p.nodes(n), min(p.PerNode, n)
	for _, algo := range []coll.Algo{coll.AlgoDirect, coll.AlgoRelay} {
		e, err := relaysim.Predict(c, algo, bytes)
		if err != nil {
			return err
		}
		if algo == coll.AlgoRelay && e.Rounds == 0 {
			return nil // one node
		}
		fmt.Fprintf(w, "%s%s\t%v\t%d\t%d\t%d\t%s\t%v\t\n", memory, options.FormatBytes(bytes), algo, e.Peers, e.Rounds, e.Messages, short(e.LinkBytes), brief(e.Time))
		memory = "\t\t\t\t\t\t"
	}
	return nil
}

// short is a size with three digits.
func short(n int64) string {
	x, unit := float64(n), ""
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if x < 1000 {
			break
		}
		x, unit = x/1024, u
	}
	return fmt.Sprintf("%.3g%s", x, unit)
}

// brief is a time with three or four digits.
func brief(d time.Duration) time.Duration {
	for unit := time.Duration(1); ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
}
