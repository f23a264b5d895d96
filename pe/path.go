package pe

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"goshmem/channel"
	"goshmem/ibrc"
	"goshmem/ibrc/rdma"
	"goshmem/ibrc/soft"
	"goshmem/internal/errs"
	"goshmem/internal/fabric"
	"goshmem/internal/fabric/sim"
	"goshmem/internal/options"
)

// The paths that exist.
const (
	pathDirect = string(options.PathDirect)
	pathProxy  = string(options.PathProxy)
	pathTCP    = string(options.PathTCP)
	pathRDMA   = string(options.PathRDMA)
)

// TransportEnv is what a transport gets to work with.
type TransportEnv = channel.Env

// TransportFactory makes the transport to PEs that this one may not reach
// through mappings.
type TransportFactory = channel.Factory

// netOf says which transport there is between nodes, and its factory: the
// caller's, queue pairs of RDMA devices, the simulated link between simulated
// nodes, or queue pairs over TCP.
func netOf(cfg Config, vals options.Values, secret []byte) (name string, f TransportFactory, err error) {
	wants := func(p options.Path) bool { return vals.Path == p || vals.Net == p }
	tcp, verbs := wants(options.PathTCP), wants(options.PathRDMA)
	switch {
	case tcp && verbs:
		return "", nil, fmt.Errorf("pe: path %s and net %s: %w", vals.Path, vals.Net, errs.ErrConfig)
	case cfg.Remote != nil && (tcp || verbs):
		return "", nil, fmt.Errorf("pe: path %s, net %s and a transport of the caller's: %w", vals.Path, vals.Net, errs.ErrConfig)
	case cfg.Remote != nil:
		return pathRemote, cfg.Remote, nil
	case verbs:
		c, err := rdmaConfig(vals)
		return pathRDMA, ibrc.New(rdma.New(c)), err
	case vals.Nodes > 1 && !tcp:
		return pathRemote, fabric.NewLink(fabric.LinkConfig{Link: sim.Link{
			Latency: vals.SimLatency, Bandwidth: vals.SimBandwidth, Post: vals.SimPost,
		}}), nil
	case vals.Net == options.PathSim:
		return "", nil, fmt.Errorf("pe: the simulated link (GOSHMEM_NET) without simulated nodes: %w", errs.ErrConfig)
	}
	return pathTCP, softFactory(vals, secret), nil
}

// softFactory makes queue pairs over TCP. Where the address to listen at is not
// given it depends on whether there are other hosts.
func softFactory(vals options.Values, secret []byte) TransportFactory {
	return func(ctx context.Context, env channel.Env) (channel.Transport, error) {
		env.Secret = secret
		elsewhere := slices.ContainsFunc(env.Peers, func(p PeerInfo) bool { return p.Host != env.Peers[env.Local[0]].Host })
		listen, err := soft.Address(vals.TCPListen, elsewhere)
		if err != nil {
			return nil, err
		}
		return ibrc.New(soft.New(soft.Config{Listen: listen, TLS: vals.TCPTLS, Silence: vals.FailureDeadline}))(ctx, env)
	}
}

// rdmaConfig is what the options say of RDMA.
func rdmaConfig(vals options.Values) (rdma.Config, error) {
	c := rdma.Config{
		Device: vals.RDMADevice, Port: vals.RDMAPort, GIDIndex: vals.RDMAGIDIndex, Pkey: vals.RDMAPkey, MTU: vals.RDMAMTU,
		TC: vals.RDMATC, SL: vals.RDMASL, Timeout: vals.RDMATimeout, Retries: vals.RDMARetries, RNR: vals.RDMARNRRetries,
		SQDepth: vals.RDMASQDepth, CQDepth: vals.RDMACQDepth, Inline: vals.RDMAInline,
	}
	if vals.RDMAGID != "" {
		var err error
		if c.GID, err = netip.ParseAddr(vals.RDMAGID); err != nil {
			return c, fmt.Errorf("pe: GOSHMEM_RDMA_GID: %w: %w", errs.ErrConfig, err)
		}
	}
	return c, nil
}

// choosePath decides how a peer is reached, and says why. net is the transport
// between nodes.
func choosePath(forced options.Path, sameNode bool, net string) (path, why string, err error) {
	switch forced {
	case options.PathAuto, options.PathDirect, options.PathProxy:
	case options.PathTCP:
		return pathTCP, "forced by GOSHMEM_PATH", nil
	case options.PathRDMA:
		return pathRDMA, "forced by GOSHMEM_PATH", nil
	default:
		return "", "", fmt.Errorf("pe: path %s: %w (no such transport in this build)", forced, errs.ErrUnsupported)
	}
	switch {
	case sameNode && forced == options.PathAuto:
		return pathDirect, "same host, segment mapped", nil
	case sameNode:
		return string(forced), "same host, forced by GOSHMEM_PATH", nil
	case forced == options.PathDirect:
		return "", "", fmt.Errorf("pe: path direct to a peer on another node: %w", errs.ErrUnsupported)
	case net == pathRDMA:
		return pathRDMA, "another node", nil
	case net == pathTCP:
		return pathTCP, "another node, no RDMA", nil
	}
	return net, "another node, by the configured transport", nil
}

// pathTo is how one PE reaches another; the same for the life of the world.
func (w *World) pathTo(from, to int) (path, why string, err error) {
	return choosePath(w.vals.Path, w.peers[from].Node == w.peers[to].Node, w.net)
}

// checkPaths refuses a world in which some peer cannot be reached from here.
func (w *World) checkPaths(from int) error {
	for to := range w.size {
		if _, _, err := w.pathTo(from, to); err != nil {
			return fmt.Errorf("pe %d: %w", to, err)
		}
	}
	return nil
}

// simulate deals ranks to simulated nodes in blocks whose sizes differ by one at
// most.
func (w *World) simulate(nodes int) error {
	switch {
	case nodes == 0:
		return nil
	case nodes < 0 || nodes > w.size:
		return fmt.Errorf("pe: %d simulated nodes of %d PEs: %w", nodes, w.size, errs.ErrConfig)
	case w.nodes > 1:
		return fmt.Errorf("pe: simulated nodes (GOSHMEM_NODES) on %d hosts: %w", w.nodes, errs.ErrConfig)
	}
	for i := range w.peers {
		w.peers[i].Node = i * nodes / w.size
	}
	w.nodes = nodes
	return nil
}

// pathRemote is the path of the transport that Config.Remote makes, and of the
// simulated link.
const pathRemote = "remote"

// transportOf is what carries requests on a path.
func (w *World) transportOf(path string) channel.Transport {
	if path == pathDirect || path == pathProxy {
		return w.host
	}
	return w.remote
}

// deliver hands a message of the bootstrap to the transport that it is for.
func (w *World) deliver(local, from int, msg []byte) error {
	if w.remote == nil {
		return w.host.Deliver(local, from, msg)
	}
	return w.remote.Deliver(local, from, msg)
}

func (w *World) transportEnv(local []int) TransportEnv {
	return TransportEnv{
		World: w.id, Size: w.size, Local: local, Layout: w.layout, Table: w.table, Peers: w.peers,
		Send: func(from, to int, msg []byte) error {
			p := w.localPE(from)
			if p == nil {
				return fmt.Errorf("pe %d is not of this process: %w", from, errs.ErrPeer)
			}
			return p.member.Send(to, msg)
		},
		Lost:  w.markLost,
		Knock: func(pe int) { w.bells[pe].Check() },
		Live:  w.proxy.SetLive,
		Kick:  w.proxy.Kick,
		Log:   w.log,
	}
}
