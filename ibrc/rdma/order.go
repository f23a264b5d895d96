package rdma

import (
	"fmt"
	"slices"
	"strings"

	"goshmem/internal/topo"
)

// order is in which order devices are tried: nearest to the process's CPUs first,
// and among equally near ones a different one first for each rank, so that PEs of a
// host spread over them. Config.Device "^a,b" leaves a and b out. The notes say
// why.
func order(names []string, m *topo.Machine, rank int, device string) (ordered, notes []string) {
	if out, ok := strings.CutPrefix(device, "^"); ok {
		excluded := strings.Split(out, ",")
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool {
			if slices.Contains(excluded, n) {
				notes = append(notes, n+": left out, as configured")
				return true
			}
			return false
		})
	}
	node := nodeOf(m)
	near := func(name string) bool {
		n := placeOf(m, name)
		return node < 0 || n < 0 || n == node
	}
	var first, last []string
	for _, n := range names {
		if near(n) {
			first = append(first, n)
		} else {
			last = append(last, n)
			notes = append(notes, fmt.Sprintf("%s: on NUMA node %d, the process on %d", n, placeOf(m, n), node))
		}
	}
	return slices.Concat(turn(first, rank), turn(last, rank)), notes
}

// turn begins a list at another element for each rank.
func turn(names []string, rank int) []string {
	if len(names) < 2 {
		return names
	}
	k := rank % len(names)
	return slices.Concat(names[k:], names[:k])
}

// nodeOf is the NUMA node that all CPUs of the process are on; -1: several, or not
// known.
func nodeOf(m *topo.Machine) int {
	at := -1
	for _, n := range m.Nodes {
		if slices.ContainsFunc(m.Usable, func(cpu int) bool { return slices.Contains(n.CPUs, cpu) }) {
			if at >= 0 {
				return -1
			}
			at = n.ID
		}
	}
	return at
}

// placeOf is the NUMA node of an RDMA device; -1: not known.
func placeOf(m *topo.Machine, name string) int {
	for _, d := range m.NICs {
		if slices.Contains(d.Names, name) {
			return d.Node
		}
	}
	return -1
}
