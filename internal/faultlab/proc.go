package faultlab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Proc is one process of a job. Its methods fail the test where they cannot do
// what they say, and are called by the test's goroutine.
type Proc struct {
	Rank int
	PID  int

	job    *Job
	cmd    *exec.Cmd
	in     io.WriteCloser
	killed bool

	mu     sync.Mutex
	lines  []line
	errOut strings.Builder
	closed bool
	news   chan struct{} // capacity 1
	gone   chan struct{} // the process has ended, and its output has been read
}

// grantedGrace is what a process gets beyond the job's deadline.
const grantedGrace = 5 * time.Second

// mostErrors bounds what is kept of a process's error output.
const mostErrors = 64 << 10

func run(j *Job, rank int, cmd *exec.Cmd) (*Proc, error) {
	p := &Proc{Rank: rank, job: j, cmd: cmd, news: make(chan struct{}, 1), gone: make(chan struct{})}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.PID = cmd.Process.Pid
	go p.follow(stdout, stderr)
	return p, nil
}

// follow reads the process's output to its end and then awaits its own.
func (p *Proc) follow(stdout, stderr io.Reader) {
	var wg sync.WaitGroup
	wg.Go(func() {
		s := bufio.NewScanner(stdout)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			var l line
			if json.Unmarshal(s.Bytes(), &l) != nil || l.Event == "" {
				p.complain(s.Text())
				continue
			}
			p.mu.Lock()
			p.lines = append(p.lines, l)
			p.mu.Unlock()
			p.ring()
		}
	})
	wg.Go(func() {
		s := bufio.NewScanner(stderr)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			p.complain(s.Text())
		}
	})
	wg.Wait()
	_ = p.cmd.Wait() // its status is looked at where it is expected
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	close(p.gone)
	p.ring()
}

func (p *Proc) ring() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

func (p *Proc) complain(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.errOut.Len() < mostErrors {
		p.errOut.WriteString(text)
		p.errOut.WriteByte('\n')
	}
}

// take removes the first report of an event.
func (p *Proc) take(event string) (l line, found, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range p.lines {
		if l.Event == event {
			p.lines = append(p.lines[:i:i], p.lines[i+1:]...)
			return l, true, p.closed
		}
	}
	return line{}, false, p.closed
}

// state is the reports not yet taken and the error output, for a failure's text.
func (p *Proc) state() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	for _, l := range p.lines {
		fmt.Fprintf(&b, "  reported %s %s\n", l.Event, l.Body)
	}
	b.WriteString(p.errOut.String())
	return b.String()
}

// Expect waits for a report of an event and decodes its body into v, unless that
// is nil. Reports of other events stay for later.
func (p *Proc) Expect(event string, v any) {
	p.job.tb.Helper()
	t := time.NewTimer(p.job.left())
	defer t.Stop()
	for grace := false; ; {
		l, found, closed := p.take(event)
		switch {
		case found && v == nil:
			return
		case found:
			if err := json.Unmarshal(l.Body, v); err != nil {
				p.job.tb.Fatalf("rank %d: report %s %s: %v", p.Rank, event, l.Body, err)
			}
			return
		case closed:
			p.job.tb.Fatalf("rank %d ended (%v) and never reported %q\n%s", p.Rank, p.cmd.ProcessState, event, p.state())
		}
		select {
		case <-p.news:
		case <-t.C:
			if !grace {
				// The machine may have stood still: whoever has news gets to tell it.
				grace = true
				t.Reset(grantedGrace)
				continue
			}
			p.job.tb.Fatalf("rank %d did not report %q within the job's deadline\n%s", p.Rank, event, p.state())
		}
	}
}

// ExpectFailure waits for a report whose body is a Failure; nil: no error.
func (p *Proc) ExpectFailure(event string) *Failure {
	p.job.tb.Helper()
	var f *Failure
	p.Expect(event, &f)
	return f
}

// Heard reports whether an event has been reported by now, and takes it.
func (p *Proc) Heard(event string) bool {
	_, found, _ := p.take(event)
	return found
}

// Say says a word to the process.
func (p *Proc) Say(word string) {
	p.job.tb.Helper()
	if _, err := io.WriteString(p.in, word+"\n"); err != nil {
		p.job.tb.Fatalf("rank %d does not listen (%q): %v\n%s", p.Rank, word, err, p.state())
	}
}

// TrySay is Say to a process that may have ended.
func (p *Proc) TrySay(word string) { _, _ = io.WriteString(p.in, word+"\n") }

// Kill ends the process by SIGKILL and waits until it is gone.
func (p *Proc) Kill() {
	p.job.tb.Helper()
	p.killed = true
	p.signal(syscall.SIGKILL)
	p.await()
}

// End is Kill of a process that may end by itself just then.
func (p *Proc) End() {
	p.job.tb.Helper()
	p.killed = true
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.job.tb.Fatalf("rank %d: %v\n%s", p.Rank, err, p.state())
	}
	p.await()
}

// Stop stops the process by SIGSTOP and returns when it does not run any more.
func (p *Proc) Stop() {
	p.job.tb.Helper()
	p.signal(syscall.SIGSTOP)
	for p.runState() != "T" {
		if time.Now().After(p.job.bound) {
			p.job.tb.Fatalf("rank %d did not stop\n%s", p.Rank, p.state())
		}
		time.Sleep(time.Millisecond)
	}
}

// Cont resumes a stopped process by SIGCONT.
func (p *Proc) Cont() {
	p.job.tb.Helper()
	p.signal(syscall.SIGCONT)
}

func (p *Proc) signal(s syscall.Signal) {
	p.job.tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.job.tb.Fatalf("rank %d: %v: %v\n%s", p.Rank, s, err, p.state())
	}
}

// runState is the kernel's letter for what the process does.
func (p *Proc) runState() string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	letter, _, _ := strings.Cut(rest, " ")
	return letter
}

// await waits for the end of the process.
func (p *Proc) await() {
	p.job.tb.Helper()
	t := time.NewTimer(p.job.left() + grantedGrace)
	defer t.Stop()
	select {
	case <-p.gone:
	case <-t.C:
		p.job.tb.Fatalf("rank %d did not end within the job's deadline\n%s", p.Rank, p.state())
	}
}

// WaitDone waits for the end of the process and checks that its role was played
// without an error.
func (p *Proc) WaitDone() {
	p.job.tb.Helper()
	p.await()
	if _, done, _ := p.take(eventDone); !done || !p.cmd.ProcessState.Success() {
		p.job.tb.Fatalf("rank %d failed (%v)\n%s", p.Rank, p.cmd.ProcessState, p.state())
	}
}

// WaitKilled waits for the end of a process that somebody else kills.
func (p *Proc) WaitKilled() {
	p.job.tb.Helper()
	p.killed = true
	p.await()
	if st, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !st.Signaled() || st.Signal() != syscall.SIGKILL {
		p.job.tb.Fatalf("rank %d was not killed: %v\n%s", p.Rank, p.cmd.ProcessState, p.state())
	}
}

// WaitFailed waits for the end of a process whose role gives an error, and
// returns that.
func (p *Proc) WaitFailed() *Failure {
	p.job.tb.Helper()
	p.await()
	l, failed, _ := p.take(eventFailed)
	if !failed {
		p.job.tb.Fatalf("rank %d did not fail (%v)\n%s", p.Rank, p.cmd.ProcessState, p.state())
	}
	f := new(Failure)
	if err := json.Unmarshal(l.Body, f); err != nil {
		p.job.tb.Fatalf("rank %d: %s: %v", p.Rank, l.Body, err)
	}
	return f
}

// reap makes sure of the end of the process; for the end of the test.
func (p *Proc) reap() {
	_ = p.in.Close()
	select {
	case <-p.gone:
		return
	default:
	}
	if p.job.tb.Failed() {
		p.job.tb.Logf("rank %d was still there\n%s", p.Rank, p.state())
	}
	_ = p.cmd.Process.Kill() // it may end by itself just now
	select {
	case <-p.gone:
	case <-time.After(10 * time.Second):
		p.job.tb.Errorf("faultlab: process %d (rank %d) stays", p.PID, p.Rank)
	}
}
