package pe

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

const (
	reapGrace = time.Second     // a process that is about to end may say why before it is killed
	reapWait  = 5 * time.Second // for the end of a killed one
)

// reap makes sure that lost PEs of this host can write no more before memory
// that they may have been writing is used again: it awaits the end of their
// processes, and kills those that do not end. A PE that only was stopped could
// otherwise wake up in the middle of a copy.
func (p *PE) reap() error {
	w := p.world
	until := time.Now().Add(reapGrace) // for all of them
	for pe := range w.state {
		if w.lossOf(pe) == nil || w.localPE(pe) != nil || w.table.Region(pe, 0).Base == nil {
			continue
		}
		if err := kill(w.peers[pe].PID, w.births[pe], time.Until(until)); err != nil {
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

// kill gives the process of this number and birth some time to end by itself, else
// ends it, and waits until it is gone. The descriptor makes sure that it is one
// process from the beginning to the end.
func kill(pid int, born string, grace time.Duration) error {
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
	if err := awaitEnd(fd, grace); !errors.Is(err, errs.ErrTimeout) {
		return err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return os.NewSyscallError("pidfd_send_signal", err)
	}
	return awaitEnd(fd, reapWait)
}

// awaitEnd waits until the process of a descriptor has ended; ErrTimeout.
func awaitEnd(fd int, d time.Duration) error {
	for until := time.Now().Add(d); ; {
		left := time.Until(until)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(0, left.Milliseconds())))
		switch {
		case err != nil && err != unix.EINTR:
			return os.NewSyscallError("poll", err)
		case n > 0:
			return nil
		case left <= 0:
			return errs.ErrTimeout
		}
	}
}

func closeFD(fd int) { _ = unix.Close(fd) } // nothing written through it
