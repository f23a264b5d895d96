package info

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"goshmem/ibrc/rdma"
	"goshmem/internal/options"
	"goshmem/internal/topo"
)

// nicSection tells which RDMA port each of n PEs of this host would use towards
// PEs of other hosts, and why no other one.
func nicSection(n int, environ []string) Section {
	s := Section{Title: nicTitle(n)}
	r, err := options.Resolve(options.Values{}, environ)
	if err != nil {
		return s // told with the options
	}
	cfg, err := rdma.FromOptions(r.Values)
	if err != nil {
		s.Err = err
		return s
	}
	m, err := rdma.Machine(cfg)
	if err != nil {
		s.Text = err.Error() + "\n" + without(&cfg)
		return s
	}
	return portsOf(m, n, cfg)
}

func nicTitle(n int) string { return fmt.Sprintf("RDMA ports of %d PEs of this host", n) }

// without says what comes of there being no port.
func without(cfg *rdma.Config) string {
	if cfg.Demands() {
		return "a world with PEs on other hosts: an error of join, since it was asked for\n"
	}
	return "to PEs of other hosts: tcp\n"
}

func portsOf(m *topo.Machine, n int, cfg rdma.Config) Section {
	s := Section{Title: nicTitle(n)}
	places := make([]topo.Place, n)
	for i := range places {
		places[i].Node = m.NodeOf(m.Usable)
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i := range places {
		c, err := rdma.Choose(m, places, i, cfg)
		if err != nil {
			s.Text = err.Error() + "\n" + without(&cfg)
			return s
		}
		fmt.Fprintf(t, "pe %d\tport %v\t%s, %d Gb/s\t%s\t%s\n", i, c.Port, c.Port.Link, c.Port.Rate, gid(c.GID), c.Why)
		for _, x := range c.Rejected {
			fmt.Fprintf(t, "\tnot %s\t%s\n", x.Port, x.Reason)
		}
		if routes, ok := topo.RoutesOf(c.GID.Iface); ok && c.Port.Link == topo.Ethernet.String() {
			fmt.Fprintf(t, "\tby %s\t%v\n", routes.Iface, routes)
		}
	}
	fmt.Fprintf(t, "to PEs of other hosts: rdma, where they have such a port too and both have a route to the other's address, else tcp\n")
	_ = t.Flush() // to memory
	s.Text = b.String()
	return s
}

func gid(g topo.GID) string {
	if !g.Addr.IsValid() {
		return "no gid"
	}
	return fmt.Sprintf("gid %d, %v, %s", g.Index, g.Addr, g.Type)
}
