package rdma

import (
	"fmt"
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
	why  string
}

// usable reports why a port cannot be used; "" if it can.
func usable(p verbs.PortAttr) string {
	if p.State != verbs.PortActive {
		return "state " + p.State.String()
	}
	return ""
}

// chooseGID picks a port's address: RoCE v2 before v1, IPv4 before IPv6, by index.
// A link-local one is taken only if its index or address was asked for: such an
// address reaches nobody beyond its link, and which link is not in it. On
// InfiniBand the first entry serves, whose prefix is link-local by default.
func chooseGID(link verbs.LinkLayer, all []verbs.GIDEntry, cfg *Config) (verbs.GIDEntry, string, error) {
	best, rank := verbs.GIDEntry{}, 0
	var seen []string
	for _, g := range all {
		seen = append(seen, fmt.Sprintf("%d: %v %v", g.Index, g.GID, g.Type))
		r := rankGID(link, g)
		if asked(cfg) {
			r = 0
			if (cfg.GIDIndex < 0 || g.Index == cfg.GIDIndex) && (!cfg.GID.IsValid() || g.GID.Addr() == cfg.GID.Unmap()) {
				r = 1
				if g.Type == verbs.GIDRoCEv2 {
					r = 2 // the same address is there for v1 too
				}
			}
		}
		if r > rank {
			best, rank = g, r
		}
	}
	if rank == 0 {
		found := "none"
		if len(seen) > 0 {
			found = strings.Join(seen, ", ")
		}
		return best, "", fmt.Errorf("looked for %s, found %s: %w", wanted(cfg), found, errs.ErrConfig)
	}
	return best, fmt.Sprintf("gid %d, %v, %v, is %s", best.Index, best.GID, best.Type, reason(cfg)), nil
}

func asked(cfg *Config) bool { return cfg.GIDIndex >= 0 || cfg.GID.IsValid() }

func reason(cfg *Config) string {
	if asked(cfg) {
		return "as configured"
	}
	return "the best of its port"
}

func wanted(cfg *Config) string {
	switch {
	case cfg.GIDIndex >= 0 && cfg.GID.IsValid():
		return fmt.Sprintf("gid %d with address %v", cfg.GIDIndex, cfg.GID)
	case cfg.GIDIndex >= 0:
		return fmt.Sprintf("gid %d", cfg.GIDIndex)
	case cfg.GID.IsValid():
		return fmt.Sprintf("a gid with address %v", cfg.GID)
	}
	return "a gid that is not link-local"
}

// rankGID is higher the better; 0: not to be used.
func rankGID(link verbs.LinkLayer, g verbs.GIDEntry) int {
	if link != verbs.LinkEthernet {
		return 1
	}
	if g.GID.LinkLocal() {
		return 0
	}
	r := 1
	if g.Type == verbs.GIDRoCEv2 {
		r += 2
	}
	if g.GID.Addr().Is4() {
		r++
	}
	return r
}

// choose picks a port of an open device.
func choose(c *verbs.Context, cfg *Config) (endpoint, error) {
	d, err := c.QueryDevice()
	if err != nil {
		return endpoint{}, err
	}
	var rejected []string
	for port := 1; port <= d.Ports; port++ {
		if cfg.Port != 0 && port != cfg.Port {
			continue
		}
		e := endpoint{port: port}
		if e.attr, err = c.QueryPort(port); err != nil {
			return e, err
		}
		why := usable(e.attr)
		if why == "" {
			var gids []verbs.GIDEntry
			if gids, err = c.GIDs(port); err != nil {
				return e, err
			}
			if e.gid, e.why, err = chooseGID(e.attr.Link, gids, cfg); err == nil {
				return e, nil
			}
			why = err.Error()
		}
		rejected = append(rejected, fmt.Sprintf("port %d: %s", port, why))
	}
	if len(rejected) == 0 {
		return endpoint{}, fmt.Errorf("rdma: %s has no port %d, but %d: %w", c.Name, cfg.Port, d.Ports, errs.ErrConfig)
	}
	kind := errs.ErrUnsupported
	if asked(cfg) || cfg.Port != 0 {
		kind = errs.ErrConfig
	}
	return endpoint{}, fmt.Errorf("rdma: %s has no usable port: %s: %w", c.Name, strings.Join(rejected, "; "), kind)
}

// open opens the configured device, or the first in order that has a usable port;
// notes tell of the others.
func open(lib *verbs.Lib, cfg *Config, rank int) (c *verbs.Context, e endpoint, notes []string, err error) {
	names := []string{cfg.Device}
	if cfg.Device == "" || cfg.Device[0] == '^' {
		all, err := lib.Devices()
		if err != nil {
			return nil, e, nil, err
		}
		if names = all; len(all) > 1 || cfg.Device != "" {
			names, notes = order(all, topo.Read(), rank, cfg.Device)
		}
		if len(names) == 0 {
			names = []string{""} // for the library's own error
			if len(all) > 0 {
				return nil, e, nil, fmt.Errorf("rdma: device %s of %s: none is left: %w", cfg.Device, strings.Join(all, ", "), errs.ErrConfig)
			}
		}
	}
	var unusable []string
	for _, name := range names {
		if c, err = lib.Open(name); err != nil {
			return nil, e, nil, err
		}
		if e, err = choose(c, cfg); err == nil {
			return c, e, notes, nil
		}
		unusable = append(unusable, err.Error())
		notes = append(notes, err.Error())
		_ = c.Close()
	}
	if len(unusable) > 1 {
		err = fmt.Errorf("rdma: no usable device: %s: %w", strings.Join(unusable, "; "), errs.ErrUnsupported)
	}
	return nil, e, nil, err
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
