package topo

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// attr is a netlink attribute.
func attr(typ uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, typ), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

func num(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// newRoute is a message of a dump.
func newRoute(family, bits, typ byte, attrs ...[]byte) []byte {
	b := append(make([]byte, unix.SizeofNlMsghdr), family, bits, 0, 0, unix.RT_TABLE_MAIN, 0, 0, typ, 0, 0, 0, 0)
	for _, a := range attrs {
		b = append(b, a...)
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_NEWROUTE)
	return b
}

func address(s string) []byte { return netip.MustParseAddr(s).AsSlice() }

// dump is the routes by interfaces 2 and 3.
func dump() (rib []byte) {
	by := func(iface uint32) []byte { return attr(unix.RTA_OIF, num(iface)...) }
	hops := append(append(append([]byte{8, 0, 0, 0}, num(4)...), 16, 0, 0, 0), num(2)...)
	hops = append(hops, attr(unix.RTA_GATEWAY, address("192.0.2.1")...)...)
	for _, m := range [][]byte{
		newRoute(unix.AF_INET, 24, unix.RTN_UNICAST, attr(unix.RTA_DST, address("192.0.2.0")...), by(2)),
		newRoute(unix.AF_INET, 32, unix.RTN_LOCAL, attr(unix.RTA_DST, address("192.0.2.7")...), by(2)),
		newRoute(unix.AF_INET, 32, unix.RTN_BROADCAST, attr(unix.RTA_DST, address("198.51.100.255")...), by(2)),
		newRoute(unix.AF_INET, 16, unix.RTN_UNREACHABLE, attr(unix.RTA_DST, address("10.3.0.0")...), by(2)),
		newRoute(unix.AF_INET, 16, unix.RTN_UNICAST, attr(unix.RTA_DST, address("10.1.0.0")...), attr(unix.RTA_GATEWAY, address("192.0.2.1")...), by(2)),
		newRoute(unix.AF_INET, 16, unix.RTN_UNICAST, attr(unix.RTA_DST, address("10.2.0.0")...), attr(unix.RTA_MULTIPATH, hops...)),
		newRoute(unix.AF_INET, 0, unix.RTN_UNICAST, attr(unix.RTA_GATEWAY, address("203.0.113.1")...), by(3)),
		newRoute(unix.AF_INET6, 64, unix.RTN_UNICAST, attr(unix.RTA_DST, address("fd00::")...), by(2)),
		newRoute(unix.AF_INET6, 0, unix.RTN_UNICAST, attr(unix.RTA_GATEWAY, address("fe80::1")...), by(3)),
	} {
		rib = append(rib, m...)
	}
	return rib
}

// A route counts for the interface by which it leads, and without a gateway only
// where that is wanted.
func TestRoutes(t *testing.T) {
	read := func(iface int) (r Routes) {
		require.NoError(t, r.add(dump(), iface))
		r.Link, r.Gate = outermost(r.Link), outermost(r.Gate)
		return r
	}
	two, three := read(2), read(3)
	assert.Equal(t, "routes to 192.0.2.0/24, fd00::/64, 10.1.0.0/16 by a gateway, 10.2.0.0/16 by a gateway", two.String())
	assert.Equal(t, "routes to 0.0.0.0/0 by a gateway, ::/0 by a gateway", three.String())
	assert.Equal(t, "no routes", read(5).String())
	for _, c := range []struct {
		to                  string
		any, linked, second bool
	}{
		{"192.0.2.9", true, true, true}, {"10.1.2.3", true, false, true}, {"10.2.2.3", true, false, true}, {"10.3.0.1", false, false, true},
		{"198.51.100.1", false, false, true}, {"fd00::5", true, true, true}, {"fd01::5", false, false, true},
	} {
		a := netip.MustParseAddr(c.to)
		assert.Equal(t, []bool{c.any, c.linked, c.second}, []bool{two.To(a, false), two.To(a, true), three.To(a, false)}, c.to)
		assert.False(t, three.To(a, true), c.to)
	}
}

// This host's own: its loopback interface leads to itself.
func TestRoutesOfHere(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil || lo.Flags&net.FlagUp == 0 {
		t.Log("no loopback interface that is up:", err)
		return
	}
	r, ok := RoutesOf(lo.Index)
	require.True(t, ok)
	assert.True(t, r.To(netip.MustParseAddr("127.0.0.1"), true), r)
	assert.False(t, r.To(netip.MustParseAddr("192.0.2.1"), false), r)
	_, ok = RoutesOf(1 << 30)
	assert.False(t, ok)
}

// Whatever is dumped, what is read of it are prefixes.
func FuzzRoutes(f *testing.F) {
	f.Add(dump())
	f.Add(newRoute(unix.AF_INET, 200, unix.RTN_UNICAST, attr(unix.RTA_OIF, num(2)...)))
	f.Add(newRoute(unix.AF_INET, 8, unix.RTN_UNICAST, attr(unix.RTA_MULTIPATH, 9, 0, 0, 0, 2, 0, 0, 0, 1, 3, 0)))
	f.Fuzz(func(t *testing.T, rib []byte) {
		var r Routes
		if err := r.add(rib, 2); err != nil {
			return
		}
		for _, p := range append(r.Link, r.Gate...) {
			require.True(t, p.IsValid())
		}
	})
}
