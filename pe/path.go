package pe

import (
	"fmt"

	"goshmem/channel"
	"goshmem/internal/errs"
	"goshmem/internal/fabric"
	"goshmem/internal/fabric/sim"
	"goshmem/internal/options"
)

// The paths that exist.
const (
	pathDirect = string(options.PathDirect)
	pathProxy  = string(options.PathProxy)
)

// TransportEnv is what a transport gets to work with.
type TransportEnv = channel.Env

// TransportFactory makes the transport to PEs that this one may not reach
// through mappings.
type TransportFactory = channel.Factory

// remoteFactory is what makes the transport to PEs of other nodes: the caller's,
// or, where the nodes are simulated, the simulated link. nil: there is none.
func remoteFactory(cfg Config, vals options.Values) TransportFactory {
	switch {
	case cfg.Remote != nil:
		return cfg.Remote
	case vals.Nodes > 1:
		return fabric.NewLink(fabric.LinkConfig{Link: sim.Link{
			Latency: vals.SimLatency, Bandwidth: vals.SimBandwidth, Post: vals.SimPost,
		}})
	}
	return nil
}

// choosePath decides how a peer is reached, and says why.
func choosePath(forced options.Path, sameNode, remote bool) (path, why string, err error) {
	switch forced {
	case options.PathAuto, options.PathDirect, options.PathProxy:
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
	case remote:
		return pathRemote, "another node, by the configured transport", nil
	}
	return "", "", fmt.Errorf("pe: a peer on another node: %w (no remote transport in this build)", errs.ErrUnsupported)
}

// pathTo is how one PE reaches another; the same for the life of the world.
func (w *World) pathTo(from, to int) (path, why string, err error) {
	return choosePath(w.vals.Path, w.peers[from].Node == w.peers[to].Node, w.cfgRemote != nil)
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

// pathRemote is the path of the transport that Config.Remote makes.
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
		World: w.id, Size: w.size, Local: local, Table: w.table, Peers: w.peers,
		Send: func(from, to int, msg []byte) error {
			p := w.localPE(from)
			if p == nil {
				return fmt.Errorf("pe %d is not of this process: %w", from, errs.ErrPeer)
			}
			return p.member.Send(to, msg)
		},
		Lost:  w.markLost,
		Knock: func(pe int) { w.bells[pe].Check() },
		Log:   w.log,
	}
}
