package rdma

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"goshmem/internal/errs"
	"goshmem/internal/verbs"
)

func gid(index int, addr string, typ verbs.GIDType) verbs.GIDEntry {
	return verbs.GIDEntry{GID: netip.MustParseAddr(addr).As16(), Index: index, Type: typ}
}

func TestChooseGID(t *testing.T) {
	roce := []verbs.GIDEntry{
		gid(0, "fe80::1", verbs.GIDRoCEv1), gid(1, "fe80::1", verbs.GIDRoCEv2),
		gid(2, "2001:db8::1", verbs.GIDRoCEv1), gid(3, "2001:db8::1", verbs.GIDRoCEv2),
		gid(4, "192.0.2.1", verbs.GIDRoCEv1), gid(5, "192.0.2.1", verbs.GIDRoCEv2),
		gid(6, "169.254.3.4", verbs.GIDRoCEv2),
	}
	with := func(set func(c *Config)) *Config {
		c := Defaults()
		set(&c)
		return &c
	}
	none := func(*Config) {}
	for name, c := range map[string]struct {
		link verbs.LinkLayer
		all  []verbs.GIDEntry
		set  func(c *Config)
		want int // -1: an error
	}{
		"v2 and IPv4 first":           {verbs.LinkEthernet, roce, none, 5},
		"v2 before IPv4":              {verbs.LinkEthernet, roce[2:5], none, 3},
		"v1 rather than none":         {verbs.LinkEthernet, roce[:3], none, 2},
		"never link-local by itself":  {verbs.LinkEthernet, roce[:2], none, -1},
		"nor IPv4's":                  {verbs.LinkEthernet, roce[6:], none, -1},
		"nothing there":               {verbs.LinkEthernet, nil, none, -1},
		"link-local if asked for":     {verbs.LinkEthernet, roce, func(c *Config) { c.GIDIndex = 1 }, 1},
		"by address, v2":              {verbs.LinkEthernet, roce, func(c *Config) { c.GID = netip.MustParseAddr("2001:db8::1") }, 3},
		"index and address differ":    {verbs.LinkEthernet, roce, func(c *Config) { c.GIDIndex, c.GID = 5, netip.MustParseAddr("2001:db8::1") }, -1},
		"no such index":               {verbs.LinkEthernet, roce, func(c *Config) { c.GIDIndex = 77 }, -1},
		"the default of InfiniBand":   {verbs.LinkInfiniBand, []verbs.GIDEntry{gid(0, "fe80::2", verbs.GIDIB)}, none, 0},
		"another one of InfiniBand's": {verbs.LinkInfiniBand, []verbs.GIDEntry{gid(0, "fe80::2", verbs.GIDIB), gid(1, "fd00::2", verbs.GIDIB)}, func(c *Config) { c.GIDIndex = 1 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g, why, err := chooseGID(c.link, c.all, with(c.set))
			if c.want < 0 {
				if !errors.Is(err, errs.ErrConfig) || !strings.Contains(err.Error(), "looked for") || !strings.Contains(err.Error(), "found") {
					t.Error(g, err)
				}
				return
			}
			if err != nil || g.Index != c.want || why == "" {
				t.Error(g, why, err)
			}
		})
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
	h := handle{qpn: 0x123456, psn: 0xfedcba, gid: gid(0, "192.0.2.1", 0).GID, lid: 7, link: verbs.LinkEthernet, mtu: 5, destRd: 16, gidType: 2}
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
