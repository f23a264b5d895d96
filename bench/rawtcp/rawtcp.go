// Package rawtcp is the floor of what goes over TCP: two processes, one
// connection, read and write in a loop, nothing else.
package rawtcp

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Link is one end of a connection of each kind: one that both ends spin on, and
// one on which the listening end takes streams.
type Link struct {
	fd     int
	stream net.Conn
	done   chan struct{} // closes when the stream's taker has ended; nil: none
}

// Listener is where the other end connects to.
type Listener struct{ ln net.Listener }

// Listen listens at an address of this host, on a free port.
func Listen(host string) (*Listener, string, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, "", fmt.Errorf("rawtcp: %w", err)
	}
	return &Listener{ln}, ln.Addr().String(), nil
}

// patience is how long the ends try to meet: between hosts not every port is open.
const patience = 20 * time.Second

// Accept takes the two connections of one Dial, and closes the listener.
func (l *Listener) Accept(ctx context.Context) (*Link, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.ln.Close() })()
	defer func() { _ = l.ln.Close() }()
	spin, err := l.ln.Accept()
	if err != nil {
		return nil, fmt.Errorf("rawtcp: %w", err)
	}
	stream, err := l.ln.Accept()
	if err != nil {
		_ = spin.Close()
		return nil, fmt.Errorf("rawtcp: %w", err)
	}
	k, err := newLink(spin, stream)
	if err == nil {
		k.done = make(chan struct{})
		go k.take()
	}
	return k, err
}

// Dial connects to a listener.
func Dial(ctx context.Context, addr string) (*Link, error) {
	d := net.Dialer{Timeout: patience}
	spin, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("rawtcp: %w", err)
	}
	stream, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		_ = spin.Close()
		return nil, fmt.Errorf("rawtcp: %w", err)
	}
	return newLink(spin, stream)
}

func newLink(spin, stream net.Conn) (*Link, error) {
	raw, err := spin.(syscall.Conn).SyscallConn()
	fd := -1
	if err == nil {
		if e := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
			err = e
		}
	}
	_ = spin.Close()
	if err != nil {
		_ = stream.Close()
		return nil, fmt.Errorf("rawtcp: %w", err)
	}
	return &Link{fd: fd, stream: stream}, nil
}

// Close ends both connections.
func (k *Link) Close() error {
	_ = unix.Close(k.fd)
	err := k.stream.Close()
	if k.done != nil {
		<-k.done
	}
	return err
}

// Bounce sends a message to and fro n times; first says who begins.
func (k *Link) Bounce(msg []byte, n int, first bool) error {
	for range n {
		if first {
			if err := k.all(unix.SYS_WRITE, msg); err != nil {
				return err
			}
		}
		if err := k.all(unix.SYS_READ, msg); err != nil {
			return err
		}
		if !first {
			if err := k.all(unix.SYS_WRITE, msg); err != nil {
				return err
			}
		}
	}
	return nil
}

// all reads or writes the whole of b, spinning.
func (k *Link) all(call uintptr, b []byte) error {
	for turn := 0; len(b) > 0; turn++ {
		n, _, e := unix.RawSyscall(call, uintptr(k.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch {
		case e == unix.EAGAIN || e == unix.EINTR:
			if turn%1024 == 1023 {
				runtime.Gosched()
			}
		case e != 0:
			return fmt.Errorf("rawtcp: %w", e)
		case n == 0:
			return fmt.Errorf("rawtcp: %w", io.ErrUnexpectedEOF)
		default:
			b = b[n:]
		}
	}
	return nil
}

// Stream sends a message n times and waits until the other end has read all.
func (k *Link) Stream(msg []byte, n int) error {
	var head [8]byte
	binary.LittleEndian.PutUint64(head[:], uint64(n)*uint64(len(msg)))
	if _, err := k.stream.Write(head[:]); err != nil {
		return fmt.Errorf("rawtcp: %w", err)
	}
	for range n {
		if _, err := k.stream.Write(msg); err != nil {
			return fmt.Errorf("rawtcp: %w", err)
		}
	}
	if _, err := io.ReadFull(k.stream, head[:1]); err != nil {
		return fmt.Errorf("rawtcp: %w", err)
	}
	return nil
}

// Echo is Bounce with the other end's taker, which begins to spin for it: the
// other end need not call anything.
func (k *Link) Echo(msg []byte, n int) error {
	var head [8]byte
	binary.LittleEndian.PutUint64(head[:], echo|uint64(n)<<24|uint64(len(msg)))
	if _, err := k.stream.Write(head[:]); err != nil {
		return fmt.Errorf("rawtcp: %w", err)
	}
	return k.Bounce(msg, n, true)
}

const echo = 1 << 63 // in a head; then 39 bits of times, 24 of length

// take is the other end of Stream and Echo.
func (k *Link) take() {
	defer close(k.done)
	buf := make([]byte, 1<<20)
	for {
		if _, err := io.ReadFull(k.stream, buf[:8]); err != nil {
			return
		}
		head := binary.LittleEndian.Uint64(buf)
		if head&echo != 0 {
			if k.Bounce(make([]byte, head&(1<<24-1)), int(head&^echo>>24), false) != nil {
				return
			}
			continue
		}
		for left := head; left > 0; {
			n, err := k.stream.Read(buf[:min(left, uint64(len(buf)))])
			if err != nil {
				return
			}
			left -= uint64(n)
		}
		if _, err := k.stream.Write(buf[:1]); err != nil {
			return
		}
	}
}
