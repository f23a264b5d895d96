package rdma

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"goshmem/internal/errs"
	"goshmem/internal/topo"
	"goshmem/internal/verbs"
)

// nic is a choice of a port with an address.
func nic(link, addr, typ string) topo.NIC {
	return topo.NIC{Port: topo.Port{Device: "mlx5_0", Number: 1, Link: link}, GID: topo.GID{Addr: netip.MustParseAddr(addr), Type: typ}}
}

// Both ends decide alike, by what both told.
func TestReach(t *testing.T) {
	v4, v6 := CardOf(nic("Ethernet", "192.0.2.1", topo.RoCEv2), nil), CardOf(nic("Ethernet", "2001:db8::1", topo.RoCEv2), nil)
	v1 := CardOf(nic("Ethernet", "192.0.2.2", "IB/RoCE v1"), nil)
	ib, none := CardOf(nic("InfiniBand", "fe80::1", "IB/RoCE v1"), nil), CardOf(topo.NIC{}, errors.New("no cable"))
	bare := CardOf(topo.NIC{Port: topo.Port{Device: "ib0", Number: 2, Link: "InfiniBand"}}, nil)
	for name, c := range map[string]struct {
		a, b Card
		ok   bool
		why  string
	}{
		"alike":           {v4, v4, true, "both have RDMA: pe 1 mlx5_0:1 192.0.2.1, pe 2 mlx5_0:1 192.0.2.1"},
		"one has none":    {v4, none, false, "pe 2 has no RDMA: no cable"},
		"the other":       {none, v4, false, "pe 1 has no RDMA: no cable"},
		"a card of old":   {v4, Card{}, false, "pe 2 has no RDMA: "},
		"families differ": {v4, v6, false, "no common RDMA: pe 1 has mlx5_0:1 192.0.2.1, Ethernet RoCE v2 IPv4, pe 2 has mlx5_0:1 2001:db8::1, Ethernet RoCE v2 IPv6"},
		"versions differ": {v4, v1, false, "no common RDMA"},
		"links differ":    {ib, v4, false, "no common RDMA"},
		"ib, one address": {ib, bare, true, "both have RDMA: pe 1 mlx5_0:1 fe80::1, pe 2 ib0:2"},
	} {
		ok, why := Reach(1, 2, c.a, c.b)
		if ok != c.ok || !strings.HasPrefix(why, c.why) {
			t.Errorf("%s: %v, %s", name, ok, why)
		}
		if ok2, why2 := Reach(2, 1, c.b, c.a); ok2 != ok || why2 != why {
			t.Errorf("%s: %v, %s from the other side", name, ok2, why2)
		}
	}
}

func TestChoose(t *testing.T) {
	places := []topo.Place{{}, {}}
	if _, err := Choose(&topo.Machine{}, places, 0, Defaults()); !errors.Is(err, errs.ErrUnsupported) || !errors.Is(err, topo.ErrNoNIC) {
		t.Error(err)
	}
	up := func(name string) topo.Port {
		n := nic("Ethernet", "192.0.2.1", topo.RoCEv2)
		return topo.Port{Device: name, Number: 1, State: "ACTIVE", Link: "Ethernet", GIDs: []topo.GID{n.GID}}
	}
	m := &topo.Machine{Ports: []topo.Port{up("a"), up("b"), up("c")}}
	cfg := Defaults()
	cfg.Ports = "^a"
	for i, want := range []string{"b:1", "c:1"} {
		if n, err := Choose(m, places, i, cfg); err != nil || n.Port.String() != want {
			t.Error(n, err)
		}
	}
	cfg.GIDIndex = 7
	if _, err := Choose(m, places, 0, cfg); !errors.Is(err, errs.ErrConfig) || !strings.Contains(err.Error(), "looked for gid 7, found 0: 192.0.2.1") {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	c := Defaults()
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	for _, set := range []func(c *Config){
		func(c *Config) { c.MTU = 1500 }, func(c *Config) { c.Timeout = 0 }, func(c *Config) { c.Timeout = 32 }, func(c *Config) { c.Retries = 8 },
		func(c *Config) { c.SL = 16 }, func(c *Config) { c.TC = 256 }, func(c *Config) { c.SQDepth = 0 }, func(c *Config) { c.Pkey = 1 << 16 },
	} {
		c := Defaults()
		set(&c)
		if err := c.check(); !errors.Is(err, errs.ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestHandle(t *testing.T) {
	h := handle{qpn: 0x123456, psn: 0xfedcba, gid: netip.MustParseAddr("192.0.2.1").As16(), lid: 7, link: verbs.LinkEthernet, mtu: 5, destRd: 16, gidType: 2}
	got, err := decodeHandle(h.encode())
	if err != nil || got != h {
		t.Error(got, err)
	}
}

func FuzzHandle(f *testing.F) {
	f.Add(handle{qpn: 1, mtu: 3}.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHandle(b)
		if err != nil {
			if !errors.Is(err, errs.ErrMismatch) {
				t.Error(err)
			}
			return
		}
		if string(h.encode()) != string(b) {
			t.Error("another encoding")
		}
	})
}
