package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"goshmem/internal/errs"
)

// ConnectConfig is how a process joins its job.
type ConnectConfig struct {
	Address string // the rendezvous; may be empty when Size is 1
	// Interface is where rank 0 listens if Address is host:port: an interface's
	// name, an address, a subnet, or AnyInterface; empty: the one that has the
	// host's address.
	Interface string
	Rank      int
	Size      int
	Secret    []byte

	// PMIFD, where Address is empty, is the descriptor of a PMI-1 server that
	// knows the rendezvous, once rank 0 has told it.
	PMIFD int

	// HubExternal: a launcher serves the hub at Address. Otherwise rank 0 does.
	HubExternal bool

	JoinDeadline    time.Duration // for all ranks to join; 0: DefaultJoinDeadline
	FailureDeadline time.Duration // of the hub, where this process holds it
	Heartbeat       time.Duration // of the hub, where this process holds it

	// LeaveDeadline bounds how long rank 0's Close keeps its hub up for members
	// that have not left yet; 0: DefaultLeaveDeadline.
	LeaveDeadline time.Duration

	HostID string
	Logger *slog.Logger

	listener net.Listener // of rank 0, where it is open already
}

// DefaultLeaveDeadline is how long rank 0 waits for the others to leave.
const DefaultLeaveDeadline = 10 * time.Second

// Config is the part of ConnectConfig that a launch decides.
func (l Launch) Config() ConnectConfig {
	return ConnectConfig{Address: l.Rendezvous, Rank: l.Rank, Size: l.Size, Secret: l.Secret, HubExternal: l.HubExternal, PMIFD: l.PMIFD}
}

// Connect joins a job and returns when all its ranks have joined. Rank 0 holds
// the hub unless a launcher does; its Close waits, up to LeaveDeadline, until the
// others have left. On an error nothing is left open.
func Connect(ctx context.Context, cfg ConnectConfig) (Member, error) {
	if cfg.LeaveDeadline < 0 {
		return nil, fmt.Errorf("bootstrap: a negative leave deadline: %w", errs.ErrConfig)
	}
	if cfg.LeaveDeadline == 0 {
		cfg.LeaveDeadline = DefaultLeaveDeadline
	}
	if cfg.JoinDeadline == 0 {
		cfg.JoinDeadline = DefaultJoinDeadline
	}
	var m Member
	var err error
	if err := cfg.Meet(ctx); err != nil {
		return nil, err
	}
	if cfg.Rank != 0 || cfg.HubExternal {
		dial := DialConfig{
			Address: cfg.Address, Rank: cfg.Rank, Size: cfg.Size, Deadline: cfg.JoinDeadline,
			Secret: cfg.Secret, HostID: cfg.HostID, Logger: cfg.Logger,
		}
		if !cfg.HubExternal {
			dial.holder = []int{0}
		}
		m, err = Dial(ctx, dial)
	} else {
		m, err = host(ctx, &cfg)
	}
	if err != nil {
		return nil, err
	}
	// The hub's own join deadline decides; this one is for a hub that does not.
	wait, cancel := context.WithTimeout(ctx, cfg.JoinDeadline+answerWait)
	defer cancel()
	if err := m.WaitJoined(wait); err != nil {
		if h, ok := m.(*hosted); ok {
			h.leave = 0
		}
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// hosted is rank 0 with the hub that it holds.
type hosted struct {
	Member
	hub   *Hub
	leave time.Duration
}

func host(ctx context.Context, cfg *ConnectConfig) (Member, error) {
	hub, err := NewHub(HubConfig{
		Size: cfg.Size, Holder: 0,
		JoinDeadline: cfg.JoinDeadline, FailureDeadline: cfg.FailureDeadline, Heartbeat: cfg.Heartbeat,
		Secret: cfg.Secret, HostID: cfg.HostID, Logger: cfg.Logger,
	})
	if err != nil {
		if cfg.listener != nil {
			_ = cfg.listener.Close()
		}
		return nil, err
	}
	if cfg.Size > 1 {
		if err := serve(ctx, hub, cfg); err != nil {
			_ = hub.Close()
			return nil, err
		}
	}
	m, err := hub.Local(0)
	if err != nil {
		_ = hub.Close()
		return nil, err
	}
	return &hosted{Member: m, hub: hub, leave: cfg.LeaveDeadline}, nil
}

// serve opens the hub to the others.
func serve(ctx context.Context, hub *Hub, cfg *ConnectConfig) error {
	if cfg.listener != nil {
		return hub.Serve(cfg.listener)
	}
	l, bound, err := listenSoon(ctx, cfg.Address, cfg.Interface, min(cfg.JoinDeadline, answerWait))
	if err != nil {
		return err
	}
	if bound.Addr.IsValid() {
		hub.cfg.Logger.Info("bootstrap: the hub listens", "address", l.Addr().String(), "interface", bound.String())
	}
	return hub.Serve(l)
}

// listenSoon is ListenAt, patient for a moment: an earlier world of this job may
// be about to leave the address.
func listenSoon(ctx context.Context, address, iface string, patience time.Duration) (net.Listener, Bound, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		l, bound, err := ListenAt(address, iface)
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) {
			return l, bound, err
		}
		select {
		case <-ctx.Done():
			return nil, bound, err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Close ends the membership, then the hub once all have left, or at the leave
// deadline; then the error is a *errs.TimeoutError that names who was still there.
func (h *hosted) Close() error {
	err := h.Member.Close()
	if h.leave > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), h.leave)
		defer cancel()
		err = errors.Join(err, h.hub.Drain(ctx))
	}
	return errors.Join(err, h.hub.Close())
}
