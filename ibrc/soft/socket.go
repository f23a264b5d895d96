package soft

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dup is a descriptor of a connection that the runtime's netpoller knows nothing of.
func dup(nc net.Conn) (fd int, err error) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("soft: %T has no descriptor", nc)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return -1, e
	}
	return fd, err
}

// secure puts TLS on a connection, if it is wanted, and returns what binds the
// proofs to it.
func (p *Provider) secure(ctx context.Context, nc net.Conn, server bool) (net.Conn, []byte, error) {
	if !p.cfg.TLS {
		return nc, nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true} // the challenge tells who it is
	var c *tls.Conn
	if server {
		cert, err := makeCertificate()
		if err != nil {
			return nil, nil, err
		}
		cfg.Certificates = []tls.Certificate{cert}
		c = tls.Server(nc, cfg)
	} else {
		c = tls.Client(nc, cfg)
	}
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, nil, err
	}
	st := c.ConnectionState()
	binding, err := st.ExportKeyingMaterial("EXPORTER-goshmem-soft", nil, 32)
	return c, binding, err
}

func makeCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("soft: certificate: %w", err)
	}
	now := time.Now()
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("soft: certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// bridge makes a socket of a TLS connection: two goroutines copy between them.
func (p *Provider) bridge(c net.Conn) (fd int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("soft: socketpair: %w", err)
	}
	f := os.NewFile(uintptr(pair[1]), "soft-tls")
	inner, err := net.FileConn(f)
	_ = f.Close() // FileConn has its own
	if err != nil {
		closeFD(pair[0])
		return -1, fmt.Errorf("soft: socketpair: %w", err)
	}
	_ = c.SetDeadline(time.Time{})
	// An end is an end, whatever the reason: what was written before is passed on.
	var ends sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}
	ends.Go(func() { pass(inner, c) })
	ends.Go(func() { pass(c, inner) })
	p.wg.Go(func() {
		off := context.AfterFunc(p.life, func() { _ = c.SetDeadline(time.Now().Add(time.Second)) })
		ends.Wait()
		off()
	})
	return pair[0], nil
}
