package rdma

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"goshmem/internal/errs"
	"goshmem/internal/topo"
	"goshmem/internal/verbs"
)

// endpoint is a port of an open device and the address to use on it.
type endpoint struct {
	port int
	attr verbs.PortAttr
	gid  verbs.GIDEntry // zero on InfiniBand without global routing
}

// Choose chooses the port of the PE at places[i] among those of its host:
// [topo.Machine.ChooseNICs]. The error is ErrConfig where cfg has wishes, else
// ErrUnsupported; it tells what was looked for and what was found.
func Choose(m *topo.Machine, places []topo.Place, i int, cfg Config) (topo.NIC, error) {
	nics, err := m.ChooseNICs(places, cfg.wish())
	if err != nil {
		return topo.NIC{}, cfg.none(err)
	}
	return nics[i], nil
}

// none is the error of there being no port that cfg allows.
func (c *Config) none(err error) error {
	kind, wish := errs.ErrUnsupported, c.wish()
	if !wish.Any() {
		kind = errs.ErrConfig
	}
	return fmt.Errorf("rdma: looked for RDMA ports%s: %w: %w", c.asked(), err, kind)
}

// asked names the wishes, for people.
func (c *Config) asked() (s string) {
	if c.Ports != "" {
		s += fmt.Sprintf(" GOSHMEM_NICS=%s", c.Ports)
	}
	if c.GIDIndex >= 0 {
		s += fmt.Sprintf(" GOSHMEM_RDMA_GID_INDEX=%d", c.GIDIndex)
	}
	if c.GID.IsValid() {
		s += fmt.Sprintf(" GOSHMEM_RDMA_GID=%v", c.GID)
	}
	return s
}

// Demands reports whether a port or address was asked for by name: then it is an
// error that there is none, and no reason to do without.
func (c *Config) Demands() bool {
	wish := c.wish()
	return wish.Demands()
}

// Machine is this host with its ports, whose addresses are asked of the devices. The
// error tells that there is no library, as [Choose] would.
func Machine(cfg Config) (*topo.Machine, error) {
	lib, err := verbs.Load()
	if err != nil {
		return nil, cfg.none(err)
	}
	m := topo.ReadNICs()
	for i := range m.Ports {
		if err := ask(lib, &m.Ports[i]); err != nil {
			m.Ports[i].Fault = err.Error()
		}
	}
	return m, nil
}

// ask fills in the addresses of an active port.
func ask(lib *verbs.Lib, p *topo.Port) error {
	if p.State != "ACTIVE" {
		return nil
	}
	c, err := lib.Open(p.Device)
	if err != nil {
		return err
	}
	gids, err := c.GIDs(p.Number)
	for _, g := range gids {
		typ := "IB/RoCE v1"
		if g.Type == verbs.GIDRoCEv2 {
			typ = topo.RoCEv2
		}
		p.GIDs = append(p.GIDs, topo.GID{Index: g.Index, Addr: g.GID.Addr(), Type: typ, Iface: g.Iface})
	}
	return errors.Join(err, c.Close())
}

// alone chooses the port of a process that knows of no other PE of its host.
func alone(cfg Config) (topo.NIC, error) {
	m, err := Machine(cfg)
	if err != nil {
		return topo.NIC{}, err
	}
	return Choose(m, []topo.Place{{Node: m.NodeOf(m.Usable)}}, 0, cfg)
}

// open opens what was chosen.
func open(lib *verbs.Lib, nic topo.NIC) (*verbs.Context, endpoint, error) {
	c, err := lib.Open(nic.Port.Device)
	if err != nil {
		return nil, endpoint{}, err
	}
	e, err := endpointOf(c, nic)
	if err != nil {
		return nil, e, errors.Join(err, c.Close())
	}
	return c, e, nil
}

// endpointOf asks the device for what the kernel shows of it.
func endpointOf(c *verbs.Context, nic topo.NIC) (e endpoint, err error) {
	e.port = nic.Port.Number
	if e.attr, err = c.QueryPort(e.port); err != nil {
		return e, err
	}
	if e.attr.State != verbs.PortActive {
		return e, fmt.Errorf("rdma: %v: its state is %v: %w", nic.Port, e.attr.State, errs.ErrUnsupported)
	}
	if !nic.GID.Addr.IsValid() {
		return e, nil
	}
	gids, err := c.GIDs(e.port)
	for _, g := range gids {
		if g.Index == nic.GID.Index {
			e.gid = g
			return e, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("rdma: %v: gid %d is not there any more: %w", nic.Port, nic.GID.Index, errs.ErrUnsupported)
	}
	return e, err
}

// Card is what a PE tells those of other hosts of its port.
type Card struct {
	At     string `json:"at,omitempty"`     // port and address; empty: it has none
	Link   string `json:"link,omitempty"`   // "Ethernet", "InfiniBand"
	Type   string `json:"type,omitempty"`   // of its address, on Ethernet: "RoCE v2"
	Family string `json:"family,omitempty"` // likewise: "IPv4", "IPv6"
	Why    string `json:"why,omitempty"`    // it has none
	Must   bool   `json:"must,omitempty"`   // and cannot do without: what was asked for by name is not there

	Addr   netip.Addr   `json:"addr,omitzero"`    // on Ethernet
	Routes *topo.Routes `json:"routes,omitempty"` // of the interface with that address; nil: not known
}

// CardOf describes a choice, or why there is none.
func (c *Config) CardOf(nic topo.NIC, err error) Card {
	if err != nil {
		// Everybody gets everybody's: a reason may be long, where a port has many addresses.
		return Card{Why: fmt.Sprintf("%.300s", err), Must: c.Demands() && errors.Is(err, errs.ErrConfig)}
	}
	return cardOf(nic, topo.RoutesOf)
}

func cardOf(nic topo.NIC, routes func(iface int) (topo.Routes, bool)) Card {
	c := Card{At: nic.Port.String(), Link: nic.Port.Link}
	if nic.GID.Addr.IsValid() {
		c.At += " " + nic.GID.Addr.String()
	}
	if c.Link == topo.Ethernet.String() {
		c.Type, c.Family = nic.GID.Type, "IPv6"
		if nic.GID.Addr.Is4() {
			c.Family = "IPv4"
		}
		c.Addr = nic.GID.Addr
		if r, ok := routes(nic.GID.Iface); ok {
			// Cards go to every PE, and are compared within a family only.
			other := func(p netip.Prefix) bool { return p.Addr().Is4() != c.Addr.Is4() }
			r.Link, r.Gate = slices.DeleteFunc(slices.Clone(r.Link), other), slices.DeleteFunc(slices.Clone(r.Gate), other)
			c.Routes = &r
		}
	}
	return c
}

// routed says why packets of a card's address do not come to another one's; empty:
// nothing is known against it. RoCE v1 is not routed at all.
func (c *Card) routed(to *Card) string {
	linked := c.Type != topo.RoCEv2
	if c.Routes == nil || !to.Addr.IsValid() || c.Routes.To(to.Addr, linked) {
		return ""
	}
	return fmt.Sprintf("has no route to %v by %s", to.Addr, c.Routes.Iface)
}

// Reach decides whether two PEs, a and b, reach each other by RDMA, and says why.
// Both come to the same.
func Reach(a, b int, ca, cb Card) (ok bool, why string) {
	if a > b {
		a, b, ca, cb = b, a, cb, ca
	}
	for _, x := range []struct {
		pe   int
		card Card
	}{{a, ca}, {b, cb}} {
		if x.card.At == "" {
			return false, fmt.Sprintf("pe %d has no RDMA: %s", x.pe, x.card.Why)
		}
	}
	kind := func(c Card) string { return strings.TrimSpace(strings.Join([]string{c.Link, c.Type, c.Family}, " ")) }
	if kind(ca) != kind(cb) {
		return false, fmt.Sprintf("no common RDMA: pe %d has %s, %s, pe %d has %s, %s", a, ca.At, kind(ca), b, cb.At, kind(cb))
	}
	for _, x := range []struct {
		pe       int
		from, to *Card
	}{{a, &ca, &cb}, {b, &cb, &ca}} {
		if why := x.from.routed(x.to); why != "" {
			return false, fmt.Sprintf("no common RDMA: pe %d, %s, %s", x.pe, x.from.At, why)
		}
	}
	return true, fmt.Sprintf("both have RDMA: pe %d %s, pe %d %s", a, ca.At, b, cb.At)
}

// pkeyIndex finds a partition key in a port's table; full and limited membership
// match alike.
func pkeyIndex(c *verbs.Context, e endpoint, key int) (int, error) {
	if key < 0 {
		return 0, nil
	}
	var found []string
	for i := range e.attr.Pkeys {
		k, err := c.Pkey(e.port, i)
		if err != nil {
			return 0, err
		}
		if int(k)&0x7fff == key&0x7fff && k != 0 {
			return i, nil
		}
		if k != 0 {
			found = append(found, fmt.Sprintf("%#x", k))
		}
	}
	return 0, fmt.Errorf("rdma: %s port %d: looked for pkey %#x, found %s: %w", c.Name, e.port, key, strings.Join(found, ", "), errs.ErrConfig)
}
