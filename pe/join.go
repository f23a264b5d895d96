package pe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"goshmem/heap"
	"goshmem/internal/bootstrap"
	"goshmem/internal/errs"
	"goshmem/internal/futex"
	"goshmem/internal/options"
	"goshmem/internal/shm"
	"goshmem/internal/spin"
)

// Join makes this process, or the calling goroutines of it, one PE of a world.
// With cfg.Size > 0 the world is explicit: Rank, Size, Rendezvous (a name that
// all PEs share, or host:port of rank 0's host) and Secret, which only PEs of
// one host may do without; rank 0 holds the rendezvous. With
// cfg.Size 0 the launcher's environment tells (goshmem run, Open MPI, Hydra,
// Slurm, torchrun, …: docs/multihost.md); without one it is a world of one PE.
//
// It returns when all PEs have joined and reach each other, or fails at
// GOSHMEM_JOIN_TIMEOUT with an error that names the missing ranks. Two sources
// that disagree are ErrConfig naming both.
func Join(ctx context.Context, cfg Config) (*PE, error) {
	if ctx == nil {
		return nil, fmt.Errorf("pe: join: %w", errs.ErrNoContext)
	}
	opt, err := options.Resolve(cfg.values(), os.Environ())
	if err != nil {
		return nil, err
	}
	vals := opt.Values
	conn, err := placeOf(cfg, vals)
	if err != nil {
		return nil, err
	}
	if secret, err := bootstrap.ReadSecret(string(vals.Secret), vals.SecretFile); err != nil {
		return nil, fmt.Errorf("pe: join: %w", err)
	} else if secret != nil {
		conn.Secret = secret
	}
	conn.JoinDeadline = vals.JoinTimeout
	conn.FailureDeadline = vals.FailureDeadline
	conn.Heartbeat = heartbeat(vals)
	conn.LeaveDeadline = vals.CloseTimeout
	conn.HostID = strings.TrimSpace(shm.HostID() + " " + vals.HostID)
	conn.Interface = vals.Interface
	conn.Logger = cfg.Logger
	if err := conn.Meet(ctx); err != nil {
		return nil, fmt.Errorf("pe: join as rank %d of %d: %w", conn.Rank, conn.Size, err)
	}
	m, err := bootstrap.Connect(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("pe: join as rank %d of %d: %w", conn.Rank, conn.Size, err)
	}
	p, err := assemble(ctx, cfg, vals, conn, m)
	if err != nil {
		_ = m.Goodbye() // refused by agreement, not lost
		_ = m.Close()
		return nil, fmt.Errorf("pe: join as rank %d of %d: %w", conn.Rank, conn.Size, err)
	}
	p.world.warn(opt)
	return p, nil
}

// placeOf finds out who we are: from the caller, or from the launcher, which
// must not disagree.
func placeOf(cfg Config, vals options.Values) (bootstrap.ConnectConfig, error) {
	launch, found, err := bootstrap.Detect(os.Getenv)
	if err != nil && !(cfg.Size > 0 && errors.Is(err, bootstrap.ErrNoPlace)) {
		return bootstrap.ConnectConfig{}, err
	}
	if cfg.Size == 0 {
		if cfg.Rank != 0 {
			return bootstrap.ConnectConfig{}, fmt.Errorf("pe: join: rank %d without a size: %w", cfg.Rank, errs.ErrConfig)
		}
		if !found {
			return bootstrap.ConnectConfig{Rank: 0, Size: 1}, nil
		}
		c := launch.Config()
		if cfg.Rendezvous != "" && cfg.Rendezvous != c.Address {
			// Another world than the launcher's, whose hub is not there.
			c.Address, c.HubExternal = cfg.Rendezvous, false
		}
		return c, nil
	}
	if cfg.Size < 0 || cfg.Rank < 0 || cfg.Rank >= cfg.Size {
		return bootstrap.ConnectConfig{}, fmt.Errorf("pe: join: rank %d of %d: %w", cfg.Rank, cfg.Size, errs.ErrConfig)
	}
	if vals.Rendezvous == "" && cfg.Size > 1 {
		return bootstrap.ConnectConfig{}, fmt.Errorf("pe: join: %d PEs and no rendezvous (Config.Rendezvous or GOSHMEM_RENDEZVOUS): %w", cfg.Size, errs.ErrConfig)
	}
	c := bootstrap.ConnectConfig{Address: vals.Rendezvous, Rank: cfg.Rank, Size: cfg.Size}
	// A world with a rendezvous of its own is another world than the launcher's.
	if found && (cfg.Rendezvous == "" || cfg.Rendezvous == launch.Rendezvous) {
		if launch.Rank != cfg.Rank || launch.Size != cfg.Size {
			return bootstrap.ConnectConfig{}, fmt.Errorf("pe: join: Config says rank %d of %d, %s says rank %d of %d: %w",
				cfg.Rank, cfg.Size, launch.Source, launch.Rank, launch.Size, errs.ErrConfig)
		}
		c = launch.Config()
	}
	return c, nil
}

// hello is what PEs tell each other first. What must agree is compared by name.
type hello struct {
	World  uint32            `json:"world"` // rank 0's choice
	Agree  map[string]string `json:"agree"`
	Limits shm.Limits        `json:"limits"`
	Sparse bool              `json:"sparse"`
	CPUs   []int             `json:"cpus"`            // that this PE may run on
	Quota  int               `json:"quota,omitempty"` // CPUs' time that it may use with others of its cgroup; 0: all
	Buses  []string          `json:"buses,omitempty"` // see busesOf
}

// assemble makes the world around a joined member: compare options, check
// memory, make and map segments, start.
func assemble(ctx context.Context, cfg Config, vals options.Values, conn bootstrap.ConnectConfig, m bootstrap.Member) (*PE, error) {
	n, rank := conn.Size, conn.Rank
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, vals.JoinTimeout)
		defer cancel()
	}
	all := ranks(n)
	layout, err := planLayout(vals, n)
	if err != nil {
		return nil, err
	}
	cpus, err := spin.CPUs()
	if err != nil {
		return nil, err
	}
	mine := hello{World: newWorldID(), CPUs: cpus, Quota: shm.CPUQuota(), Buses: busesOf(vals), Limits: shm.ReadLimits(), Sparse: vals.Sparse, Agree: map[string]string{
		"heap size":    fmt.Sprint(layout.HeapSize()),
		"contexts":     fmt.Sprint(layout.Contexts()),
		"path":         string(vals.Path),
		"nodes":        fmt.Sprint(vals.Nodes),
		"net":          string(vals.Net),
		"tcp tls":      fmt.Sprint(vals.TCPTLS),
		"device heap":  fmt.Sprint(vals.DeviceHeap),
		"device map":   string(vals.DeviceMap),
		"device stage": fmt.Sprint(layout.StageSize()),
	}}
	hellos, err := exchangeJSON(ctx, m, "hello", all, mine)
	if err != nil {
		return nil, err
	}
	for i, h := range hellos {
		for _, field := range slices.Sorted(maps.Keys(mine.Agree)) {
			if h.Agree[field] != mine.Agree[field] {
				return nil, &errs.MismatchError{PE: i, Field: field, Want: mine.Agree[field], Have: h.Agree[field]}
			}
		}
	}
	// Who is on this host.
	self, _ := m.Peer(rank)
	var node []int
	lim, sparse := mine.Limits, true
	for i := range n {
		if peer, ok := m.Peer(i); ok && peer.HostID == self.HostID {
			node = append(node, i)
			lim.Available = min(lim.Available, hellos[i].Limits.Available)
			lim.CgroupLeft = min(lim.CgroupLeft, hellos[i].Limits.CgroupLeft)
			sparse = sparse && hellos[i].Sparse
		}
	}
	if !sparse {
		// From the same figures on every PE, taken before any allocated.
		if err := checkMemory(len(node), layout, lim); err != nil {
			return nil, err
		}
	}
	mem := &memory{shared: n > 1}
	p, err := build(ctx, cfg, vals, conn, m, layout, mem, hellos, node)
	if err != nil {
		return nil, errors.Join(err, mem.release())
	}
	return p, nil
}

// oversubscribed reports whether some host has more PEs than there are CPUs that
// any of them may run on, or a PE's cgroup has a quota for, which all PEs of a host
// are taken to share. A PE that is bound to one CPU does not make its host small.
func oversubscribed(m bootstrap.Member, hellos []hello) bool {
	type host struct {
		pes   int
		cpus  map[int]bool
		quota int
	}
	hosts := map[string]*host{}
	for i := range hellos {
		peer, _ := m.Peer(i)
		h := hosts[peer.HostID]
		if h == nil {
			h = &host{cpus: map[int]bool{}, quota: math.MaxInt}
			hosts[peer.HostID] = h
		}
		h.pes++
		for _, c := range hellos[i].CPUs {
			h.cpus[c] = true
		}
		if q := hellos[i].Quota; q > 0 {
			h.quota = min(h.quota, q)
		}
	}
	for _, h := range hosts {
		if h.pes > min(len(h.cpus), h.quota) {
			return true
		}
	}
	return false
}

func build(ctx context.Context, cfg Config, vals options.Values, conn bootstrap.ConnectConfig, m bootstrap.Member,
	layout heap.Layout, mem *memory, hellos []hello, node []int) (*PE, error) {
	n, rank := conn.Size, conn.Rank
	w, err := newWorld(cfg, vals, conn.Secret, n, layout, mem, hellos[0].World)
	if err != nil {
		return nil, err
	}
	hosts := map[string]int{}
	for i := range n {
		peer, _ := m.Peer(i)
		if _, known := hosts[peer.HostID]; !known {
			hosts[peer.HostID] = len(hosts)
		}
		w.peers[i] = PeerInfo{PE: i, PID: peer.PID, Host: peer.HostID, Node: hosts[peer.HostID]}
		if slices.Contains(node, i) {
			w.births[i] = birth(peer.PID)
		} else {
			elsewhere(w.table, i, layout)
		}
	}
	w.nodes = len(hosts)
	w.nets.meet = conn.Address
	if err := w.dealPorts(ctx, m, hellos, rank, node); err != nil {
		return nil, err
	}
	if err := w.simulate(vals.Nodes); err != nil {
		return nil, err
	}
	if err := w.checkPaths(rank); err != nil {
		return nil, err
	}
	if err := mem.mapNode(ctx, w, m, conn.Secret, rank, node); err != nil {
		return nil, err
	}
	if err := mem.mapDevices(ctx, w, m, conn.Secret, rank, node); err != nil {
		return nil, err
	}
	w.shared = oversubscribed(m, hellos)
	pol := spin.Auto(w.shared, false, vals.SpinTurns, vals.SleepAfter)
	if err := w.start(ctx, pol, []int{rank}); err != nil {
		return nil, err
	}
	if err := w.addPE(rank, m, pol); err != nil {
		_ = w.proxy.Close(ctx)
		return nil, err
	}
	w.local[0].found()
	return w.local[0], nil
}

// offer is how a PE's segment is fetched by its host's others.
type offer struct {
	FD  string `json:"fd"`
	Err string `json:"err,omitempty"`
}

// mapNode makes this PE's segment, gives it to the PEs of the host and maps
// theirs.
func (m *memory) mapNode(ctx context.Context, w *World, member bootstrap.Member, secret []byte, rank int, node []int) error {
	total := w.layout.Total()
	if err := m.reserve(w.size, w.layout); err != nil {
		return err
	}
	seg, err := shm.Create(fmt.Sprintf("goshmem-%d", rank), total, w.vals.Sparse)
	var o offer
	stop := func() error { return nil }
	if err == nil {
		m.own = append(m.own, seg)
		base, merr := m.place(seg.FD(), rank, w.layout)
		if err = merr; err == nil {
			stamp(base)
			enter(w.table, rank, base, w.layout)
			if len(node) > 1 {
				o.FD, stop, err = bootstrap.ServeFD(secret, seg.FD())
			}
		}
	}
	defer func() { _ = stop() }() // its listener: nothing of ours can fail to be released
	if err != nil {
		o.Err = err.Error()
	}
	offers, gerr := exchangeJSON(ctx, member, "segment", node, o)
	if err != nil {
		return err
	}
	if gerr != nil {
		return gerr
	}
	for i, pe := range node {
		if offers[i].Err != "" {
			return fmt.Errorf("pe %d could not make its segment: %s: %w", pe, offers[i].Err, errs.ErrNoMemory)
		}
		if pe == rank || err != nil {
			continue
		}
		err = m.fetch(ctx, w, offers[i].FD, secret, pe)
	}
	// Nobody stops serving before everybody has fetched; a failure is everybody's.
	o = offer{}
	if err != nil {
		o.Err = err.Error()
	}
	offers, gerr = exchangeJSON(ctx, member, "mapped", node, o)
	if err != nil {
		return err
	}
	if gerr != nil {
		return gerr
	}
	for i, pe := range node {
		if offers[i].Err != "" {
			return fmt.Errorf("pe %d could not map its host's segments: %s: %w", pe, offers[i].Err, errs.ErrUnsupported)
		}
	}
	return nil
}

func (m *memory) fetch(ctx context.Context, w *World, addr string, secret []byte, pe int) error {
	fd, err := bootstrap.FetchFD(ctx, addr, secret)
	if err != nil {
		return fmt.Errorf("segment of pe %d: %w", pe, err)
	}
	defer closeFD(fd)
	base, err := m.place(fd, pe, w.layout)
	if err != nil {
		return fmt.Errorf("segment of pe %d: %w", pe, err)
	}
	if err := check(base, pe); err != nil {
		return err
	}
	enter(w.table, pe, base, w.layout)
	armed, bell := headerWords(base)
	w.bells[pe] = futex.NewBell(armed, bell, nil)
	return nil
}

func exchangeJSON[T any](ctx context.Context, m bootstrap.Member, tag string, group []int, v T) ([]T, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	blobs, err := m.Gather(ctx, tag, group, b)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(blobs))
	for i, b := range blobs {
		if err := json.Unmarshal(b, &out[i]); err != nil {
			return nil, &errs.MismatchError{PE: group[i], Field: tag + " message", Want: "JSON", Have: err.Error()}
		}
	}
	return out, nil
}
