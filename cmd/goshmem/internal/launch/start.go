package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// StartError says why the program cannot be started.
type StartError struct {
	Program string
	Err     error
	status  int // as another host found it; 0: to be found out
}

func (e *StartError) Error() string { return fmt.Sprintf("%s: %v", e.Program, e.Err) }

// Unwrap gives the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Status is the exit status that a shell would give.
func (e *StartError) Status() int {
	switch {
	case e.status != 0:
		return e.status
	case errors.Is(e.Err, exec.ErrNotFound), errors.Is(e.Err, fs.ErrNotExist), errors.Is(e.Err, syscall.ENOTDIR):
		return StatusNotFound
	case errors.Is(e.Err, fs.ErrPermission), errors.Is(e.Err, syscall.ENOEXEC), errors.Is(e.Err, syscall.EISDIR):
		return StatusNotExecutable
	}
	return StatusFailed
}

// lookup finds the program as a shell would that is in dir, if one is named.
func lookup(program, dir string) (string, error) {
	at := program
	if dir != "" {
		st, err := os.Stat(dir)
		if err == nil && !st.IsDir() {
			err = &fs.PathError{Op: "chdir", Path: dir, Err: syscall.ENOTDIR}
		}
		if err != nil {
			return "", &StartError{Program: program, Err: fmt.Errorf("directory: %w", err), status: StatusFailed}
		}
		if strings.Contains(program, "/") && !filepath.IsAbs(program) {
			// Absolute, or it would be from dir once more; before what Join makes of it could
			// be a bare name.
			if dir, err = filepath.Abs(dir); err != nil {
				return "", &StartError{Program: program, Err: err, status: StatusFailed}
			}
			at = filepath.Join(dir, program)
		}
	}
	path, err := exec.LookPath(at)
	if err == nil {
		return path, nil
	}
	if e, ok := errors.AsType[*exec.Error](err); ok {
		err = e.Err // its text has the name again
	}
	if !strings.Contains(program, "/") {
		if st, e := os.Stat(program); e == nil && !st.IsDir() {
			err = fmt.Errorf("%w; is ./%s meant?", err, program)
		}
	}
	return "", &StartError{Program: program, Err: err}
}

// starter starts processes from one thread that lives until stop: the kernel
// kills them when that thread ends (as it does with the launcher).
type starter struct {
	ask  chan request
	done chan struct{}
}

type request struct {
	cmd   *exec.Cmd
	cpus  []int
	reply chan error
}

func newStarter() *starter {
	s := &starter{ask: make(chan request), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		// Never unlocked: the thread ends with the goroutine, and nobody else
		// gets one with its binding.
		runtime.LockOSThread()
		for r := range s.ask {
			err := bindThread(r.cpus)
			if err == nil {
				err = r.cmd.Start()
			}
			r.reply <- err
		}
	}()
	return s
}

func (s *starter) start(cmd *exec.Cmd, cpus []int) error {
	r := request{cmd, cpus, make(chan error, 1)}
	s.ask <- r
	return <-r.reply
}

// stop ends the thread, and with it whatever it started that is still there.
func (s *starter) stop() {
	close(s.ask)
	<-s.done
}

// child is one PE's process.
type child struct {
	cmd    *exec.Cmd
	relays [2]*relay
	reaped bool // its number may be another's
	status int  // as a shell has it
	how    string
}

// command prepares a process: leader of its own group, killed with us.
func command(path string, cfg *Config, env []string, stdin *os.File) *exec.Cmd {
	cmd := &exec.Cmd{
		Path:        path,
		Args:        append([]string{cfg.Program}, cfg.Args...),
		Env:         env,
		Dir:         cfg.Dir,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	if stdin != nil {
		cmd.Stdin = stdin
	}
	return cmd
}

func (c *child) result() (status int, how string) { return c.status, c.how }

// awaitEnd waits until a process has ended, and leaves it to be reaped: until
// then its number, and that of its group, are nobody else's.
func awaitEnd(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return os.NewSyscallError("waitid", err)
		}
	}
}

// reap takes a process that has ended, and what is left of its group with it.
func (c *child) reap() {
	c.signal(syscall.SIGKILL)
	err := c.cmd.Wait()
	c.reaped = true
	for _, r := range c.relays {
		r.finish()
	}
	state := c.cmd.ProcessState
	if state == nil {
		c.status, c.how = StatusFailed, err.Error()
		return
	}
	c.status, c.how = state.ExitCode(), state.String()
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		c.status = statusSignal + int(ws.Signal())
	}
}

// hush waits until the output of a process that has ended is out, or for long
// enough.
func (c *child) hush(long time.Duration) {
	t := time.NewTimer(long)
	defer t.Stop()
	for _, r := range c.relays {
		select {
		case <-r.over:
		case <-t.C:
			return
		}
	}
}

// signal goes to the process's group. A group without living members is no
// error.
func (c *child) signal(sig syscall.Signal) {
	if !c.reaped {
		_ = unix.Kill(-c.cmd.Process.Pid, sig)
	}
}
