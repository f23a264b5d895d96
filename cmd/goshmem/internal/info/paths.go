package info

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"goshmem/channel"
	"goshmem/internal/options"
	"goshmem/internal/topo"
	"goshmem/pe"
)

// trialHeap is the heap of the worlds that are made to look at.
const trialHeap = 64 << 10

// way is how one PE reaches another.
type way struct {
	from, to  int
	path, why string
}

// trial makes a world of n PEs in this process and looks at its paths. An empty
// path is that of the options in force, and so are nodes if they are 0.
func trial(ctx context.Context, n, nodes int, path string) (ways []way, transports []channel.Description, err error) {
	found := make([][]way, n)
	err = pe.Run(ctx, pe.Config{Size: n, Nodes: nodes, Path: path, HeapSize: trialHeap, Sparse: true}, func(p *pe.PE) error {
		for to := range n {
			peer, ok := p.Peer(to)
			if !ok {
				return fmt.Errorf("info: pe %d knows nothing of pe %d", p.Rank(), to)
			}
			found[p.Rank()] = append(found[p.Rank()], way{p.Rank(), to, peer.Path, peer.Why})
		}
		if p.Rank() == 0 {
			transports = p.World().Transports()
		}
		return nil
	})
	return slices.Concat(found...), transports, err
}

// pathsSection tells how the PEs of a world on this host reach each other.
func pathsSection(ctx context.Context, n, nodes int) Section {
	s := Section{Title: fmt.Sprintf("Paths in a world of %d PEs on this host", n)}
	ways, transports, err := trial(ctx, n, nodes, "")
	if err != nil {
		s.Err = err
		return s
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, g := range group(ways) {
		fmt.Fprintf(t, "pe %s to %s\t%s\t%s\n", topo.FormatList(g.from), topo.FormatList(g.to), g.path, g.why)
	}
	for _, d := range transports {
		fmt.Fprintf(t, "transport\t%s\t%s\n", d.Name, d.Detail)
		for _, note := range d.Notes {
			fmt.Fprintf(t, "\t\t%s\n", note)
		}
	}
	_ = t.Flush() // to memory
	s.Text = b.String()
	return s
}

// bundle is pairs that have path and reason in common: each of from to each of to.
type bundle struct {
	from, to  []int
	path, why string
}

// group puts pairs together: the targets that a PE reaches in one way, then the
// PEs that reach the same ones.
func group(ways []way) []bundle {
	var rows []bundle
	for _, w := range ways {
		i := slices.IndexFunc(rows, func(b bundle) bool {
			return b.from[0] == w.from && b.path == w.path && b.why == w.why
		})
		if i < 0 {
			i = len(rows)
			rows = append(rows, bundle{from: []int{w.from}, path: w.path, why: w.why})
		}
		rows[i].to = append(rows[i].to, w.to)
	}
	var out []bundle
	for _, r := range rows {
		i := slices.IndexFunc(out, func(b bundle) bool {
			return b.path == r.path && b.why == r.why && slices.Equal(b.to, r.to)
		})
		if i < 0 {
			out = append(out, r)
			continue
		}
		out[i].from = append(out[i].from, r.from...)
	}
	return out
}

// availableSection tries every path that can be asked for.
func availableSection(ctx context.Context, n, nodes int) Section {
	s := Section{Title: "Paths that can be forced by GOSHMEM_PATH"}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, path := range choices() {
		verdict := "available"
		if _, _, err := trial(ctx, n, nodes, path); err != nil {
			verdict = "not available: " + reason(err)
		}
		fmt.Fprintf(t, "%s\t%s\n", path, verdict)
	}
	_ = t.Flush() // to memory
	s.Text = b.String()
	return s
}

// choices are the paths by name, less the one that is no path.
func choices() []string {
	for _, o := range options.Table() {
		if o.Name == "Path" {
			return slices.DeleteFunc(slices.Clone(o.Choices), func(c string) bool { return c == string(options.PathAuto) })
		}
	}
	return nil
}

// reason shortens an error to what its place in the table does not say: where it
// comes from, and that all PEs have it.
func reason(err error) string {
	text := faults(err)[0]
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = text[i+2:]
	}
	return text
}
