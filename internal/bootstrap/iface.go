package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"goshmem/internal/errs"
)

// AnyInterface as a choice of interface means all of them.
const AnyInterface = "any"

// Bound is a choice of a network interface.
type Bound struct {
	Addr      netip.Addr // unspecified: all interfaces; the zero Addr: no choice was made
	Interface string     // its name
	Why       string
}

func (b Bound) String() string {
	if b.Interface == "" {
		return b.Why
	}
	return b.Interface + ": " + b.Why
}

// ifAddr is one address of this host.
type ifAddr struct {
	iface  string
	prefix netip.Prefix
}

func (a ifAddr) addr() netip.Addr { return a.prefix.Addr() }

// ownAddresses lists the addresses of the interfaces that are up, less those
// that have a meaning on one link only.
func ownAddresses() ([]ifAddr, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("bootstrap: network interfaces: %w", err)
	}
	var out []ifAddr
	for _, i := range list {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("bootstrap: addresses of %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			ip, _ := netip.AddrFromSlice(n.IP)
			ones, _ := n.Mask.Size()
			if ip = ip.Unmap(); ip.IsValid() && !ip.IsLinkLocalUnicast() {
				out = append(out, ifAddr{i.Name, netip.PrefixFrom(ip, ones)})
			}
		}
	}
	return out, nil
}

func describeOwn(own []ifAddr) string {
	var v []string
	for _, a := range own {
		v = append(v, a.iface+" "+a.addr().String())
	}
	return strings.Join(v, ", ")
}

// choose picks an address of this host by what was asked for: an interface's
// name, an address, or a subnet as 10.0.0.0/8. IPv4 goes before IPv6.
func choose(own []ifAddr, want string) (Bound, error) {
	var match func(ifAddr) bool
	if p, err := netip.ParsePrefix(want); err == nil {
		match = func(a ifAddr) bool { return p.Contains(a.addr()) }
	} else if ip, err := netip.ParseAddr(want); err == nil {
		match = func(a ifAddr) bool { return a.addr() == ip.Unmap() }
	} else {
		match = func(a ifAddr) bool { return a.iface == want }
	}
	if a, ok := first(own, match); ok {
		return Bound{a.addr(), a.iface, "GOSHMEM_INTERFACE is " + want}, nil
	}
	return Bound{}, fmt.Errorf("bootstrap: GOSHMEM_INTERFACE=%q is no name, address or subnet of an interface that is up, nor %q: there are %s: %w",
		want, AnyInterface, describeOwn(own), errs.ErrConfig)
}

// first is the first address that matches, IPv4 before IPv6.
func first(own []ifAddr, match func(ifAddr) bool) (ifAddr, bool) {
	for _, v4 := range []bool{true, false} {
		for _, a := range own {
			if a.addr().Is4() == v4 && match(a) {
				return a, true
			}
		}
	}
	return ifAddr{}, false
}

// bindFor chooses where a hub listens whose members look for it at host, which
// resolves here to these addresses.
func bindFor(host string, resolved []netip.Addr, want string, own []ifAddr) (Bound, error) {
	all := func(format string, args ...any) (Bound, error) {
		return Bound{Addr: netip.IPv6Unspecified(), Why: fmt.Sprintf("all interfaces: "+format, args...)}, nil
	}
	switch {
	case want == AnyInterface:
		return all("GOSHMEM_INTERFACE is %s", want)
	case want != "":
		return choose(own, want)
	case len(resolved) == 0:
		return all("%s has no address yet", host)
	}
	has := func(a ifAddr) bool { return slices.Contains(resolved, a.addr()) }
	if a, ok := first(own, func(a ifAddr) bool { return has(a) && !a.addr().IsLoopback() }); ok {
		return Bound{a.addr(), a.iface, "it has the address of " + host}, nil
	}
	if !slices.ContainsFunc(resolved, netip.Addr.IsLoopback) {
		return Bound{}, fmt.Errorf("%s (%v) is no address of this host: the rendezvous is at the host of rank 0; here are %s; GOSHMEM_INTERFACE=%s listens all the same: %w",
			host, resolved, describeOwn(own), AnyInterface, errs.ErrConfig)
	}
	_, err := netip.ParseAddr(host)
	if a, ok := first(own, has); ok && (err == nil || host == "localhost") {
		return Bound{a.addr(), a.iface, host + " was asked for"}, nil
	}
	// Debian gives a host's own name an address that nobody else reaches.
	return all("%s is %v here, which others cannot reach", host, resolved[0])
}

// resolveTime bounds a question to the domain name system.
const resolveTime = 5 * time.Second

// resolve gives a host's addresses; none for a name that nobody knows (yet).
func resolve(ctx context.Context, host string) []netip.Addr {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip.Unmap()}
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	ips, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	return ips
}

func listenTCP(name, want string) (net.Listener, Bound, error) {
	host, port, _ := net.SplitHostPort(name) // checked before
	own, err := ownAddresses()
	if err != nil {
		return nil, Bound{}, err
	}
	b, err := bindFor(host, resolve(context.Background(), host), want, own)
	if err != nil {
		return nil, Bound{}, err
	}
	l, err := listenOn(b, port)
	return l, b, err
}

func listenOn(b Bound, port string) (net.Listener, error) {
	host := ""
	if !b.Addr.IsUnspecified() {
		host = b.Addr.String()
	}
	return net.Listen("tcp", net.JoinHostPort(host, port))
}

// Facing chooses the address of this host that another one reaches it by: what
// was asked for (as in ListenAt), else the source of the route to it. A name that
// does not resolve, as an agent of a launcher may use, gives the first address
// that is no loopback one. Nothing is sent.
func Facing(ctx context.Context, host, want string) (Bound, error) {
	own, err := ownAddresses()
	if err != nil {
		return Bound{}, err
	}
	if want != "" && want != AnyInterface {
		return choose(own, want)
	}
	for _, ip := range resolve(ctx, host) {
		if src, ok := routeSource(ip); ok {
			a, _ := first(own, func(a ifAddr) bool { return a.addr() == src })
			return Bound{src, a.iface, "the way to " + host}, nil
		}
	}
	if a, ok := first(own, func(a ifAddr) bool { return !a.addr().IsLoopback() }); ok {
		return Bound{a.addr(), a.iface, "the first interface; " + host + " has no address here"}, nil
	}
	return Bound{}, fmt.Errorf("bootstrap: no interface to reach %s by: there are %s: %w", host, describeOwn(own), errs.ErrConfig)
}

// Outward chooses the address by which this host is seen by others: what was
// asked for, else that of its name, else the first that is no loopback one.
func Outward(ctx context.Context, want string) (Bound, error) {
	own, err := ownAddresses()
	if err != nil {
		return Bound{}, err
	}
	if want != "" && want != AnyInterface {
		return choose(own, want)
	}
	name, err := os.Hostname()
	if err == nil {
		ips := resolve(ctx, name)
		if a, ok := first(own, func(a ifAddr) bool { return slices.Contains(ips, a.addr()) && !a.addr().IsLoopback() }); ok {
			return Bound{a.addr(), a.iface, "it has the address of " + name}, nil
		}
	}
	if a, ok := first(own, func(a ifAddr) bool { return !a.addr().IsLoopback() }); ok {
		return Bound{a.addr(), a.iface, "the first interface; the host's name has no address that others reach"}, nil
	}
	return Bound{}, fmt.Errorf("bootstrap: no interface that others reach: there are %s: %w", describeOwn(own), errs.ErrConfig)
}

// routeSource is the address that the kernel would send from.
func routeSource(to netip.Addr) (netip.Addr, bool) {
	c, err := net.Dial("udp", netip.AddrPortFrom(to, 9).String())
	if err != nil {
		return netip.Addr{}, false
	}
	defer func() { _ = c.Close() }()
	u, ok := c.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return u.AddrPort().Addr().Unmap(), true
}

// ListenFacing opens a rendezvous of several hosts at a free port of its own
// choice, or at port, and gives the address for each of hosts.
func ListenFacing(ctx context.Context, hosts []string, want string, port uint16) (l net.Listener, addrs []string, bound []Bound, err error) {
	if len(hosts) == 0 {
		return nil, nil, nil, errors.New("bootstrap: no hosts")
	}
	at := Bound{Addr: netip.IPv6Unspecified()}
	for i, h := range hosts {
		b, err := Facing(ctx, h, want)
		if err != nil {
			return nil, nil, nil, err
		}
		bound = append(bound, b)
		if i == 0 && want != AnyInterface {
			at = b
		} else if at.Addr != b.Addr {
			at = Bound{Addr: netip.IPv6Unspecified()}
		}
	}
	if l, err = listenOn(at, fmt.Sprint(port)); err != nil {
		return nil, nil, nil, fmt.Errorf("bootstrap: listen: %w", err)
	}
	got := l.Addr().(*net.TCPAddr).Port
	for _, b := range bound {
		addrs = append(addrs, netip.AddrPortFrom(b.Addr, uint16(got)).String())
	}
	return l, addrs, bound, nil
}
