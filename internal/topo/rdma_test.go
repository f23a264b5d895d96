package topo

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// port adds an RDMA port. gids are "index address type".
func (f *fake) port(device string, n int, state, link, rate string, gids ...string) {
	dir := fmt.Sprintf("sys/class/infiniband/%s/ports/%d/", device, n)
	f.write(dir+"state", state+"\n")
	f.write(dir+"link_layer", link+"\n")
	f.write(dir+"rate", rate+"\n")
	f.write(dir+"gids/15", "0000:0000:0000:0000:0000:0000:0000:0000\n")
	for _, g := range gids {
		v := strings.SplitN(g, " ", 3)
		f.write(dir+"gids/"+v[0], v[1]+"\n")
		f.write(dir+"gid_attrs/types/"+v[0], v[2]+"\n")
	}
}

const (
	active = "4: ACTIVE"
	ndr    = "400 Gb/sec (4X NDR)"
	hdr    = "200 Gb/sec (4X HDR)"
)

// roce is an Ethernet port's usual table.
func roce(last int) []string {
	ll := fmt.Sprintf("fe80:0000:0000:0000:0000:0000:0000:%04x", last)
	v4 := fmt.Sprintf("0000:0000:0000:0000:0000:ffff:0a00:%04x", last)
	return []string{"0 " + ll + " IB/RoCE v1", "1 " + ll + " RoCE v2", "2 " + v4 + " IB/RoCE v1", "3 " + v4 + " RoCE v2"}
}

// server is a machine of n NUMA nodes of two CPUs.
func server(t testing.TB, nodes int) *fake {
	f := newFake(t)
	f.base(2 * nodes)
	for i := range nodes {
		d := strings.Fields(strings.Repeat("21 ", nodes))
		d[i] = "10"
		f.node(i, fmt.Sprintf("%d-%d", 2*i, 2*i+1), strings.Join(d, " "))
		for c := range 2 {
			f.cpu(2*i+c, c, i, i, fmt.Sprint(2*i+c), fmt.Sprintf("%d-%d", 2*i, 2*i+1))
		}
	}
	return f
}

// nic adds an adapter of a node, behind a bridge, with its RDMA device.
func (f *fake) nic(bridge, address string, node int, name string) {
	f.device(bridge, address, "15B3", "1021", "0207", node, "mlx5_core")
	f.mkdir("sys/devices/" + bridge + "/" + address + "/infiniband/" + name)
}

// dgx has two sockets, each with four switches of one GPU and one InfiniBand
// adapter, and a RoCE port for storage.
func dgx(t testing.TB) *fake {
	f := server(t, 2)
	for i := range 8 {
		root := fmt.Sprintf("pci0000:%02x", 0x10*(i+1))
		f.device(root, fmt.Sprintf("0000:%02x:01.0", 0x10*(i+1)), "1000", "c030", "0604", i/4, "pcieport")
		sw := fmt.Sprintf("%s/0000:%02x:01.0", root, 0x10*(i+1))
		f.device(sw, fmt.Sprintf("0000:%02x:00.0", 0x10*(i+1)+1), "10DE", "2330", "0302", i/4, "nvidia")
		f.nic(sw, fmt.Sprintf("0000:%02x:00.0", 0x10*(i+1)+2), i/4, fmt.Sprintf("mlx5_%d", i))
		f.port(fmt.Sprintf("mlx5_%d", i), 1, active, "InfiniBand", ndr, fmt.Sprintf("0 fe80:0000:0000:0000:0000:0000:0000:%04x IB/RoCE v1", i+1))
	}
	f.nic("pci0000:f0", "0000:f1:00.0", 1, "mlx5_8")
	f.port("mlx5_8", 1, active, "Ethernet", hdr, roce(9)...)
	return f
}

func chosen(t testing.TB, m *Machine, wish string, places ...Place) (names []string, nics []NIC) {
	t.Helper()
	nics, err := m.ChooseNICs(places, Wish{Ports: wish})
	require.NoError(t, err)
	for _, n := range nics {
		names = append(names, n.Port.String())
	}
	return names, nics
}

func why(n NIC, port string) string {
	for _, r := range n.Rejected {
		if r.Port == port {
			return r.Reason
		}
	}
	return ""
}

// A PE's NIC is the one behind the switch of its GPU; else the NICs of its node
// are dealt out, whatever the order of the PEs.
func TestNICsOfDGX(t *testing.T) {
	f := dgx(t)
	m := ReadAt(f.root)
	require.Len(t, m.GPUs, 8)
	require.Len(t, m.Ports, 9)
	quick := readNICs(f.root)
	for i, p := range m.Ports {
		p.GIDs = nil
		assert.Equal(t, p, quick.Ports[i])
	}
	assert.Equal(t, []any{m.Nodes, m.NICs}, []any{quick.Nodes, quick.NICs})
	var places []Place
	for i := range m.GPUs {
		places = append(places, Place{Node: -1, Device: &m.GPUs[i]})
	}
	names, nics := chosen(t, m, "", places...)
	for i := range 8 {
		assert.Equal(t, fmt.Sprintf("mlx5_%d:1", i), names[i])
		assert.Equal(t, "same PCI switch as GPU "+m.GPUs[i].Address, nics[i].Why)
		assert.Len(t, nics[i].Rejected, 8)
	}
	names, nics = chosen(t, m, "", Place{Node: 0}, Place{Node: 1}, Place{Node: 0}, Place{Node: 1}, Place{Node: 0})
	assert.Equal(t, []string{"mlx5_0:1", "mlx5_4:1", "mlx5_1:1", "mlx5_5:1", "mlx5_2:1"}, names)
	assert.Equal(t, "same NUMA node, one of 4 alike", nics[0].Why)
	assert.Equal(t, "200 Gb/s; there is a faster one", why(nics[1], "mlx5_8:1"))
	assert.Equal(t, "other NUMA node; there is a nearer one", why(nics[1], "mlx5_0:1"))
	assert.Equal(t, "as good; another PE's turn", why(nics[0], "mlx5_3:1"))

	names, nics = chosen(t, m, "mlx5_8", Place{Node: 0}, Place{Node: 0})
	assert.Equal(t, []string{"mlx5_8:1", "mlx5_8:1"}, names)
	assert.Equal(t, "other NUMA node", nics[0].Why)
	assert.Equal(t, GID{Index: 3, Addr: nics[0].GID.Addr, Type: "RoCE v2"}, nics[0].GID)
	assert.Equal(t, "10.0.0.9", nics[0].GID.Addr.String())
	names, nics = chosen(t, m, "^mlx5_0, mlx5_1:1", Place{Node: 0}, Place{Node: 0}, Place{Node: 0})
	assert.Equal(t, []string{"mlx5_2:1", "mlx5_3:1", "mlx5_2:1"}, names)
	assert.Contains(t, why(nics[0], "mlx5_0:1"), "not among those wished for")
	names, _ = chosen(t, m, "", Place{Node: -1}, Place{Node: -1}, Place{Node: -1}, Place{Node: -1}, Place{Node: -1}, Place{Node: -1}, Place{Node: -1}, Place{Node: -1}, Place{Node: -1})
	assert.Equal(t, []string{"mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1", "mlx5_4:1", "mlx5_5:1", "mlx5_6:1", "mlx5_7:1", "mlx5_0:1"}, names)
	_, err := m.ChooseNICs([]Place{{}}, Wish{Ports: "mlx5_77"})
	assert.ErrorIs(t, err, ErrNoNIC)
	assert.ErrorContains(t, err, "mlx5_0:1: not among those wished for (mlx5_77)")
}

// One NIC for two sockets: all use it, the far ones too.
func TestNICOfTwoSockets(t *testing.T) {
	f := server(t, 2)
	f.nic("pci0000:10", "0000:11:00.0", 1, "mlx5_0")
	f.port("mlx5_0", 1, active, "Ethernet", hdr, roce(1)...)
	m := ReadAt(f.root)
	names, nics := chosen(t, m, "", Place{Node: 0}, Place{Node: 1}, Place{Node: -1})
	assert.Equal(t, []string{"mlx5_0:1", "mlx5_0:1", "mlx5_0:1"}, names)
	assert.Equal(t, "other NUMA node", nics[0].Why)
	assert.Equal(t, "same NUMA node", nics[1].Why)
	assert.Equal(t, 0, m.NodeOf([]int{0, 1}))
	assert.Equal(t, 1, m.NodeOf([]int{3}))
	assert.Equal(t, -1, m.NodeOf([]int{1, 2}))
	assert.Equal(t, -1, m.NodeOf(nil))
}

// Both ports of an adapter are used, or the one that is up.
func TestNICsOfDualPort(t *testing.T) {
	f := server(t, 1)
	f.nic("pci0000:10", "0000:11:00.0", 0, "mlx5_0")
	f.port("mlx5_0", 1, active, "Ethernet", hdr, roce(1)...)
	f.port("mlx5_0", 2, active, "Ethernet", hdr, roce(2)...)
	f.nic("pci0000:20", "0000:21:00.0", 0, "mlx5_1")
	f.port("mlx5_1", 1, "1: DOWN", "Ethernet", "40 Gb/sec (4X QDR)", roce(3)...)
	f.port("mlx5_1", 2, active, "Ethernet", hdr, roce(4)[:2]...) // link-local only
	m := ReadAt(f.root)
	names, nics := chosen(t, m, "", Place{}, Place{}, Place{})
	assert.Equal(t, []string{"mlx5_0:1", "mlx5_0:2", "mlx5_0:1"}, names)
	assert.Equal(t, "its state is DOWN", why(nics[0], "mlx5_1:1"))
	assert.Equal(t, "looked for a gid that is not link-local, found 0: fe80::4 IB/RoCE v1, 1: fe80::4 RoCE v2", why(nics[0], "mlx5_1:2"))
	m.Ports[0].Fault = "broken"
	names, nics = chosen(t, m, "", Place{}, Place{})
	assert.Equal(t, []string{"mlx5_0:2", "mlx5_0:2"}, names)
	assert.Equal(t, "broken", why(nics[0], "mlx5_0:1"))
	names, _ = chosen(t, m, "mlx5_0:2", Place{}, Place{})
	assert.Equal(t, []string{"mlx5_0:2", "mlx5_0:2"}, names)
	_, err := m.ChooseNICs([]Place{{}}, Wish{Ports: "mlx5_1"})
	assert.ErrorContains(t, err, "mlx5_1:1: its state is DOWN")
	text := m.String()
	assert.Contains(t, text, "port mlx5_1:1")
	assert.Contains(t, text, "Ethernet, DOWN, 40 Gb/s, 4 addresses")
}

// Devices without a place of their own (soft ones), and none at all.
func TestNICsWithoutPCI(t *testing.T) {
	f := server(t, 2)
	_, err := ReadAt(f.root).ChooseNICs([]Place{{}}, Wish{})
	assert.ErrorIs(t, err, ErrNoNIC)
	assert.ErrorContains(t, err, "no RDMA device")
	f.port("rxe0", 1, active, "Ethernet", "2.5 Gb/sec (1X SDR)", "0 fe80:0000:0000:0000:0000:0000:0000:0001 RoCE v2", "1 fd00:0000:0000:0000:0000:0000:0000:0001 RoCE v2")
	f.mkdir("sys/class/infiniband/rxe0/ports/x")
	f.port("zzz", 1, "", "", "")
	m := ReadAt(f.root)
	_, nics := chosen(t, m, "", Place{Node: 1})
	assert.Equal(t, 2, nics[0].Port.Rate)
	assert.Equal(t, "fd00::1", nics[0].GID.Addr.String())
	assert.Equal(t, "its state is unknown", why(nics[0], "zzz:1"))
	assert.Equal(t, "the only one", nics[0].Why)
}

// Every PE gets a usable port that was wished for, and equal ones are dealt evenly.
func TestChooseNICsProperties(t *testing.T) {
	m := ReadAt(dgx(t).root)
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfN(rapid.IntRange(-1, 1), 1, 40).Draw(t, "nodes")
		var places []Place
		for _, n := range nodes {
			places = append(places, Place{Node: n})
		}
		nics, err := m.ChooseNICs(places, Wish{Ports: "^mlx5_3"})
		if err != nil {
			t.Fatal(err)
		}
		use := map[int]map[string]int{}
		for i, n := range nics {
			if n.Port.Device == "mlx5_3" || len(n.Rejected) != len(m.Ports)-1 {
				t.Fatalf("%+v", n)
			}
			if use[nodes[i]] == nil {
				use[nodes[i]] = map[string]int{}
			}
			use[nodes[i]][n.Port.String()]++
		}
		for _, u := range use {
			lo, hi := 1<<30, 0
			for _, k := range u {
				lo, hi = min(lo, k), max(hi, k)
			}
			if hi-lo > 1 {
				t.Fatalf("uneven: %v", u)
			}
		}
	})
}

func TestBestGID(t *testing.T) {
	gid := func(i int, addr, typ string) GID { return GID{Index: i, Addr: netip.MustParseAddr(addr), Type: typ} }
	v1 := "IB/RoCE v1"
	roce := []GID{
		gid(0, "fe80::1", v1), gid(1, "fe80::1", RoCEv2), gid(2, "2001:db8::1", v1), gid(3, "2001:db8::1", RoCEv2),
		gid(4, "192.0.2.1", v1), gid(5, "192.0.2.1", RoCEv2), gid(6, "169.254.3.4", RoCEv2),
	}
	ib := []GID{gid(0, "fe80::2", v1), gid(1, "fd00::2", v1)}
	at := func(i int) Wish { return Wish{GID: &i} }
	to := func(addr string) Wish { return Wish{Address: netip.MustParseAddr(addr)} }
	both := at(5)
	both.Address = netip.MustParseAddr("2001:db8::1")
	for name, c := range map[string]struct {
		link string
		all  []GID
		wish Wish
		want int // -1: none
	}{
		"v2 and IPv4 first":           {"Ethernet", roce, Wish{}, 5},
		"v2 before IPv4":              {"Ethernet", roce[2:5], Wish{}, 3},
		"v1 rather than none":         {"Ethernet", roce[:3], Wish{}, 2},
		"never link-local by itself":  {"Ethernet", roce[:2], Wish{}, -1},
		"nor IPv4's":                  {"Ethernet", roce[6:], Wish{}, -1},
		"nothing there":               {"Ethernet", nil, Wish{}, -1},
		"link-local if asked for":     {"Ethernet", roce, at(1), 1},
		"by address, v2":              {"Ethernet", roce, to("2001:db8::1"), 3},
		"by address as IPv6 has it":   {"Ethernet", roce, to("::ffff:192.0.2.1"), 5},
		"index and address differ":    {"Ethernet", roce, both, -1},
		"no such index":               {"Ethernet", roce, at(77), -1},
		"the default of InfiniBand":   {"InfiniBand", ib, Wish{}, 0},
		"another one of InfiniBand's": {"InfiniBand", ib, at(1), 1},
	} {
		got, ok := Port{Link: c.link, GIDs: c.all}.bestGID(c.wish)
		assert.Equal(t, c.want >= 0, ok, name)
		if ok {
			assert.Equal(t, c.want, got.Index, name)
		}
	}
	m := &Machine{Ports: []Port{{Device: "a", Number: 1, State: "ACTIVE", Link: "Ethernet", GIDs: roce}}}
	_, err := m.ChooseNICs([]Place{{}}, both)
	assert.ErrorContains(t, err, "a:1: looked for gid 5 with address 2001:db8::1, found 0: fe80::1 IB/RoCE v1, 1: ")
}
