package rdma

import (
	"slices"
	"strings"
	"testing"

	"goshmem/internal/topo"
)

// machine has NICs mlx5_0, mlx5_1, … on the NUMA nodes given, four CPUs a node.
func machine(nodes int, usable []int, nics ...int) *topo.Machine {
	m := &topo.Machine{Usable: usable}
	for n := range nodes {
		m.Nodes = append(m.Nodes, topo.Node{ID: n, CPUs: []int{4 * n, 4*n + 1, 4*n + 2, 4*n + 3}})
	}
	for i, n := range nics {
		m.NICs = append(m.NICs, topo.Device{Kind: topo.InfiniBand, Node: n, Names: []string{"eth" + string(rune('0'+i)), "mlx5_" + string(rune('0'+i))}})
	}
	return m
}

func TestOrder(t *testing.T) {
	all := []string{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}
	dgx := func(cpus ...int) *topo.Machine { return machine(2, cpus, 0, 0, 1, 1) }
	for name, c := range map[string]struct {
		names  []string
		m      *topo.Machine
		rank   int
		device string
		want   string
	}{
		"near ones first":             {all, dgx(4, 5), 0, "", "mlx5_2 mlx5_3 mlx5_0 mlx5_1"},
		"spread over the near":        {all, dgx(4, 5), 1, "", "mlx5_3 mlx5_2 mlx5_1 mlx5_0"},
		"a process all over":          {all, dgx(0, 5), 2, "", "mlx5_2 mlx5_3 mlx5_0 mlx5_1"},
		"two sockets, one NIC, far":   {all[:1], machine(2, []int{4}, 0), 3, "", "mlx5_0"},
		"left out":                    {all, dgx(4), 0, "^mlx5_2,mlx5_0", "mlx5_3 mlx5_1"},
		"nothing known of the device": {[]string{"rxe0"}, dgx(0), 5, "", "rxe0"},
		"none":                        {nil, dgx(0), 1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			names := slices.Clone(c.names)
			got, notes := order(c.names, c.m, c.rank, c.device)
			if strings.Join(got, " ") != c.want || !slices.Equal(names, c.names) {
				t.Error(got, notes)
			}
			if c.device != "" && !strings.Contains(strings.Join(notes, "\n"), "mlx5_2: left out") {
				t.Error(notes)
			}
		})
	}
}
