package topo

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Routes is where packets that leave by a network interface come to, as the kernel's
// routing tables say: of all tables, whichever rule leads to them.
type Routes struct {
	Iface string         `json:"iface"`
	Link  []netip.Prefix `json:"link,omitempty"` // without a gateway
	Gate  []netip.Prefix `json:"gate,omitempty"` // by one
}

// maxRoutes is the prefixes of one kind; of an interface with more, a router's, nothing
// is said.
const maxRoutes = 32

// RoutesOf asks the kernel for the routes by the interface of that index. ok is false
// if they cannot be told: nothing is known then.
func RoutesOf(iface int) (r Routes, ok bool) {
	dev, err := net.InterfaceByIndex(iface)
	if err != nil {
		return r, false
	}
	r.Iface = dev.Name
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rib, err := syscall.NetlinkRIB(unix.RTM_GETROUTE, family)
		if err == nil {
			err = r.add(rib, iface)
		}
		if err != nil {
			return r, false
		}
	}
	r.Link, r.Gate = outermost(r.Link), outermost(r.Gate)
	return r, len(r.Link) <= maxRoutes && len(r.Gate) <= maxRoutes
}

// String lists the prefixes.
func (r Routes) String() string {
	var out []string
	for _, p := range r.Link {
		out = append(out, p.String())
	}
	for _, p := range r.Gate {
		out = append(out, p.String()+" by a gateway")
	}
	if len(out) == 0 {
		return "no routes"
	}
	return "routes to " + strings.Join(out, ", ")
}

// To reports whether there is a route to an address; linked, only one without a
// gateway counts.
func (r *Routes) To(a netip.Addr, linked bool) bool {
	has := func(p netip.Prefix) bool { return p.Contains(a) }
	return slices.ContainsFunc(r.Link, has) || !linked && slices.ContainsFunc(r.Gate, has)
}

// outermost leaves out the prefixes that others contain.
func outermost(all []netip.Prefix) (out []netip.Prefix) {
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		if a.Bits() != b.Bits() {
			return a.Bits() - b.Bits()
		}
		return a.Addr().Compare(b.Addr())
	})
	for _, p := range all {
		if !slices.ContainsFunc(out, func(o netip.Prefix) bool { return o.Overlaps(p) }) {
			out = append(out, p)
		}
	}
	return out
}

// add takes in the routes of a dump that lead to an interface.
func (r *Routes) add(rib []byte, iface int) error {
	msgs, err := syscall.ParseNetlinkMessage(rib)
	if err != nil {
		return fmt.Errorf("topo: routes: %w", err)
	}
	for i := range msgs {
		m := &msgs[i]
		if m.Header.Type != unix.RTM_NEWROUTE || len(m.Data) < unix.SizeofRtMsg {
			continue
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(m)
		if err != nil {
			return fmt.Errorf("topo: routes: %w", err)
		}
		r.route(m.Data, attrs, iface)
	}
	return nil
}

// route takes in one: rtm is a struct rtmsg.
func (r *Routes) route(rtm []byte, attrs []syscall.NetlinkRouteAttr, iface int) {
	family, bits, typ := rtm[0], int(rtm[1]), rtm[7]
	cloned := binary.NativeEndian.Uint32(rtm[8:])&unix.RTM_F_CLONED != 0
	if cloned || typ != unix.RTN_UNICAST && typ != unix.RTN_LOCAL {
		return
	}
	dst := netip.IPv4Unspecified()
	if family == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	here, gate := false, false
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.RTA_DST:
			if at, ok := netip.AddrFromSlice(a.Value); ok {
				dst = at
			}
		case unix.RTA_OIF:
			here = here || len(a.Value) >= 4 && int(binary.NativeEndian.Uint32(a.Value)) == iface
		case unix.RTA_GATEWAY, unix.RTA_VIA:
			gate = true
		case unix.RTA_MULTIPATH:
			at, far := hop(a.Value, iface)
			here, gate = here || at, gate || far
		}
	}
	p, err := dst.Prefix(bits)
	switch {
	case !here || err != nil:
	case gate:
		r.Gate = append(r.Gate, p)
	default:
		r.Link = append(r.Link, p)
	}
}

// hop looks for an interface among the next hops of a route of several: struct
// rtnexthop and its attributes, one after the other.
func hop(b []byte, iface int) (here, gate bool) {
	for len(b) >= unix.SizeofRtNexthop {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtNexthop || n > len(b) {
			break
		}
		if int(binary.NativeEndian.Uint32(b[4:])) == iface {
			// All that comes with a hop is a gateway, or a way of encapsulating.
			return true, n > unix.SizeofRtNexthop
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return false, false
}
