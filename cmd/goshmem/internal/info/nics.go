package info

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"goshmem/internal/options"
	"goshmem/internal/topo"
)

// nicSection tells which RDMA port each of n PEs of this host would use towards
// PEs of other hosts, and why no other one.
func nicSection(m *topo.Machine, n int, environ []string) Section {
	s := Section{Title: fmt.Sprintf("RDMA ports of %d PEs of this host", n)}
	r, err := options.Resolve(options.Values{}, environ)
	if err != nil {
		return s // told with the options
	}
	places := make([]topo.Place, n)
	for i := range places {
		places[i].Node = m.NodeOf(m.Usable)
	}
	nics, err := m.ChooseNICs(places, r.NICs)
	if err != nil {
		if !errors.Is(err, topo.ErrNoNIC) {
			s.Err = err
		}
		s.Text = err.Error() + "\n"
		return s
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i, c := range nics {
		fmt.Fprintf(t, "pe %d\tport %v\t%s, %d Gb/s\t%s\t%s\n", i, c.Port, c.Port.Link, c.Port.Rate, gid(c.GID), c.Why)
		for _, x := range c.Rejected {
			fmt.Fprintf(t, "\tnot %s\t%s\n", x.Port, x.Reason)
		}
	}
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
