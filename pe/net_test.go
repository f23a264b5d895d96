package pe

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/ibrc/rdma"
	"goshmem/internal/bootstrap"
	"goshmem/internal/errs"
	"goshmem/internal/topo"
)

// PEs of other hosts are told no address that leads them to themselves, though the
// rendezvous has one here.
func TestOutwardIsNoLoopback(t *testing.T) {
	for _, want := range []string{"", bootstrap.AnyInterface} {
		listen, _, err := (&nets{meet: "127.0.0.1:1"}).outward(t.Context(), want)
		if err != nil { // there is nothing else
			require.ErrorIs(t, err, errs.ErrConfig)
			continue
		}
		at, err := netip.ParseAddrPort(listen)
		require.NoError(t, err)
		require.False(t, at.Addr().IsLoopback(), "%q: %v", want, at)
	}
}

// A segment that may not be locked is a reason against RDMA where the path is free.
func TestLockable(t *testing.T) {
	require.NoError(t, lockable(1<<20, 1<<20))
	require.ErrorIs(t, lockable(1<<20+1, 1<<20), errs.ErrUnsupported)
}

// A PE takes the port that is nearest to the device that it gets, else to its CPUs.
func TestPortByDevice(t *testing.T) {
	at := func(address, sw string, node int, names ...string) topo.Device {
		return topo.Device{Address: address, Node: node, Ancestors: []string{sw}, Names: names}
	}
	up := func(name string) topo.Port {
		return topo.Port{Device: name, Number: 1, State: "ACTIVE", Link: "InfiniBand", Rate: 400}
	}
	m := &topo.Machine{
		Nodes: []topo.Node{{ID: 0, CPUs: []int{0, 1}}, {ID: 1, CPUs: []int{2, 3}}},
		GPUs:  []topo.Device{at("0000:1a:00.0", "0000:19:00.0", 0), at("0000:9a:00.0", "0000:99:00.0", 1)},
		NICs:  []topo.Device{at("0000:1b:00.0", "0000:19:00.0", 0, "mlx5_0"), at("0000:9b:00.0", "0000:99:00.0", 1, "mlx5_1")},
		Ports: []topo.Port{up("mlx5_0"), up("mlx5_1")},
	}
	buses := []string{"0000:1A:00.0", "0000:9A:00.0"}
	hellos := []hello{
		{CPUs: []int{2}, Buses: buses}, {CPUs: []int{0}}, // of another host
		{CPUs: []int{0, 1}, Buses: buses}, {CPUs: []int{0, 1}, Buses: buses},
		{CPUs: []int{2}}, {CPUs: []int{0, 1}, Buses: buses[1:]}, {CPUs: []int{0}, Buses: []string{"0000:77:00.0"}},
	}
	host := []int{2, 3, 4, 5, 6}
	for i, want := range []string{"mlx5_0:1", "mlx5_1:1", "mlx5_1:1", "mlx5_1:1", "mlx5_0:1"} {
		nic, err := rdma.Choose(m, placesOf(m, hellos, host), i, rdma.Defaults())
		require.NoError(t, err)
		require.Equal(t, want, nic.Port.String(), "pe %d: %s", host[i], nic.Why)
	}
}
