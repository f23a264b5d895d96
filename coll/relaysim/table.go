package relaysim

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"goshmem/coll"
	"goshmem/coll/internal/plan"
	"goshmem/internal/fabric/sim"
	"goshmem/pe"
)

// Figure is what one call takes.
type Figure struct {
	Time     time.Duration // until the last byte is where it belongs
	Messages int           // between nodes, of one PE
}

// Row is one length of pairs.
type Row struct {
	Bytes               int64
	Direct, Relay, Auto Figure
}

// Table simulates every row.
func Table(c Config) ([]Row, error) {
	var rows []Row
	for _, n := range c.Bytes {
		r := Row{Bytes: n}
		for algo, f := range map[coll.Algo]*Figure{coll.AlgoDirect: &r.Direct, coll.AlgoRelay: &r.Relay, coll.AlgoAuto: &r.Auto} {
			var err error
			if *f, err = Simulate(c, algo, n); err != nil {
				return nil, err
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// Simulate runs one call in which every pair of PEs has n bytes.
func Simulate(c Config, algo coll.Algo, n int64) (Figure, error) {
	t, err := c.topology()
	if err != nil {
		return Figure{}, err
	}
	if n < 0 || algo > coll.AlgoRelay {
		return Figure{}, fmt.Errorf("relaysim: %d B a pair, %v: %w", n, algo, pe.ErrConfig)
	}
	k := c.Coll.Defaults(nodesOf(t))
	params := plan.Params{Banks: k.RelayBanks, Slots: k.RelaySlots, SlotBytes: int64(k.RelayBytes)}
	z, ok := plan.Measure(t, params)
	if !ok {
		return Figure{}, fmt.Errorf("relaysim: %d banks of %d slots of %d B: %w", params.Banks, params.Slots, params.SlotBytes, pe.ErrConfig)
	}
	b := newBuilder(t, z, plan.NewChooser(t, plan.Algo(algo), k.Straight, k.Merge), n)
	r, err := sim.Simulate(b.build(), sim.Model{
		Node:  nodesOf(t),
		Net:   sim.Link{Latency: c.Latency, Bandwidth: c.Bandwidth, Post: c.Post},
		Local: sim.Link{Latency: c.CopyLate, Bandwidth: c.Copy, Post: c.CopyPost},
	})
	if err != nil {
		return Figure{}, fmt.Errorf("relaysim: %w", err)
	}
	return Figure{Time: r.Total, Messages: b.net / max(t.Size(), 1)}, nil
}

func nodesOf(t *plan.Topology) []int {
	nodes := make([]int, t.Size())
	for r := range nodes {
		nodes[r] = t.Node(r)
	}
	return nodes
}

// Markdown writes a table of rows.
func Markdown(w io.Writer, c Config, rows []Row) error {
	_, err := fmt.Fprintf(w, "%d nodes x %d PEs; ports of %.3g GB/s, %v a message, %v a post; copies at %.3g GB/s, %v a copy.\n\n"+
		"| a pair | direct | relay | auto | messages a PE: direct, relay, auto |\n| --- | --- | --- | --- | --- |\n",
		c.Nodes, c.PerNode, float64(c.Bandwidth)/1e9, c.Latency, c.Post, float64(c.Copy)/1e9, c.CopyPost)
	for _, r := range rows {
		if err != nil {
			break
		}
		_, err = fmt.Fprintf(w, "| %s | %.1f us | %.1f us | %.1f us | %d, %d, %d |\n", size(r.Bytes),
			us(r.Direct), us(r.Relay), us(r.Auto), r.Direct.Messages, r.Relay.Messages, r.Auto.Messages)
	}
	return err
}

// Memory writes what the relays of some machines take, whatever the counts: W banks
// of T slots of C bytes for each of A sources that a PE has in a round. ranks are
// the PEs of each node.
func Memory(w io.Writer, cfg coll.Config, ranks ...[]int) error {
	_, err := fmt.Fprint(w, "| PEs of each node | W | A | T | C | slots: W x A x T x C | all of a Comm |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, l := range ranks {
		var nodes []int
		for node, n := range l {
			for range n {
				nodes = append(nodes, node)
			}
		}
		t, k := plan.NewTopology(nodes), cfg.Defaults(nodes)
		z, ok := plan.Measure(t, plan.Params{Banks: k.RelayBanks, Slots: k.RelaySlots, SlotBytes: int64(k.RelayBytes)})
		all, failed := cfg.BytesOn(nodes)
		if err != nil || failed != nil || !ok {
			return errors.Join(err, failed)
		}
		_, err = fmt.Fprintf(w, "| %s | %d | %d | %d | %s | %s | %s |\n", layout(l), k.RelayBanks, t.Streams(), k.RelaySlots,
			size(int64(k.RelayBytes)), size(z.Arena), size((all+1<<10-1)&^(1<<10-1)))
	}
	return err
}

// layout writes nodes that are alike as one.
func layout(ranks []int) string {
	if slices.Max(ranks) == slices.Min(ranks) {
		return fmt.Sprintf("%d x %d", len(ranks), ranks[0])
	}
	return strings.Trim(fmt.Sprint(ranks), "[]")
}

func us(f Figure) float64 { return float64(f.Time) / 1e3 }

func size(n int64) string {
	if n >= 1<<10 && n%(1<<10) == 0 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
