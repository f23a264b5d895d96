package pe

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

// reapWait bounds the wait for the end of a killed process.
const reapWait = 5 * time.Second

// reap makes sure that lost PEs of this host can write no more before memory
// that they may have been writing is used again: it kills their processes and
// awaits their end. A PE that only was stopped could otherwise wake up in the
// middle of a copy.
func (p *PE) reap() error {
	w := p.world
	for pe := range w.state {
		if w.lossOf(pe) == nil || w.localPE(pe) != nil || w.table.Region(pe, 0).Base == nil {
			continue
		}
		if err := kill(w.peers[pe].PID, w.births[pe]); err != nil {
			return &errs.PeerLostError{PE: pe, Cause: fmt.Sprintf("and its process %d cannot be ended: %v", w.peers[pe].PID, err)}
		}
	}
	return nil
}

// birth is when a process began, in ticks since boot. With its number that names
// it for ever: the number alone may be another process's by the time it is used.
// Empty: there is no such process.
func birth(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// The command's name, in parentheses, may hold anything.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return ""
	}
	return string(fields[19])
}

// kill ends the process of this number and birth and waits until it is gone. The
// descriptor makes sure that it is one process from the beginning to the end.
func kill(pid int, born string) error {
	if pid <= 0 || pid == os.Getpid() {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer closeFD(fd)
	if birth(pid) != born {
		return nil // it is gone, and the number is another's
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return os.NewSyscallError("pidfd_send_signal", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), reapWait)
	defer cancel()
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("poll", err)
		}
		if n > 0 {
			return nil
		}
	}
	return errs.ErrTimeout
}

func closeFD(fd int) { _ = unix.Close(fd) } // nothing written through it
