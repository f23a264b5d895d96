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
	network, name, ok := strings.Cut(address, ":")
	switch {
	case !ok || network == "":
		err = fmt.Errorf("bootstrap: address %q is not of the form unix:@name or unix:/path: %w", address, errs.ErrConfig)
	case network != "unix":
		err = fmt.Errorf("bootstrap: address %q: only unix sockets: %w", address, errs.ErrUnsupported)
	case len(name) < 2 || name[0] != '@' && name[0] != '/':
		err = fmt.Errorf("bootstrap: address %q: want @name or an absolute path behind unix: %w", address, errs.ErrConfig)
	case len(name) > maxSocketName:
		err = fmt.Errorf("bootstrap: address %q: a name of %d bytes, over %d: %w", address, len(name), maxSocketName, errs.ErrConfig)
	case strings.ContainsRune(name, 0):
		err = fmt.Errorf("bootstrap: address %q: a zero byte in the name: %w", address, errs.ErrConfig)
	}
	return network, name, err
}

// Listen opens a rendezvous: "unix:@name" (abstract, goes with its last process)
// or "unix:/path" (removed by Close). A socket file that a dead process left is
// replaced; one where somebody listens is errs.ErrConfig.
func Listen(address string) (net.Listener, error) {
	network, name, err := splitAddress(address)
	if err != nil {
		return nil, err
	}
	var l net.Listener
	if name[0] == '@' {
		l, err = net.Listen(network, name)
	} else {
		l, err = listenPath(name)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("bootstrap: listen at %s: somebody listens there: %w: %w", address, errs.ErrConfig, err)
	}
	if err != nil {
		return nil, fmt.Errorf("bootstrap: listen at %s: %w", address, err)
	}
	return l, nil
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
