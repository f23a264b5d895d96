package soft

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"goshmem/ibrc"
	"goshmem/internal/errs"
)

const (
	// shakeTime is how long a stranger may take to prove who it is.
	shakeTime = 5 * time.Second
	// strangers are how many may do so at a time.
	strangers = 64
	macSize   = sha256.Size
	// How long until who was hung up on comes again.
	firstAgain, lastAgain = 5 * time.Millisecond, 500 * time.Millisecond
)

// try finds out whether it can listen where it is to: a port of its own choice is not
// listened at before it is needed, one that was asked for is at once, so that who has it
// already is found now.
func (p *Provider) try() error {
	if _, port, err := net.SplitHostPort(p.cfg.Listen); err == nil && port != "0" {
		return p.listen()
	}
	ln, err := p.bind()
	if err != nil {
		return err
	}
	return ln.Close()
}

func (p *Provider) bind() (net.Listener, error) {
	ln, err := net.Listen("tcp", p.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("soft: listen at %s: %w: %w", p.cfg.Listen, errs.ErrConfig, err)
	}
	return ln, nil
}

// listen makes sure that there is a listener.
func (p *Provider) listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ln != nil || p.closed {
		return nil
	}
	ln, err := p.bind()
	if err != nil {
		return err
	}
	p.ln = ln
	p.wg.Go(func() { p.accept(ln) })
	return nil
}

func (p *Provider) address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ln == nil {
		return ""
	}
	return p.ln.Addr().String()
}

// guests are the connections whose other end has not named a queue pair that waits, the
// oldest first.
type guests struct {
	mu  sync.Mutex
	all []net.Conn
}

// enter makes room for one more: where there are too many the oldest goes, who has had
// the longest time. A peer that goes for it comes again.
func (g *guests) enter(nc net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.all) == strangers {
		_ = g.all[0].Close()
		g.all = slices.Delete(g.all, 0, 1)
	}
	g.all = append(g.all, nc)
}

func (g *guests) leave(nc net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = slices.DeleteFunc(g.all, func(c net.Conn) bool { return c == nc })
}

// accept takes connections until the listener closes; those that do not prove
// in time who they are cost a place among the strangers, and nothing else.
func (p *Provider) accept(ln net.Listener) {
	var g guests
	for {
		nc, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: some may come back
			p.env.Log.Warn("soft: accept", "err", err)
			select {
			case <-p.life.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		g.enter(nc)
		p.wg.Go(func() {
			defer g.leave(nc)
			if err := p.welcome(nc, func() { g.leave(nc) }); err != nil {
				p.env.Log.Warn("soft: connection refused", "from", nc.RemoteAddr(), "err", err)
				_ = nc.Close()
			}
		})
	}
}

// expect lets a queue pair be dialled; forget ends that. The peer may have its
// handle, and dial, before its own has come here: q.known closes when it has.
func (p *Provider) expect(q *qp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.waiting[q.token] = q
	}
}

func (p *Provider) forget(q *qp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, q.token)
}

// claim is the queue pair that a hello asks for, once the peer's handle is here.
func (p *Provider) claim(ctx context.Context, h *hello) *qp {
	p.mu.Lock()
	q := p.waiting[h.token]
	p.mu.Unlock()
	if q == nil {
		return nil
	}
	select {
	case <-q.known:
	case <-ctx.Done():
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting[h.token] != q || h.world != p.env.World || int(h.from) != q.cfg.Remote || int(h.to) != q.cfg.Local ||
		h.lane != q.cfg.Lane || h.own != q.peer {
		return nil
	}
	return q
}

var errStranger = errors.New("not one of this world's")

// proof is the MAC of one side over everything said so far.
func (p *Provider) proof(label string, h *hello, server token, binding []byte) []byte {
	m := hmac.New(sha256.New, p.env.Key)
	m.Write([]byte(label))
	m.Write(h.bytes())
	m.Write(server[:])
	m.Write(binding)
	return m.Sum(nil)
}

// welcome lets a stranger prove who it is, and proves it too. Whoever names a token is
// known: it is no more among those who go where there are too many, as it must not once
// it has the listener's proof, behind which it takes itself for connected.
func (p *Provider) welcome(nc net.Conn, known func()) error {
	ctx, cancel := context.WithTimeout(p.life, shakeTime)
	defer cancel()
	defer interrupt(ctx, nc)()
	s, binding, err := p.secure(ctx, nc, true)
	if err != nil {
		return err
	}
	buf := make([]byte, helloSize)
	if _, err := io.ReadFull(s, buf); err != nil {
		return err
	}
	h, ok := parseHello(buf)
	if !ok || p.claim(ctx, &h) == nil {
		return errStranger
	}
	known()
	var nonce token
	_, _ = rand.Read(nonce[:]) // never fails (crypto/rand)
	if _, err := s.Write(append(nonce[:], p.proof("goshmem soft listener 1", &h, nonce, binding)...)); err != nil {
		return err
	}
	mac := make([]byte, macSize)
	if _, err := io.ReadFull(s, mac); err != nil {
		return err
	}
	if !hmac.Equal(mac, p.proof("goshmem soft dialler 1", &h, nonce, binding)) {
		return errStranger
	}
	q := p.claim(ctx, &h)
	if q == nil {
		return errStranger
	}
	p.forget(q)
	return p.hand(q, nc, s)
}

// dial connects to the peer's listener in a goroutine.
func (q *qp) dial(addr string) {
	p := q.p
	ctx, cancel := context.WithTimeout(p.life, p.cfg.Silence)
	q.stop = cancel
	p.wg.Go(func() {
		defer cancel()
		if err := q.reach(ctx, addr); err != nil {
			q.finish(&outcome{err: &ibrc.StatusError{
				Op: ibrc.OpSend, Status: ibrc.StatusRetryExc, Detail: fmt.Sprintf("connect to pe %d at %s: %v", q.cfg.Remote, addr, err),
			}})
		}
	})
}

// reach connects, again and again where the listener hangs up before it has said
// anything: too many strangers may be there.
func (q *qp) reach(ctx context.Context, addr string) error {
	for wait := firstAgain; ; wait = min(2*wait, lastAgain) {
		nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		if err = q.greet(ctx, nc); err == nil {
			return nil
		}
		_ = nc.Close()
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
			select {
			case <-time.After(wait):
				continue
			case <-ctx.Done():
			}
		}
		if e := context.Cause(ctx); e != nil && q.p.life.Err() == nil {
			err = fmt.Errorf("%w (%w)", err, e)
		}
		return err
	}
}

func (q *qp) greet(ctx context.Context, nc net.Conn) error {
	p := q.p
	defer interrupt(ctx, nc)()
	s, binding, err := p.secure(ctx, nc, false)
	if err != nil {
		return err
	}
	h := hello{
		world: p.env.World, from: uint32(q.cfg.Local), to: uint32(q.cfg.Remote), lane: q.cfg.Lane,
		token: q.peer, own: q.token,
	}
	_, _ = rand.Read(h.nonce[:]) // never fails (crypto/rand)
	if _, err := s.Write(h.bytes()); err != nil {
		return err
	}
	var nonce token
	mac := make([]byte, macSize)
	if _, err := io.ReadFull(s, nonce[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(s, mac); err != nil {
		return err
	}
	if !hmac.Equal(mac, p.proof("goshmem soft listener 1", &h, nonce, binding)) {
		return errStranger
	}
	if _, err := s.Write(p.proof("goshmem soft dialler 1", &h, nonce, binding)); err != nil {
		return err
	}
	return p.hand(q, nc, s)
}

// interrupt ends what a connection waits for when ctx ends, until it is called off.
func interrupt(ctx context.Context, nc net.Conn) (off func()) {
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

// hand gives a connection that has proved itself to its queue pair.
func (p *Provider) hand(q *qp, nc, s net.Conn) error {
	if err := p.tune(nc); err != nil {
		return err
	}
	if s != nc {
		fd, err := p.bridge(s)
		if err != nil {
			return err
		}
		q.finish(&outcome{fd: fd})
		return nil
	}
	fd, err := dup(nc)
	if err != nil {
		return err
	}
	_ = nc.Close() // the other descriptor goes on
	q.finish(&outcome{fd: fd})
	return nil
}

// tune makes sure that a peer that does not answer is noticed.
func (p *Provider) tune(nc net.Conn) error {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return fmt.Errorf("soft: %T: %w", nc, errs.ErrUnsupported)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	set := func(fd uintptr) {
		err = errors.Join(
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(p.cfg.Silence/time.Millisecond)),
		)
	}
	if e := raw.Control(set); e != nil {
		return e
	}
	return err
}

func closeFD(fd int) { _ = unix.Close(fd) } // nothing can be done about it
