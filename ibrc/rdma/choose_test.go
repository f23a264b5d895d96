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

// cardWith is a card of a port whose interface has routes; none: they are not known.
func cardWith(n topo.NIC, routes *topo.Routes) Card {
	return cardOf(n, func(int) (topo.Routes, bool) {
		if routes == nil {
			return topo.Routes{}, false
		}
		return *routes, true
	})
}

// Both ends decide alike, by what both told.
func TestReach(t *testing.T) {
	cfg := Defaults()
	CardOf := func(n topo.NIC, err error) Card {
		if err != nil {
			return cfg.CardOf(n, err)
		}
		return cardWith(n, nil)
	}
	// Two rails, each a subnet of its own; the second has a router.
	rail := func(addr, typ, link string, gates ...string) Card {
		r := topo.Routes{Iface: "eth1", Link: []netip.Prefix{netip.MustParsePrefix(link)}}
		for _, g := range gates {
			r.Gate = append(r.Gate, netip.MustParsePrefix(g))
		}
		return cardWith(nic("Ethernet", addr, typ), &r)
	}
	const v1Type = "IB/RoCE v1"
	r1, r1too := rail("10.1.0.1", topo.RoCEv2, "10.1.0.0/16"), rail("10.1.0.2", topo.RoCEv2, "10.1.0.0/16")
	r2, far := rail("10.2.0.1", topo.RoCEv2, "10.2.0.0/16", "0.0.0.0/0"), rail("10.3.0.1", topo.RoCEv2, "10.3.0.0/16", "10.0.0.0/8")
	old, oldFar := rail("10.2.0.9", v1Type, "10.2.0.0/16", "0.0.0.0/0"), rail("10.3.0.9", v1Type, "10.3.0.0/16", "10.0.0.0/8")
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
		"one subnet":      {r1, r1too, true, "both have RDMA: "},
		"two subnets":     {r1, r2, false, "no common RDMA: pe 1, mlx5_0:1 10.1.0.1, has no route to 10.2.0.1 by eth1"},
		"no way back":     {far, r1, false, "no common RDMA: pe 2, mlx5_0:1 10.1.0.1, has no route to 10.3.0.1 by eth1"},
		"routed":          {r2, far, true, "both have RDMA: "},
		"v1 is not":       {old, oldFar, false, "no common RDMA: pe 1, mlx5_0:1 10.2.0.9, has no route to 10.3.0.9 by eth1"},
		"v1, one subnet":  {old, old, true, "both have RDMA: "},
		"one not known":   {r1, v4, false, "no common RDMA: pe 1, mlx5_0:1 10.1.0.1, has no route to 192.0.2.1"},
		"neither known":   {v4, cardWith(nic("Ethernet", "10.1.0.1", topo.RoCEv2), nil), true, "both have RDMA: "},
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

// What was asked for by name must be there; what is only excluded may be all there is.
func TestMust(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(c *Config)
		must bool
		says string
	}{
		"nothing asked": {func(*Config) {}, false, "looked for RDMA ports: "},
		"excluded":      {func(c *Config) { c.Ports = " ^a" }, false, "looked for RDMA ports GOSHMEM_NICS= ^a: "},
		"a port":        {func(c *Config) { c.Ports = "b" }, true, "looked for RDMA ports GOSHMEM_NICS=b: no usable RDMA port: a:1: not among those wished for (b)"},
		"a gid":         {func(c *Config) { c.GIDIndex = 7 }, true, "looked for RDMA ports GOSHMEM_RDMA_GID_INDEX=7: "},
		"an address":    {func(c *Config) { c.Ports, c.GID = "^b", netip.MustParseAddr("192.0.2.9") }, true, "looked for RDMA ports GOSHMEM_NICS=^b GOSHMEM_RDMA_GID=192.0.2.9: "},
	} {
		cfg := Defaults()
		c.set(&cfg)
		m := &topo.Machine{Ports: []topo.Port{{Device: "a", Number: 1, State: "DOWN", Link: "Ethernet"}}}
		_, err := Choose(m, []topo.Place{{}}, 0, cfg)
		card := cfg.CardOf(topo.NIC{}, err)
		if err == nil || card.Must != c.must || cfg.Demands() != c.must || !strings.Contains(card.Why, c.says) {
			t.Errorf("%s: %+v, %v", name, card, err)
		}
	}
	cfg := Defaults()
	cfg.Ports = "a"
	if cfg.CardOf(topo.NIC{}, errs.ErrUnsupported).Must {
		t.Error("a port that is there and cannot be used for another reason")
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
