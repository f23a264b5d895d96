package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"goshmem/internal/errs"
)

// Dial joins the hub at an address, and tries again until its deadline while
// nobody listens there yet. It returns when the hub has admitted this rank, which
// may be before the others have joined: WaitJoined. ctx bounds only the call.
//
// A refusal is a *RefusedError; a hub that did not appear a *errs.TimeoutError.
func Dial(ctx context.Context, cfg DialConfig) (Member, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	network, name, err := splitAddress(cfg.Address)
	if err != nil {
		return nil, err
	}
	if network != "unix" && len(cfg.Secret) == 0 {
		return nil, fmt.Errorf("bootstrap: join at %s: %w", cfg.Address, errNoSecret)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Deadline)
	defer cancel()
	op := fmt.Sprintf("bootstrap: join at %s as rank %d of %d", cfg.Address, cfg.Rank, cfg.Size)
	var last error
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		m, again, err := dialOnce(ctx, network, name, &cfg)
		if err == nil {
			return m, nil
		}
		if !again {
			return nil, fmt.Errorf("%s: %w", op, err)
		}
		if ctx.Err() == nil {
			last = err // what ends with ctx says less than what came before
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			none := &errs.TimeoutError{What: "the hub", PE: -1}
			if _, there := errors.AsType[*RefusedError](last); !there {
				none.Missing = cfg.holder
			}
			err := contextError(ctx, op, none)
			if last != nil {
				err = fmt.Errorf("%w (last attempt: %w)", err, last)
			}
			return nil, err
		}
	}
}

// dialOnce is one attempt; again reports whether another may do better.
func dialOnce(ctx context.Context, network, name string, cfg *DialConfig) (m *remote, again bool, err error) {
	d := net.Dialer{Timeout: attemptTime}
	conn, err := d.DialContext(ctx, network, name)
	if err != nil {
		return nil, retriable(err), err
	}
	// A hub that does not go on with the handshake must not outlast ctx.
	release := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	f := newFramer(conn)
	w, err := greet(f, cfg)
	if !release() && err == nil {
		err = os.ErrDeadlineExceeded
	}
	if err != nil {
		_ = conn.Close()
		if r, ok := errors.AsType[*RefusedError](err); ok {
			return nil, r.passing(), err
		}
		return nil, retriable(err), err
	}
	return newRemote(f, cfg, w), false, nil
}

// retriable reports whether an error means that there is no hub yet, or that one
// is just going: not that there is a wrong one.
func retriable(err error) bool {
	for _, e := range []error{
		syscall.ENOENT, syscall.ECONNREFUSED, syscall.EAGAIN, syscall.ECONNRESET, syscall.EPIPE,
		io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, context.Canceled, context.DeadlineExceeded,
		// A host that is starting: no route, no answer.
		syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ETIMEDOUT, syscall.ECONNABORTED,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	_, unnamed := errors.AsType[*net.DNSError](err) // names of pods come late
	return unnamed
}

// greet is the member's side of the handshake.
func greet(f *framer, cfg *DialConfig) (*welcome, error) {
	if _, err := checkUser(f.conn, cfg.Secret); err != nil {
		return nil, fmt.Errorf("%w: %w", err, errs.ErrConfig)
	}
	m, err := hear(f, kindChallenge)
	if err != nil {
		return nil, err
	}
	if m.n != wireVersion {
		return nil, fmt.Errorf("the hub speaks version %d, this is %d: %w", m.n, wireVersion, errs.ErrUnsupported)
	}
	challenge := m.nonce
	nonce, err := newNonce()
	if err != nil {
		return nil, err
	}
	hi := &hello{size: cfg.Size, pid: os.Getpid(), host: cfg.HostID, nonce: nonce}
	hi.mac = helloProof(cfg.Secret, challenge, cfg.Rank, hi)
	if err := f.write(&msg{kind: kindHello, src: cfg.Rank, dst: -1, hello: hi}); err != nil {
		// The hub may have said why it would not listen.
		if _, e := hear(f, kindWelcome); e != nil {
			if r, ok := errors.AsType[*RefusedError](e); ok {
				return nil, r
			}
		}
		return nil, err
	}
	if m, err = hear(f, kindWelcome); err != nil {
		return nil, err
	}
	w := m.welcome
	if !sameProof(w.mac, welcomeProof(cfg.Secret, challenge, nonce, cfg.Rank, w)) {
		return nil, fmt.Errorf("the hub does not know the job's secret: %w", errs.ErrConfig)
	}
	if w.holder >= cfg.Size || w.heartbeat < 1 || w.deadline < silentTicks || w.heartbeat > math.MaxInt64 || w.deadline > math.MaxInt64 {
		return nil, wireErr("a welcome with holder %d, times %d, %d", w.holder, w.heartbeat, w.deadline)
	}
	return w, nil
}

// hear reads the frame that is due, or the refusal in its place.
func hear(f *framer, want kind) (*msg, error) {
	m, err := f.read()
	if err != nil {
		if errors.Is(err, errWire) {
			err = fmt.Errorf("no hub there: %w: %w", errs.ErrConfig, err)
		}
		return nil, err
	}
	if m.kind == kindRefuse {
		return nil, &RefusedError{Code: RefuseCode(m.code), Reason: m.text}
	}
	if m.kind != want {
		return nil, wireErr("kind %d where %d is due", m.kind, want)
	}
	return m, nil
}

// remote is a member attached by a connection.
type remote struct {
	*member
	link *link
	stop chan struct{}
	eof  chan struct{} // nothing comes from the hub any more
	once sync.Once
	wg   sync.WaitGroup
}

func newRemote(f *framer, cfg *DialConfig, w *welcome) *remote {
	r := &remote{
		member: newMember(cfg.Rank, cfg.Size, w.holder),
		link:   newLink(f, math.MaxInt),
		stop:   make(chan struct{}),
		eof:    make(chan struct{}),
	}
	r.up = r
	r.wg.Add(2)
	go r.readLoop()
	go r.watch(time.Duration(w.heartbeat), time.Duration(w.deadline))
	return r
}

func (r *remote) send(m *msg) error           { return r.link.send(m) }
func (r *remote) flush(d time.Duration) error { return r.link.flush(d) }

// close is the uplink's, for member.Close. It waits, for a while, until the hub
// has closed its side: then it has taken the goodbye, and does not refuse this
// rank for still being there if it joins again.
func (r *remote) close() {
	r.once.Do(func() {
		close(r.stop)
		half, ok := r.link.conn.(interface{ CloseWrite() error })
		if ok && r.link.flush(closeGrace) == nil && half.CloseWrite() == nil {
			t := time.NewTimer(closeGrace)
			defer t.Stop()
			select {
			case <-r.eof:
			case <-t.C:
			}
		}
		r.link.close(closeGrace)
	})
	r.wg.Wait()
}

// Close is member's: embedding would find both at different depths.
func (r *remote) Close() error { return r.member.Close() }

func (r *remote) readLoop() {
	defer r.wg.Done()
	defer close(r.eof)
	for {
		m, err := r.link.read()
		if err != nil {
			cause := "the connection to its hub ended"
			if errors.Is(err, errWire) {
				cause = "its hub sent a " + err.Error()
			}
			r.hubLost(cause)
			return
		}
		r.deliver(m)
	}
}

// watch sends this member's heartbeats and listens for the hub's, by the hub's
// rule: silence is counted in own ticks.
func (r *remote) watch(heartbeat, deadline time.Duration) {
	defer r.wg.Done()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	tick := time.NewTicker(deadline / silentTicks)
	defer tick.Stop()
	for silent := 0; ; {
		select {
		case <-r.stop:
			return
		case <-beat.C:
			r.link.beat()
		case <-tick.C:
			silent++
			if r.link.heard.Swap(false) || unread(r.link.conn) {
				silent = 0
			}
			if silent == silentTicks {
				// Should the hub only have been stopped, it must learn what it has missed.
				_ = r.link.send(&msg{kind: kindLost, src: r.rank, dst: -1, text: "hub silent"})
				r.hubLost("its hub was silent for " + deadline.String())
			}
		}
	}
}
