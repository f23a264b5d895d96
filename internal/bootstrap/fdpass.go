package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

// A descriptor travels so: server → client nonce; client → server nonce and
// proof; server → client proof, with the descriptor beside it (SCM_RIGHTS).

const (
	fdDeadline = 5 * time.Second // of one exchange, on the server's side
	fdClients  = 256             // exchanges at once; more wait in the backlog
)

// ServeFD gives a descriptor to all processes of this user that know the secret
// and ask at addr, until stop is called. It serves a duplicate: fd may be closed
// at any time. stop waits for exchanges underway, at most a few seconds; with an
// error there is none, and it does nothing.
func ServeFD(secret []byte, fd int) (addr string, stop func() error, err error) {
	nothing := func() error { return nil }
	if err := checkTexts(secret, ""); err != nil {
		return "", nothing, err
	}
	addr, err = NewAddress()
	if err != nil {
		return "", nothing, err
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return "", nothing, fmt.Errorf("bootstrap: serve descriptor %d: %w", fd, err)
	}
	l, err := Listen(addr)
	if err != nil {
		_ = unix.Close(dup)
		return "", nothing, err
	}
	s := &fdServer{secret: append([]byte(nil), secret...), fd: dup, l: l, conns: make(map[net.Conn]struct{})}
	s.wg.Add(1)
	go s.accept()
	return addr, sync.OnceValue(s.close), nil
}

type fdServer struct {
	secret []byte
	fd     int
	l      net.Listener
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

func (s *fdServer) close() error {
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.SetDeadline(time.Now()) // half-open ones; one that writes is done anyway
	}
	s.mu.Unlock()
	err := s.l.Close()
	s.wg.Wait()
	return errors.Join(err, unix.Close(s.fd))
}

func (s *fdServer) accept() {
	defer s.wg.Done()
	slots := make(chan struct{}, fdClients)
	for {
		slots <- struct{}{} // freed within fdDeadline
		conn, err := s.l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			<-slots
			time.Sleep(10 * time.Millisecond) // out of descriptors: may pass
			continue
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = conn.Close()
			return
		}
		_ = conn.SetDeadline(time.Now().Add(fdDeadline))
		s.conns[conn] = struct{}{}
		s.wg.Add(1)
		s.mu.Unlock()
		go func() {
			defer s.wg.Done()
			// The client sees the end of the connection: there is nobody else to tell.
			_ = s.give(conn.(*net.UnixConn))
			_ = conn.Close()
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
			<-slots
		}()
	}
}

func (s *fdServer) give(conn *net.UnixConn) error {
	if _, err := checkUser(conn, s.secret); err != nil {
		return err
	}
	nonce, err := newNonce()
	if err != nil {
		return err
	}
	if _, err := conn.Write(nonce[:]); err != nil {
		return err
	}
	var ask [nonceSize + macSize]byte
	if _, err := io.ReadFull(conn, ask[:]); err != nil {
		return err
	}
	if !sameProof([macSize]byte(ask[nonceSize:]), proof(s.secret, "goshmem fd client 1", nonce[:], ask[:nonceSize])) {
		return fmt.Errorf("wrong secret")
	}
	mac := proof(s.secret, "goshmem fd server 1", ask[:nonceSize], nonce[:])
	_, _, err = conn.WriteMsgUnix(mac[:], unix.UnixRights(s.fd), nil)
	return err
}

// FetchFD gets the descriptor that ServeFD serves at addr. It is close-on-exec
// and the caller's to close. Without a deadline in ctx the wait ends after a
// few seconds.
func FetchFD(ctx context.Context, addr string, secret []byte) (int, error) {
	network, name, err := splitAddress(addr)
	if err != nil {
		return -1, err
	}
	if network != "unix" {
		return -1, fmt.Errorf("bootstrap: fetch a descriptor at %s: only a unix socket passes one: %w", addr, errs.ErrConfig)
	}
	ctx, cancel := context.WithTimeout(ctx, fdDeadline)
	defer cancel()
	fd, err := fetch(ctx, network, name, secret)
	if err == nil {
		return fd, nil
	}
	op := "bootstrap: fetch a descriptor at " + addr
	if ctx.Err() != nil {
		return -1, contextError(ctx, op, &errs.TimeoutError{What: "its owner", PE: -1})
	}
	return -1, fmt.Errorf("%s: %w", op, err)
}

func fetch(ctx context.Context, network, name string, secret []byte) (int, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, name)
	if err != nil {
		return -1, err
	}
	conn := c.(*net.UnixConn)
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := checkUser(conn, secret); err != nil {
		return -1, fmt.Errorf("%w: %w", err, errs.ErrConfig)
	}
	var ask [nonceSize + macSize]byte
	var theirs [nonceSize]byte
	if _, err := io.ReadFull(conn, theirs[:]); err != nil {
		return -1, err
	}
	nonce, err := newNonce()
	if err != nil {
		return -1, err
	}
	mac := proof(secret, "goshmem fd client 1", theirs[:], nonce[:])
	copy(ask[:], nonce[:])
	copy(ask[nonceSize:], mac[:])
	if _, err := conn.Write(ask[:]); err != nil {
		return -1, err
	}
	got, fds, err := receiveRights(conn)
	if err == nil && len(fds) != 1 {
		err = fmt.Errorf("%d descriptors came, not one: %w", len(fds), errs.ErrUnsupported)
	}
	if err == nil && !sameProof(got, proof(secret, "goshmem fd server 1", nonce[:], theirs[:])) {
		err = fmt.Errorf("the server does not know the secret: %w", errs.ErrConfig)
	}
	if err != nil {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			err = fmt.Errorf("refused: another secret, or its owner is closing: %w", errs.ErrConfig)
		}
		return -1, err
	}
	return fds[0], nil
}

// receiveRights reads a proof and the descriptors beside its first byte. They
// are the caller's to close, whatever the error.
func receiveRights(conn *net.UnixConn) (mac [macSize]byte, fds []int, err error) {
	// Room for more than the one that is due: surplus ones must not be left open.
	oob := make([]byte, unix.CmsgSpace(16*4))
	n, oobn, flags, _, err := conn.ReadMsgUnix(mac[:], oob)
	if oobn > 0 {
		msgs, e := unix.ParseSocketControlMessage(oob[:oobn])
		err = errors.Join(err, e)
		for i := range msgs {
			if got, e := unix.ParseUnixRights(&msgs[i]); e == nil {
				fds = append(fds, got...)
			}
		}
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = fmt.Errorf("too many descriptors came: %w", errs.ErrUnsupported)
	}
	if err == nil {
		_, err = io.ReadFull(conn, mac[n:])
	}
	return mac, fds, err
}
