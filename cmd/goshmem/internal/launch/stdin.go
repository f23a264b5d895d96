package launch

import (
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// input is rank 0's standard input. A file or pipe is given as it is. A terminal
// cannot be: PEs are not in its foreground group and would be stopped for
// reading. So what is typed is passed on, while the launcher is in the
// foreground.
type input struct {
	file *os.File // for the process; nil: none
	stop chan struct{}
	done chan struct{} // nil: nothing is passed on
	once sync.Once
}

func newInput(f *os.File) (*input, error) {
	in := &input{file: f, stop: make(chan struct{})}
	if f == nil || !isTerminal(f) {
		return in, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	in.file, in.done = r, make(chan struct{})
	go in.pass(f, w)
	return in, nil
}

// sendInput passes what f has on to a host.
func sendInput(f *os.File, to io.WriteCloser) *input {
	in := &input{stop: make(chan struct{})}
	if f == nil {
		return in
	}
	in.done = make(chan struct{})
	go in.pass(f, to)
	return in
}

// given closes the launcher's copy of the pipe, once the process has its own.
func (in *input) given() {
	if in.done != nil && in.file != nil {
		_ = in.file.Close()
		in.file = nil
	}
}

// close ends the passing on. It waits for it, but not for a read that somebody
// else's reading of the terminal made block.
func (in *input) close() {
	in.once.Do(func() { close(in.stop) })
	in.given()
	if in.done != nil {
		select {
		case <-in.done:
		case <-time.After(time.Second):
		}
	}
}

func (in *input) pass(from *os.File, to io.WriteCloser) {
	defer close(in.done)
	defer func() { _ = to.Close() }()
	terminal := isTerminal(from)
	fd := int(from.Fd())
	buf := make([]byte, 4096)
	for {
		select {
		case <-in.stop:
			return
		default:
		}
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 100)
		switch {
		case err != nil && err != unix.EINTR:
			return
		case n < 1:
			continue
		case terminal && !foreground(fd):
			// Something is typed, for others.
			select {
			case <-in.stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		k, err := unix.Read(fd, buf)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil || k == 0 {
			return
		}
		if _, err := to.Write(buf[:k]); err != nil {
			return // the process has ended
		}
	}
}

func isTerminal(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	yes := false
	_ = conn.Control(func(fd uintptr) {
		_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		yes = err == nil
	})
	return yes
}

// foreground reports whether this process may read from the terminal.
func foreground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
