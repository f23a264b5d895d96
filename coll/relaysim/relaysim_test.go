package relaysim_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"slices"
	"testing"

	"goshmem/coll"
	"goshmem/coll/relaysim"
	"goshmem/pe"
)

var update = flag.Bool("update", false, "write docs/perf/relay-sim.md")

// page is the page with the figures: a text, and tables that this package makes.
func page(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(head)
	for _, machine := range [][2]int{{16, 4}, {16, 8}, {4, 8}} {
		c := relaysim.Default()
		c.Nodes, c.PerNode = machine[0], machine[1]
		rows, err := relaysim.Table(c)
		if err == nil {
			err = relaysim.Markdown(&b, c, rows)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.WriteByte('\n')
	}
	b.WriteString(tail)
	small := coll.Config{RelayBanks: 2, RelaySlots: 2, RelayBytes: 1 << 20}
	machines := [][]int{slices.Repeat([]int{4}, 16), slices.Repeat([]int{8}, 16), slices.Repeat([]int{8}, 4), {8, 4, 1}, {2, 2}}
	for i, cfg := range []coll.Config{{}, small} {
		b.WriteString([]string{memory, memorySmall}[i])
		if err := relaysim.Memory(&b, cfg, machines...); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

const head = `# Alltoallv between nodes, on a modelled network

Written by ` + "`go test ./coll/relaysim -update`" + ` from the plan that package coll executes; virtual time, the same on every machine.

`

const tail = `What counts as a message: credits and first grants, data, headers with what is collected behind them. Copies within a node are the
processor's, one after the other, like posts; every PE has a port of its own. What only a real machine tells is left out: what the
processor does besides, and that the copies of a node share its memory.

Relaying wins where posts are what costs. From about 16 KiB a pair the ports are busy all the time either way and relaying adds copies:
that is where ` + "`AlgoAuto`" + ` goes straight (` + "`Config.Straight`" + `). Its relay rounds take place all the same, without bytes, and cost messages
but no time. With two banks instead of one a round, a pair of rounds waits for the pair before it, and 1 KiB takes longer by relay than
straight: hence the default of ` + "`Config.RelayBanks`" + `.
`

const memory = `
## Memory

What the relays take at a PE, by default:

`

const memorySmall = `
and with ` + "`RelayBanks`" + ` 2, ` + "`RelaySlots`" + ` 2, ` + "`RelayBytes`" + ` 1 MiB:

`

func TestPage(t *testing.T) {
	const path = "../../docs/perf/relay-sim.md"
	got := page(t)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s is not what this package makes: go test ./coll/relaysim -update", path)
	}
}

func TestRelayWinsWhereShort(t *testing.T) {
	c := relaysim.Default()
	c.Bytes = []int64{0, 1 << 10, 256 << 10}
	rows, err := relaysim.Table(c)
	if err != nil {
		t.Fatal(err)
	}
	for i, short := range []bool{true, true, false} {
		if r := rows[i]; (r.Relay.Time < r.Direct.Time) != short {
			t.Errorf("%+v", r)
		}
		// Auto is as good as the better of the two, or nearly.
		if r := rows[i]; float64(r.Auto.Time) > 1.05*float64(min(r.Relay.Time, r.Direct.Time)) {
			t.Errorf("%+v", r)
		}
	}
	if m := rows[1]; m.Direct.Messages != 60 || m.Relay.Messages != 30 {
		t.Errorf("messages of a PE: %d and %d, want 60 peers, and 15 rounds of two", m.Direct.Messages, m.Relay.Messages)
	}
	two := c
	two.Coll.RelayBanks = 2
	f, err := relaysim.Simulate(two, coll.AlgoRelay, 1<<10)
	if err != nil || f.Time < rows[1].Direct.Time {
		t.Errorf("two banks: %+v, %v", f, err)
	}
}

func TestSmallMachines(t *testing.T) {
	for _, m := range [][2]int{{1, 1}, {1, 5}, {2, 1}, {2, 2}, {7, 3}} {
		for _, algo := range []coll.Algo{coll.AlgoAuto, coll.AlgoDirect, coll.AlgoRelay} {
			for _, n := range []int64{0, 1, 100 << 10, 3 << 20} {
				c := relaysim.Default()
				c.Nodes, c.PerNode = m[0], m[1]
				if f, err := relaysim.Simulate(c, algo, n); err != nil || f.Time < 0 {
					t.Errorf("%v %v %d B: %+v, %v", m, algo, n, f, err)
				}
			}
		}
	}
}

func TestRefuses(t *testing.T) {
	for name, change := range map[string]func(*relaysim.Config){
		"no nodes":   func(c *relaysim.Config) { c.Nodes = 0 },
		"too many":   func(c *relaysim.Config) { c.Nodes = 1 << 20 },
		"small slot": func(c *relaysim.Config) { c.Coll.RelayBytes = 64 },
		"a link":     func(c *relaysim.Config) { c.Bandwidth = -1 },
	} {
		c := relaysim.Default()
		change(&c)
		if _, err := relaysim.Simulate(c, coll.AlgoRelay, 1); !errors.Is(err, pe.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := relaysim.Simulate(relaysim.Default(), coll.AlgoRelay, -1); !errors.Is(err, pe.ErrConfig) {
		t.Error(err)
	}
}
