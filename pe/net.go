package pe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"goshmem/channel"
	"goshmem/ibrc"
	"goshmem/ibrc/rdma"
	"goshmem/ibrc/soft"
	"goshmem/internal/bootstrap"
	"goshmem/internal/errs"
	"goshmem/internal/fabric"
	"goshmem/internal/fabric/sim"
	"goshmem/internal/options"
	"goshmem/internal/topo"
)

// TransportEnv is what a transport gets to work with.
type TransportEnv = channel.Env

// TransportFactory makes the transport to PEs that this one may not reach
// through mappings.
type TransportFactory = channel.Factory

// nets says how PEs of different nodes reach each other.
type nets struct {
	path   string           // the only one there is; empty: RDMA or TCP, pair by pair
	other  TransportFactory // of pathRemote
	rdma   rdma.Config
	cards  []rdma.Card // by PE; nil: not exchanged
	secret []byte
	meet   string // the rendezvous
}

// remote is a transport to PEs of other nodes.
type remote struct {
	path string
	channel.Transport
}

// netsOf says what there is between nodes: the caller's transport, what the
// options force, the simulated link between simulated nodes, else what there is.
func netsOf(cfg Config, vals options.Values) (n nets, err error) {
	wants := func(p options.Path) bool { return vals.Path == p || vals.Net == p }
	tcp, verbs := wants(options.PathTCP), wants(options.PathRDMA)
	if n.rdma, err = rdma.FromOptions(vals); err != nil {
		return n, err
	}
	switch {
	case tcp && verbs:
		err = fmt.Errorf("pe: path %s and net %s: %w", vals.Path, vals.Net, errs.ErrConfig)
	case cfg.Remote != nil && (tcp || verbs):
		err = fmt.Errorf("pe: path %s, net %s and a transport of the caller's: %w", vals.Path, vals.Net, errs.ErrConfig)
	case cfg.Remote != nil:
		n.path, n.other = pathRemote, cfg.Remote
	case tcp:
		n.path = pathTCP
	case verbs:
		n.path = pathRDMA
	case vals.Nodes > 1:
		n.path, n.other = pathRemote, fabric.NewLink(fabric.LinkConfig{Link: sim.Link{
			Latency: vals.SimLatency, Bandwidth: vals.SimBandwidth, Post: vals.SimPost,
		}})
	case vals.Net == options.PathSim:
		err = fmt.Errorf("pe: the simulated link (GOSHMEM_NET) without simulated nodes: %w", errs.ErrConfig)
	}
	return n, err
}

// between is the path of two PEs of different nodes, and why; the same from both
// sides.
func (n *nets) between(from, to int) (path, why string) {
	switch {
	case n.path == pathRemote:
		return pathRemote, "another node, by the configured transport"
	case n.path != "":
		return n.path, "another node, set by GOSHMEM_NET"
	case n.cards == nil:
		return pathTCP, "another node"
	}
	ok, why := rdma.Reach(from, to, n.cards[from], n.cards[to])
	if ok {
		return pathRDMA, "another host; " + why
	}
	return pathTCP, "another host; " + why
}

// dealPorts chooses this PE's RDMA port among those of its host, and, in a world of
// several hosts, exchanges with all PEs what each has: that decides over paths, or, where
// RDMA is forced, whether the world can be.
func (w *World) dealPorts(ctx context.Context, m bootstrap.Member, hellos []hello, rank int, host []int) error {
	if w.nets.path != "" && w.nets.path != pathRDMA || w.nets.path == "" && w.nodes < 2 {
		return nil
	}
	nic, err := w.choosePort(hellos, rank, host)
	if err == nil {
		w.nets.rdma.NIC = &nic
	}
	if err != nil && w.nets.path == pathRDMA {
		err = fmt.Errorf("pe: path rdma (forced by GOSHMEM_PATH or GOSHMEM_NET): %w", err)
	}
	if w.nodes < 2 {
		return err
	}
	own := err
	if err == nil && w.nets.path == "" {
		err = lockable(uint64(w.layout.Total()), lockLimit())
	}
	card := w.nets.rdma.CardOf(nic, err)
	card.Must = card.Must || own != nil && w.nets.path == pathRDMA
	w.nets.cards, err = exchangeJSON(ctx, m, "rdma", ranks(w.size), card)
	if err != nil || card.Must {
		return errors.Join(own, err)
	}
	return w.checkCards(rank)
}

// checkCards refuses a world in which a PE cannot have what was asked for.
func (w *World) checkCards(rank int) error {
	for to, card := range w.nets.cards {
		if card.Must {
			kind := errs.ErrConfig
			if w.nets.path == pathRDMA {
				kind = errs.ErrUnsupported
			}
			return fmt.Errorf("pe %d: %s: %w", to, strings.TrimSuffix(card.Why, ": "+kind.Error()), kind)
		}
		if w.nets.path != pathRDMA || w.peers[to].Host == w.peers[rank].Host {
			continue
		}
		if ok, why := rdma.Reach(rank, to, w.nets.cards[rank], card); !ok {
			return fmt.Errorf("path rdma to pe %d: %s: %w", to, why, errs.ErrUnsupported)
		}
	}
	return nil
}

// lockable refuses segments that a device could not register for want of memory that
// may be locked: where the path is free to choose, that is a reason for the other.
func lockable(segment, limit uint64) error {
	if limit >= segment {
		return nil
	}
	return fmt.Errorf("pe: %d B may be locked (ulimit -l), a segment takes %d B: %w", limit, segment, errs.ErrUnsupported)
}

func lockLimit() uint64 {
	var lim unix.Rlimit
	if unix.Geteuid() == 0 || unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim) != nil {
		return unix.RLIM_INFINITY
	}
	return lim.Cur
}

func (w *World) choosePort(hellos []hello, rank int, host []int) (topo.NIC, error) {
	machine, err := rdma.Machine(w.nets.rdma)
	if err != nil {
		return topo.NIC{}, err
	}
	return rdma.Choose(machine, placesOf(machine, hellos, host), slices.Index(host, rank), w.nets.rdma)
}

// placesOf is where the PEs of a host are: by the device that they get, else by their CPUs.
func placesOf(m *topo.Machine, hellos []hello, host []int) []topo.Place {
	places := make([]topo.Place, len(host))
	for i, pe := range host {
		h := &hellos[pe]
		places[i].Node = m.NodeOf(h.CPUs)
		if len(h.Buses) == 0 {
			continue
		}
		bus := h.Buses[i%len(h.Buses)]
		if k := slices.IndexFunc(m.GPUs, func(d topo.Device) bool { return strings.EqualFold(d.Address, bus) }); k >= 0 {
			places[i].Device = &m.GPUs[k]
		}
	}
	return places
}

// connect makes the transports by which PEs of this process reach others.
func (w *World) connect(ctx context.Context, local []int) error {
	for _, from := range local {
		for to := range w.size {
			path, why, err := w.pathTo(from, to)
			if err != nil {
				return err
			}
			if w.transportOf(path) != nil {
				continue
			}
			t, err := w.maker(path)(ctx, w.transportEnv(local))
			if err != nil {
				return fmt.Errorf("pe: path %s to pe %d (%s): %w", path, to, why, err)
			}
			w.remotes = append(w.remotes, remote{path, t})
			w.proxy.AddTransport(t)
		}
	}
	return nil
}

func (w *World) maker(path string) TransportFactory {
	switch path {
	case pathTCP:
		return w.nets.soft(w.vals)
	case pathRDMA:
		return ibrc.New(rdma.New(w.nets.rdma))
	}
	return w.nets.other
}

// soft makes queue pairs over TCP.
func (n *nets) soft(vals options.Values) TransportFactory {
	return func(ctx context.Context, env channel.Env) (channel.Transport, error) {
		env.Secret = n.secret
		cfg := soft.Config{TLS: vals.TCPTLS, Silence: vals.FailureDeadline}
		var err error
		elsewhere := slices.ContainsFunc(env.Peers, func(p PeerInfo) bool { return p.Host != env.Peers[env.Local[0]].Host })
		switch {
		case vals.TCPListen != "":
			cfg.Listen, err = soft.Address(vals.TCPListen)
			cfg.Why = "GOSHMEM_TCP_LISTEN"
		case elsewhere:
			cfg.Listen, cfg.Why, err = n.outward(ctx, vals.Interface)
		}
		if err != nil {
			return nil, err
		}
		return ibrc.New(soft.New(cfg))(ctx, env)
	}
}

// outward is where PEs of other hosts reach this process: on the interface that
// was asked for, else on that by which it reaches the rendezvous.
func (n *nets) outward(ctx context.Context, want string) (listen, why string, err error) {
	var b bootstrap.Bound
	if host, _, e := net.SplitHostPort(n.meet); e == nil && !strings.HasPrefix(n.meet, "unix:") {
		b, err = bootstrap.Facing(ctx, host, want)
	}
	if err == nil && (!b.Addr.IsValid() || b.Addr.IsLoopback() && (want == "" || want == bootstrap.AnyInterface)) {
		b, err = bootstrap.Outward(ctx, want)
	}
	if err != nil {
		return "", "", err
	}
	return net.JoinHostPort(b.Addr.String(), "0"), b.String(), nil
}

// silent reports whether agents that ring nobody reach PEs of this process.
func (w *World) silent() bool {
	return w.gpu != nil || slices.ContainsFunc(w.remotes, func(r remote) bool { return !r.Caps().RingsBells })
}

// deliver hands a message of the bootstrap to the transport that it is for.
func (w *World) deliver(local, from int, msg []byte) error {
	if from < 0 || from >= w.size {
		return fmt.Errorf("pe: message from pe %d: %w", from, errs.ErrPeer)
	}
	path, _, err := w.pathTo(local, from)
	if err != nil {
		return err
	}
	return w.transportOf(path).Deliver(local, from, msg)
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
		Lost:   w.lostLink,
		Buffer: w.mem.buffers.find,
		Knock:  func(pe int) { w.bells[pe].Check() },
		Live:   w.proxy.SetLive,
		Kick:   w.proxy.Kick,
		Log:    w.log,
	}
}
