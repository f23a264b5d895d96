package bootstrap

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

// maxSocketName is what sun_path holds, less the terminating or leading NUL.
const maxSocketName = 107

// NewAddress makes an address that no other job has: an abstract unix socket
// with a random name.
func NewAddress() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("bootstrap: no random bytes: %w", err)
	}
	return fmt.Sprintf("unix:@goshmem-%d-%s", os.Geteuid(), hex.EncodeToString(b[:])), nil
}

// splitAddress checks an address and gives network and name as net takes them.
func splitAddress(address string) (network, name string, err error) {
	network, name, _ = strings.Cut(address, ":")
	switch network {
	case "unix":
		err = checkSocketName(name)
	case "tcp":
		err = checkHostPort(name)
	default:
		network, name = "tcp", address
		err = checkHostPort(name)
	}
	if err != nil {
		return "", "", fmt.Errorf("bootstrap: address %q: want unix:@name, unix:/path or host:port: %w: %w", address, err, errs.ErrConfig)
	}
	return network, name, nil
}

// CheckAddress is nil for what Listen and Dial take, else errs.ErrConfig.
func CheckAddress(address string) error {
	_, _, err := splitAddress(address)
	return err
}

func checkSocketName(name string) error {
	switch {
	case len(name) < 2 || name[0] != '@' && name[0] != '/':
		return errors.New("neither @name nor an absolute path")
	case len(name) > maxSocketName:
		return fmt.Errorf("a name of %d bytes, over %d", len(name), maxSocketName)
	case strings.ContainsRune(name, 0):
		return errors.New("a zero byte in the name")
	}
	return nil
}

// maxHostName is the longest name that the domain name system has.
const maxHostName = 253

func checkHostPort(name string) error {
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		return errors.New("no host:port")
	}
	if host == "" || len(host) > maxHostName || strings.ContainsAny(host, " \t\r\n\x00/@") {
		return fmt.Errorf("%.64q is no host", host)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
		return fmt.Errorf("%.64q is no port in 1..65535", port)
	}
	return nil
}

// Listen opens a rendezvous: "unix:@name" (abstract, goes with its last process),
// "unix:/path" (removed by Close), or "host:port" for PEs of several hosts, where
// host is this one; ListenAt chooses its network interface. A socket file that a
// dead process left is replaced; an address where somebody listens is
// errs.ErrConfig.
func Listen(address string) (net.Listener, error) {
	l, _, err := ListenAt(address, "")
	return l, err
}

// ListenAt is Listen; iface, which may be empty, says on which network interface
// (Interfaces). bound tells where a host:port was opened, and why there.
func ListenAt(address, iface string) (l net.Listener, bound Bound, err error) {
	network, name, err := splitAddress(address)
	if err != nil {
		return nil, Bound{}, err
	}
	switch {
	case network == "tcp":
		l, bound, err = listenTCP(name, iface)
	case name[0] == '@':
		l, err = net.Listen(network, name)
	default:
		l, err = listenPath(name)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, Bound{}, fmt.Errorf("bootstrap: listen at %s: somebody listens there: %w: %w", address, errs.ErrConfig, err)
	}
	if err != nil {
		return nil, Bound{}, fmt.Errorf("bootstrap: listen at %s: %w", address, err)
	}
	return l, bound, nil
}

// listenPath binds a socket file. A lock on its directory keeps two processes
// from both taking the same file for a dead one's.
func listenPath(path string) (net.Listener, error) {
	unlock, err := lockDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && deadSocket(path) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		l, err = net.Listen("unix", path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// deadSocket reports whether path is a socket file that nobody listens at.
func deadSocket(path string) bool {
	st, err := os.Lstat(path)
	if err != nil || st.Mode().Type() != fs.ModeSocket {
		return false
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func lockDir(dir string) (unlock func(), err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	for until := time.Now().Add(2 * time.Second); ; {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = unix.Close(fd) }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR || time.Now().After(until) {
			_ = unix.Close(fd)
			return nil, &fs.PathError{Op: "lock", Path: dir, Err: err}
		}
		time.Sleep(2 * time.Millisecond)
	}
}
