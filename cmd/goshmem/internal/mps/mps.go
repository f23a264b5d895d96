// Package mps gives the processes of a job that share GPUs an MPS daemon of their
// own: without one the GPU gives them turns, and a signal between two takes 147 us
// instead of 9.
package mps

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The variables that say where a daemon is, and the program that is one.
const (
	pipeVariable = "CUDA_MPS_PIPE_DIRECTORY"
	logVariable  = "CUDA_MPS_LOG_DIRECTORY"
	control      = "nvidia-cuda-mps-control"
	defaultPipe  = "/tmp/nvidia-mps"
)

// Running reports whether a process started from here would find a daemon.
func Running(getenv func(string) string) bool {
	dir := getenv(pipeVariable)
	if dir == "" {
		dir = defaultPipe
	}
	_, err := os.Stat(filepath.Join(dir, "control"))
	return err == nil
}

// Connections is the value of CUDA_DEVICE_MAX_CONNECTIONS for n processes on a GPU:
// 32 each for one, which keeps streams apart that wait; the clients of a daemon share
// what the GPU has.
func Connections(n int) int {
	if n < 2 {
		return 32
	}
	return 8
}

// Daemon is a private daemon.
type Daemon struct {
	dir string
	cmd *exec.Cmd
	out chan error
}

// startLimit is how long a daemon may take to listen, stopLimit to end.
const (
	startLimit = 10 * time.Second
	stopLimit  = 20 * time.Second
)

// Start starts a daemon with directories of its own.
func Start() (*Daemon, error) {
	path, err := exec.LookPath(control)
	if err != nil {
		return nil, fmt.Errorf("mps: %w", err)
	}
	dir, err := os.MkdirTemp("", "goshmem-mps-")
	if err != nil {
		return nil, fmt.Errorf("mps: %w", err)
	}
	d := &Daemon{dir: dir, cmd: exec.Command(path, "-f"), out: make(chan error, 1)}
	// The daemon serves all devices: what it would leave out, its clients would leave
	// out once more, by numbers that are no longer the same.
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "CUDA_VISIBLE_DEVICES=") })
	d.cmd.Env = append(env, d.Env()...)
	// ^C is for the job; and a daemon must not outlive who would stop it.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := d.cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("mps: %w", err)
	}
	go func() { d.out <- d.cmd.Wait() }()
	for end := time.Now().Add(startLimit); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "control")); err == nil {
			return d, nil
		}
		select {
		case err := <-d.out:
			_ = os.RemoveAll(dir)
			return nil, fmt.Errorf("mps: %s ended: %v", control, err)
		default:
		}
		if time.Now().After(end) {
			_ = d.cmd.Process.Kill()
			<-d.out
			_ = os.RemoveAll(dir)
			return nil, fmt.Errorf("mps: %s did not listen within %v", control, startLimit)
		}
	}
}

// Env is what the daemon's clients must have.
func (d *Daemon) Env() []string {
	return []string{pipeVariable + "=" + d.dir, logVariable + "=" + d.dir}
}

// Stop ends the daemon, whose clients have ended, and removes what it left.
func (d *Daemon) Stop() error {
	quit := exec.Command(d.cmd.Path)
	quit.Env = d.cmd.Env
	quit.Stdin = strings.NewReader("quit\n")
	quit.Stdout, quit.Stderr = io.Discard, io.Discard
	err := quit.Start()
	if err == nil {
		timer := time.AfterFunc(stopLimit, func() { _ = quit.Process.Kill() })
		err = quit.Wait()
		timer.Stop()
	}
	select {
	case <-d.out:
	case <-time.After(stopLimit):
		_ = d.cmd.Process.Kill()
		<-d.out
	}
	if e := os.RemoveAll(d.dir); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("mps: stop: %w", err)
	}
	return nil
}

// ConnectionsVariable is that of Connections, as NAME=VALUE.
func ConnectionsVariable(n int) string {
	return "CUDA_DEVICE_MAX_CONNECTIONS=" + strconv.Itoa(Connections(n))
}
