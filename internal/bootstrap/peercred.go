package bootstrap

import (
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// peerCred gives the other side's process and user, as the kernel noted them at
// its connect or listen; ok is false for a connection that is no unix socket.
func peerCred(conn net.Conn) (cred *unix.Ucred, ok bool, err error) {
	u, isUnix := conn.(*net.UnixConn)
	if !isUnix {
		return nil, false, nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, true, err
	}
	if e := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil {
		err = e
	}
	return cred, true, err
}

// checkUser refuses another user's process on a unix socket, and an
// unauthenticated one anywhere else. pid is 0 where unknown.
func checkUser(conn net.Conn, secret []byte) (pid int, err error) {
	cred, ok, err := peerCred(conn)
	switch {
	case err != nil:
		return 0, fmt.Errorf("the peer's user is unknown: %w", err)
	case !ok && len(secret) == 0:
		return 0, fmt.Errorf("a connection that is no unix socket needs a secret")
	case ok && int(cred.Uid) != os.Geteuid():
		return 0, fmt.Errorf("the peer's user is %d, not %d", cred.Uid, os.Geteuid())
	case ok:
		return int(cred.Pid), nil
	}
	return 0, nil
}

// unread reports whether bytes lie in the connection's receive buffer.
func unread(conn net.Conn) bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n > 0
}
