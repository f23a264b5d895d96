package info

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"goshmem/ibrc/rdma"
	"goshmem/internal/topo"
)

func TestNICs(t *testing.T) {
	none := portsOf(&topo.Machine{}, 2, rdma.Defaults())
	assert.NoError(t, none.Err)
	assert.Contains(t, none.Text, "there is no RDMA device")

	port := func(name, state string) topo.Port {
		return topo.Port{Device: name, Number: 1, State: state, Link: "Ethernet", Rate: 100, GIDs: []topo.GID{{Index: 3, Addr: netip.MustParseAddr("10.0.0.1"), Type: "RoCE v2"}}}
	}
	m := &topo.Machine{Ports: []topo.Port{port("a", "ACTIVE"), port("b", "DOWN"), port("c", "ACTIVE")}}
	asks := func(ports string) rdma.Config {
		cfg := rdma.Defaults()
		cfg.Ports = ports
		return cfg
	}
	s := portsOf(m, 2, asks("^c"))
	assert.NoError(t, s.Err)
	assert.Regexp(t, `(?m)^pe 1 +port a:1 +Ethernet, 100 Gb/s +gid 3, 10\.0\.0\.1, RoCE v2 +`, s.Text)
	assert.Regexp(t, `(?m)^ +not b:1 +its state is DOWN$`, s.Text)
	assert.Regexp(t, `(?m)^ +not c:1 +not among those wished for \(\^c\)$`, s.Text)
	s = portsOf(m, 2, asks("b"))
	assert.Contains(t, s.Text, "looked for RDMA ports GOSHMEM_NICS=b: ")
	assert.Contains(t, s.Text, "b:1: its state is DOWN")
	assert.Contains(t, s.Text, "an error of join")
	assert.Contains(t, portsOf(m, 2, asks("^a,c")).Text, "to PEs of other hosts: tcp\n")
}
