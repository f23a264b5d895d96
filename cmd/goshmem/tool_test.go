package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/internal/options"
)

// patience bounds everything that the tests wait for.
const patience = 60 * time.Second

// markName is a variable that all processes of a started tool have, with a value
// of its own.
const markName = options.TestPrefix + "MARK"

// started is a running tool.
type started struct {
	t    *testing.T
	cmd  *exec.Cmd
	mark string
	out  *capture
	err  *capture
	over chan struct{}
}

// capture keeps what a stream said, and tells waiters of news.
type capture struct {
	mu   sync.Mutex
	cond *sync.Cond
	text bytes.Buffer
	end  bool
}

func newCapture() *capture {
	c := &capture{}
	c.cond = sync.NewCond(&c.mu)
	return c
}

func (c *capture) read(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		c.mu.Lock()
		c.text.WriteString(line)
		c.end = err != nil
		c.cond.Broadcast()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *capture) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// start runs the tool. What it starts must be gone when the test is over.
func start(t *testing.T, args ...string) *started {
	t.Helper()
	return startWith(t, func(*exec.Cmd) {}, args...)
}

func startWith(t *testing.T, change func(*exec.Cmd), args ...string) *started {
	t.Helper()
	s := &started{
		t: t, cmd: exec.Command(toolName, args...), mark: rand.Text(),
		out: newCapture(), err: newCapture(), over: make(chan struct{}),
	}
	s.cmd.Env = append(os.Environ(), markName+"="+s.mark)
	s.cmd.WaitDelay = patience
	change(s.cmd)
	var readers sync.WaitGroup
	for _, x := range []struct {
		to *capture
		w  *io.Writer
	}{{s.out, &s.cmd.Stdout}, {s.err, &s.cmd.Stderr}} {
		if *x.w != nil {
			continue
		}
		r, w, err := os.Pipe()
		require.NoError(t, err)
		*x.w = w
		defer func() { _ = w.Close() }()
		readers.Go(func() {
			defer func() { _ = r.Close() }()
			x.to.read(r)
		})
	}
	require.NoError(t, s.cmd.Start())
	go func() {
		_ = s.cmd.Wait()
		readers.Wait()
		close(s.over)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("stdout of %v:\n%s\nstderr:\n%s", args, s.out, s.err)
		}
		select {
		case <-s.over:
		default:
			_ = s.cmd.Process.Kill()
		}
		s.clean()
	})
	return s
}

// clean fails the test if a process of this run is left, and ends it.
func (s *started) clean() {
	s.t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		left := s.processes()
		if len(left) == 0 {
			return
		}
		if time.Now().After(until) {
			s.t.Errorf("processes left: %v", left)
			for pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return
		}
	}
}

// processes are those that the run started, itself not counted, by number: their
// command lines.
func (s *started) processes() map[int]string {
	found := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(env, []byte(markName+"="+s.mark)) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if pid == s.cmd.Process.Pid {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		found[pid] = string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
	}
	return found
}

// wait returns the tool's exit status; -n if signal n ended it.
func (s *started) wait() int {
	s.t.Helper()
	return s.waitFor(patience)
}

func (s *started) waitFor(long time.Duration) int {
	s.t.Helper()
	select {
	case <-s.over:
	case <-time.After(long):
		s.t.Fatalf("does not end: %v", s.cmd.Args)
	}
	ws, _ := s.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return -int(ws.Signal())
	}
	return s.cmd.ProcessState.ExitCode()
}

// expect waits until a stream has n matches of a pattern, and returns them all.
func (s *started) expect(c *capture, n int, pattern string) [][]string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	timer := time.AfterFunc(patience, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.end = true
		c.cond.Broadcast()
	})
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		found := re.FindAllStringSubmatch(c.text.String(), -1)
		if len(found) >= n {
			return found
		}
		if c.end {
			s.t.Fatalf("%d of %d times %q in %q; other streams %q", len(found), n, pattern, c.text.String(), fmt.Sprint(s.others(c)))
		}
		c.cond.Wait()
	}
}

func (s *started) others(c *capture) string {
	if c == s.out {
		return s.err.String()
	}
	return s.out.String()
}

// pids waits for n PEs to be ready, and tells their processes by rank.
func (s *started) pids(n int) map[int]int {
	s.t.Helper()
	pids := map[int]int{}
	for _, m := range s.expect(s.out, n, `(?m)^(?:\[\d+\] )?ready (\d+) (\d+)$`) {
		rank, _ := strconv.Atoi(m[1])
		pids[rank], _ = strconv.Atoi(m[2])
	}
	require.Len(s.t, pids, n)
	return pids
}

func (s *started) signal(sig syscall.Signal) {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(sig))
}

// state is the kernel's letter for a process: 'T' if it is stopped.
func state(pid int) byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(b, []byte(") "))
	if len(rest) == 0 {
		return 0
	}
	return rest[0]
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("not in time: " + what)
		}
	}
}

// runTool runs the tool to its end.
func runTool(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	s := start(t, args...)
	status = s.wait()
	return status, s.out.String(), s.err.String()
}

// inShm are the runtime's files in /dev/shm.
func inShm(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/dev/shm/*goshmem*")
	require.NoError(t, err)
	return files
}

// listening reports whether an abstract socket's name is in use.
func listening(t *testing.T, address string) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/net/unix")
	if errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Contains(string(b), strings.TrimPrefix(address, "unix:"))
}
