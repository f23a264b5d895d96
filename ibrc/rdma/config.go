package rdma

import (
	"fmt"
	"net/netip"

	"goshmem/internal/errs"
	"goshmem/internal/options"
	"goshmem/internal/topo"
	"goshmem/internal/verbs"
)

// Config chooses device, address and queue pair attributes. Zero values mean the
// defaults of [Defaults], where that says nothing else.
type Config struct {
	NIC      *topo.NIC  // the port; nil: chosen as for a PE that is alone on its host
	Ports    string     // that may be chosen: "mlx5_0,mlx5_1:2"; "^a,b": all but those
	GIDIndex int        // index in the port's GID table; -1: chosen by type and family
	GID      netip.Addr // address that the GID must have; zero: any
	Pkey     int        // partition key; -1: index 0
	MTU      int        // bytes; 0: the port's active one
	TC       int        // traffic class
	SL       int        // service level
	Timeout  int        // of an acknowledgement: 4.096 us x 2^Timeout
	Retries  int        // of a request without answer
	RNR      int        // retries of a request that finds no receive; 7: for ever
	SQDepth  int        // work requests of a queue pair under way
	CQDepth  int        // of all queue pairs
	Inline   int        // bytes; less where the device grants less
	RDAtomic int        // READs and atomics of a queue pair under way; 0: what the device can, at most 16
}

// Defaults is the configuration without any wishes.
func Defaults() Config {
	return Config{
		GIDIndex: -1, Pkey: -1, Timeout: 18, Retries: 6, RNR: 7, SQDepth: 256, CQDepth: 4096, Inline: 256,
	}
}

// maxRDAtomic is enough to cover a link's latency.
const maxRDAtomic = 16

// FromOptions is what the options say.
func FromOptions(v options.Values) (Config, error) {
	c := Config{
		Ports: v.NICs, GIDIndex: v.RDMAGIDIndex, Pkey: v.RDMAPkey, MTU: v.RDMAMTU,
		TC: v.RDMATC, SL: v.RDMASL, Timeout: v.RDMATimeout, Retries: v.RDMARetries, RNR: v.RDMARNRRetries,
		SQDepth: v.RDMASQDepth, CQDepth: v.RDMACQDepth, Inline: v.RDMAInline,
	}
	if v.RDMAGID != "" {
		var err error
		if c.GID, err = netip.ParseAddr(v.RDMAGID); err != nil {
			return c, fmt.Errorf("rdma: GOSHMEM_RDMA_GID: %w: %w", errs.ErrConfig, err)
		}
	}
	return c, nil
}

// wish is what the configuration says of ports.
func (c *Config) wish() topo.Wish {
	w := topo.Wish{Ports: c.Ports, Address: c.GID}
	if c.GIDIndex >= 0 {
		w.GID = &c.GIDIndex
	}
	return w
}

func (c *Config) check() error {
	for _, f := range []struct {
		name          string
		v, low, upper int
	}{
		{"gid index", c.GIDIndex, -1, 255}, {"pkey", c.Pkey, -1, 0xffff},
		{"traffic class", c.TC, 0, 255}, {"service level", c.SL, 0, 15}, {"timeout", c.Timeout, 1, 31},
		{"retries", c.Retries, 0, 7}, {"rnr retries", c.RNR, 0, 7}, {"send queue depth", c.SQDepth, 1, 1 << 16},
		{"completion queue depth", c.CQDepth, 1, 1 << 22}, {"inline bytes", c.Inline, 8, 1024},
		{"reads and atomics", c.RDAtomic, 0, 128},
	} {
		if f.v < f.low || f.v > f.upper {
			return fmt.Errorf("rdma: %s %d is not in %d..%d: %w", f.name, f.v, f.low, f.upper, errs.ErrConfig)
		}
	}
	if _, ok := verbs.MTUOf(c.MTU); c.MTU != 0 && !ok {
		return fmt.Errorf("rdma: mtu %d is not 256, 512, 1024, 2048 or 4096: %w", c.MTU, errs.ErrConfig)
	}
	return nil
}
