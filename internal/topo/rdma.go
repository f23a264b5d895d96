package topo

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Port is one port of an RDMA device.
type Port struct {
	Device string // "mlx5_0"
	Number int    // from 1
	State  string // "ACTIVE", "DOWN", …; empty: unknown
	Link   string // "InfiniBand", "Ethernet"
	Rate   int    // Gb/s; 0: unknown
	GIDs   []GID  // that are set, by index
	Fault  string // why it cannot be used; empty: nothing is known
}

// String is the name of the port: "mlx5_0:1".
func (p Port) String() string { return p.Device + ":" + strconv.Itoa(p.Number) }

// GID is an entry of a port's table of addresses.
type GID struct {
	Index int
	Addr  netip.Addr // as an address; IPv4 as such
	Type  string     // "IB/RoCE v1", "RoCE v2"
	Iface int        // index of the network interface that has it; 0: unknown
}

const ibClass = "sys/class/infiniband"

// rdma lists the ports of all RDMA devices.
func (r reader) rdma() error {
	devices, err := r.entries(ibClass)
	if err != nil {
		return err
	}
	for _, d := range devices {
		ports, err := r.entries(ibClass, d.Name(), "ports")
		if err != nil {
			return err
		}
		for _, p := range ports {
			n, err := strconv.Atoi(p.Name())
			if err != nil || n < 1 {
				continue
			}
			r.m.Ports = append(r.m.Ports, r.port(d.Name(), n))
		}
	}
	slices.SortFunc(r.m.Ports, func(a, b Port) int {
		if c := strings.Compare(a.Device, b.Device); c != 0 {
			return c
		}
		return a.Number - b.Number
	})
	return nil
}

func (r reader) port(device string, n int) Port {
	dir := filepath.Join(ibClass, device, "ports", strconv.Itoa(n))
	text := func(name ...string) string {
		b, err := os.ReadFile(r.path(append([]string{dir}, name...)...))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	p := Port{Device: device, Number: n, Link: text("link_layer")}
	if _, state, ok := strings.Cut(text("state"), ": "); ok { // "4: ACTIVE"
		p.State = state
	}
	rate, _, _ := strings.Cut(text("rate"), " ") // "100 Gb/sec (4X EDR)", "2.5 Gb/sec (1X SDR)"
	if f, err := strconv.ParseFloat(rate, 64); err == nil && f > 0 && f < 1e6 {
		p.Rate = int(f)
	}
	if r.bare {
		return p
	}
	gids, err := r.entries(dir, "gids")
	if err != nil {
		return p
	}
	for _, e := range gids {
		i, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		addr, err := netip.ParseAddr(text("gids", e.Name()))
		if err != nil || addr.IsUnspecified() {
			continue
		}
		p.GIDs = append(p.GIDs, GID{Index: i, Addr: addr.Unmap(), Type: text("gid_attrs", "types", e.Name())})
	}
	slices.SortFunc(p.GIDs, func(a, b GID) int { return a.Index - b.Index })
	return p
}

// Place is where a PE is on its host.
type Place struct {
	Node   int     // NUMA node; -1: it may run on several
	Device *Device // the GPU whose memory it uses; nil: it uses the host's
}

// NodeOf is the NUMA node that all these CPUs are of; -1 if there is none.
func (m *Machine) NodeOf(cpus []int) int {
	for _, n := range m.Nodes {
		inside := len(cpus) > 0
		for _, c := range cpus {
			inside = inside && slices.Contains(n.CPUs, c)
		}
		if inside {
			return n.ID
		}
	}
	return -1
}

// NIC is the choice for one PE.
type NIC struct {
	Port     Port
	GID      GID // of InfiniBand: the first
	Why      string
	Rejected []Rejected
}

// Rejected is a port that was not chosen.
type Rejected struct {
	Port   string
	Reason string
}

// ErrNoNIC is why there is no choice.
var ErrNoNIC = errors.New("no usable RDMA port")

// Wish is what was asked for of ports and their addresses.
type Wish struct {
	// Ports allows only some, "mlx5_0,mlx5_1:2", or all but some, "^mlx5_2"; empty:
	// all.
	Ports string
	// Address must be a GID's; the zero Addr: any.
	Address netip.Addr
	// GID is an index in the table of addresses, of which all are allowed then,
	// link-local ones too; nil: any.
	GID *int
}

// address reports whether an address was asked for.
func (w *Wish) address() bool { return w.GID != nil || w.Address.IsValid() }

// Any reports whether nothing was asked for: where nothing is found it is the
// machine's lack then.
func (w *Wish) Any() bool { return w.Ports == "" && !w.address() }

// Demands reports whether something was asked for by name, and not only excluded.
func (w *Wish) Demands() bool {
	ports := strings.TrimSpace(w.Ports)
	return w.address() || ports != "" && !strings.HasPrefix(ports, "^")
}

// ChooseNICs chooses a port for each PE of a host: of those that can be used the
// nearest to the PE's device or node, of those the fastest, and PEs of one place
// are dealt to those in turn. It is a function of the machine, the places and the
// wish alone: all PEs of a host come to the same choices.
func (m *Machine) ChooseNICs(places []Place, wish Wish) ([]NIC, error) {
	usable, gids, rejected := m.usablePorts(wish)
	if len(usable) == 0 {
		if len(rejected) == 0 {
			return nil, fmt.Errorf("%w: there is no RDMA device", ErrNoNIC)
		}
		var v []string
		for _, r := range rejected {
			v = append(v, r.Port+": "+r.Reason)
		}
		return nil, fmt.Errorf("%w: %s", ErrNoNIC, strings.Join(v, "; "))
	}
	out := make([]NIC, len(places))
	dealt := map[string]int{}
	for i, place := range places {
		best, dist, others := m.nearest(place, usable)
		key := fmt.Sprint(best)
		p := best[dealt[key]%len(best)]
		n := NIC{Port: p, GID: gids[p.String()], Rejected: append(slices.Clone(rejected), others...)}
		n.Why = dist
		if len(best) > 1 {
			n.Why += fmt.Sprintf(", one of %d alike", len(best))
			for _, o := range best {
				if o.String() != p.String() {
					n.Rejected = append(n.Rejected, Rejected{o.String(), "as good; another PE's turn"})
				}
			}
		}
		dealt[key]++
		out[i] = n
	}
	return out, nil
}

// usablePorts are the ports that a PE may use, with the address of each.
func (m *Machine) usablePorts(wish Wish) (usable []Port, gids map[string]GID, rejected []Rejected) {
	gids = map[string]GID{}
	for _, p := range m.Ports {
		gid, ok := p.bestGID(wish)
		switch {
		case !allowed(wish.Ports, p):
			rejected = append(rejected, Rejected{p.String(), "not among those wished for (" + wish.Ports + ")"})
		case p.Fault != "":
			rejected = append(rejected, Rejected{p.String(), p.Fault})
		case p.State != "ACTIVE":
			rejected = append(rejected, Rejected{p.String(), "its state is " + known(p.State)})
		case !ok:
			rejected = append(rejected, Rejected{p.String(), "looked for " + wish.String() + ", found " + p.gids()})
		default:
			usable = append(usable, p)
			gids[p.String()] = gid
		}
	}
	return usable, gids, rejected
}

// String tells what address is looked for.
func (w *Wish) String() string {
	switch {
	case w.GID != nil && w.Address.IsValid():
		return fmt.Sprintf("gid %d with address %v", *w.GID, w.Address)
	case w.GID != nil:
		return fmt.Sprintf("gid %d", *w.GID)
	case w.Address.IsValid():
		return fmt.Sprintf("a gid with address %v", w.Address)
	}
	return "a gid that is not link-local"
}

// gids lists the addresses of a port.
func (p Port) gids() string {
	if len(p.GIDs) == 0 {
		return "none"
	}
	var all []string
	for _, g := range p.GIDs {
		all = append(all, fmt.Sprintf("%d: %v %s", g.Index, g.Addr, g.Type))
	}
	return strings.Join(all, ", ")
}

// allowed reports whether a wish is for a port.
func allowed(wish string, p Port) bool {
	list, but := strings.CutPrefix(strings.TrimSpace(wish), "^")
	if list == "" {
		return true
	}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name == p.Device || name == p.String() {
			return !but
		}
	}
	return but
}

// bestGID picks a port's address: RoCE v2 before v1, IPv4 before IPv6, the lowest
// index. A link-local one is taken only if its index or address was asked for: it
// reaches nobody beyond its link, and which link is not in it. On InfiniBand the
// first serves, whose prefix is link-local by default.
func (p Port) bestGID(wish Wish) (best GID, ok bool) {
	if p.Link != Ethernet.String() && !wish.address() {
		if len(p.GIDs) > 0 {
			best = p.GIDs[0]
		}
		return best, true
	}
	rank := 0
	for _, g := range p.GIDs {
		if r := g.rank(wish); r > rank {
			best, rank = g, r
		}
	}
	return best, rank > 0
}

// RoCEv2 is the type of addresses whose packets are routed as IP's are.
const RoCEv2 = "RoCE v2"

// rank is higher the better; 0: not to be used.
func (g GID) rank(wish Wish) int {
	switch {
	case wish.GID != nil && g.Index != *wish.GID, wish.Address.IsValid() && g.Addr != wish.Address.Unmap():
		return 0
	case !wish.address() && g.Addr.IsLinkLocalUnicast():
		return 0
	}
	r := 1
	if g.Type == RoCEv2 {
		r += 2 // the same address is there for v1 too
	}
	if g.Addr.Is4() {
		r++
	}
	return r
}

// nearest are the ports that serve a place best, and why the others do not.
func (m *Machine) nearest(place Place, ports []Port) (best []Port, why string, others []Rejected) {
	dist := make([]Distance, len(ports))
	least := UnknownPlace
	for i, p := range ports {
		dist[i] = m.placeDistance(place, p)
		least = min(least, dist[i])
	}
	fast := 0
	for i, p := range ports {
		if dist[i] == least {
			fast = max(fast, p.Rate)
		}
	}
	for i, p := range ports {
		switch {
		case dist[i] != least:
			others = append(others, Rejected{p.String(), fmt.Sprintf("%s; there is a nearer one", dist[i])})
		case p.Rate < fast:
			others = append(others, Rejected{p.String(), fmt.Sprintf("%d Gb/s; there is a faster one", p.Rate)})
		default:
			best = append(best, p)
		}
	}
	why = least.String()
	if place.Device != nil {
		why += " as GPU " + place.Device.Address
	} else if len(ports) == 1 && least == UnknownPlace {
		why = "the only one"
	} else if least == UnknownPlace {
		why = "the PE is bound to no NUMA node, or the NIC's is unknown"
	}
	return best, why, others
}

// placeDistance is how far a port is from a PE.
func (m *Machine) placeDistance(place Place, p Port) Distance {
	i := slices.IndexFunc(m.NICs, func(d Device) bool { return slices.Contains(d.Names, p.Device) })
	switch {
	case i < 0:
		return UnknownPlace
	case place.Device != nil:
		return m.Distance(*place.Device, m.NICs[i])
	case len(m.Nodes) <= 1:
		return SameNode
	case place.Node < 0 || m.NICs[i].Node < 0:
		return UnknownPlace
	case place.Node == m.NICs[i].Node:
		return SameNode
	}
	return OtherNode
}
