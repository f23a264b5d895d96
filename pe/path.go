package pe

import (
	"fmt"

	"goshmem/channel"
	"goshmem/internal/errs"
	"goshmem/internal/options"
)

// The paths that exist.
const (
	pathDirect = string(options.PathDirect)
	pathProxy  = string(options.PathProxy)
	pathTCP    = string(options.PathTCP)
	pathRDMA   = string(options.PathRDMA)
)

// pathTo decides how one PE reaches another, and says why; the same for the life
// of the world.
func (w *World) pathTo(from, to int) (path, why string, err error) {
	forced, sameNode := w.vals.Path, w.peers[from].Node == w.peers[to].Node
	switch {
	case forced == options.PathTCP || forced == options.PathRDMA:
		return string(forced), "forced by GOSHMEM_PATH", nil
	case sameNode && forced == options.PathAuto:
		return pathDirect, "same host, segment mapped", nil
	case sameNode:
		return string(forced), "same host, forced by GOSHMEM_PATH", nil
	case forced == options.PathDirect:
		return "", "", fmt.Errorf("pe: path direct to a peer on another node: %w", errs.ErrUnsupported)
	}
	path, why = w.nets.between(from, to)
	return path, why, nil
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

// transportOf is what carries requests on a path; nil: not made yet.
func (w *World) transportOf(path string) channel.Transport {
	if path == pathDirect || path == pathProxy {
		return w.host
	}
	for _, r := range w.remotes {
		if r.path == path {
			return r.Transport
		}
	}
	return nil
}
