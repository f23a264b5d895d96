package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// post is a host with its agent, as the launcher sees it.
type post struct {
	j     *job
	index int
	host  string
	job   assignment
	cmd   *exec.Cmd
	from  *os.File // the agent's reports
	mail  *pump[order]
	in    *window // of input underway
	outs  [2]*pump[word]
	ahead [2]atomic.Int64 // bytes of output that are queued
	heard atomic.Bool
	over  chan struct{} // the agent has ended, and all it said is heard
	procs []*remote     // by place in job.Ranks
	pids  []int         // once they are started

	mu     sync.Mutex
	reaped bool
	hello  bool   // it has said that its PEs have started
	cause  string // why the launcher ended it
	failed *StartError
}

// word is a piece of output, or that a process has no more of it.
type word struct {
	rank  int
	bytes []byte
	quiet *remote
}

// begin starts the agent. Its standard error is the way's to the host.
func (p *post) begin(words []string, patience time.Duration) error {
	path, err := exec.LookPath(words[0])
	if err != nil {
		return err
	}
	var files [6]*os.File // in, out, error: read and write ends
	closeAll := func(ends ...int) {
		for _, i := range ends {
			if files[i] != nil {
				_ = files[i].Close()
			}
		}
	}
	for i := 0; i < 6; i += 2 {
		if files[i], files[i+1], err = os.Pipe(); err != nil {
			closeAll(0, 1, 2, 3, 4, 5)
			return err
		}
	}
	p.cmd = &exec.Cmd{
		Path: path, Args: words, Stdin: files[0], Stdout: files[3], Stderr: files[5],
		Env:         os.Environ(), // the way to a host may be the job that we are in
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	err = p.j.starter.start(p.cmd, nil)
	closeAll(0, 3, 5)
	if err != nil {
		closeAll(1, 2, 4)
		return bare(err)
	}
	p.from = files[2]
	to := mailer[order](files[1])
	go func() {
		<-to.done
		_ = files[1].Close() // its end, for the agent
	}()
	p.mail = to
	for i, o := range []*output{p.j.out, p.j.err} {
		p.outs[i] = newPump(func(w word) bool { p.pass(i, o, w); return true })
		p.j.relays.Go(func() { <-p.outs[i].done })
	}
	said := &relay{
		from: files[4], to: p.j.err, source: agents - p.index, prefix: "[" + p.host + "] ",
		done: make(chan struct{}), over: make(chan struct{}), broken: func(error) {},
	}
	p.j.relays.Go(said.run)
	p.mail.push(order{Job: &p.job})
	go p.listen(said)
	go p.watch(patience)
	return nil
}

// agents as a source of output is the first host's agent; the others' are below.
const agents = -3

// pass hands output on, and tells the agent that there is room for more.
func (p *post) pass(stream int, to *output, w word) {
	if w.quiet != nil {
		if w.quiet.loud.Add(-1) == 0 {
			close(w.quiet.quiet)
		}
		return
	}
	prefix := ""
	if p.j.cfg.Prefix {
		prefix = fmt.Sprintf("[%d] ", w.rank)
	}
	if err := to.write(w.rank, prefix, w.bytes); err != nil {
		p.j.tell(happening{rank: w.rank, err: err})
	}
	p.ahead[stream].Add(-int64(len(w.bytes)))
	var o order
	o.Taken[stream] = len(w.bytes)
	p.mail.push(o)
}

// listen hears the agent out, and its end.
func (p *post) listen(said *relay) {
	defer close(p.over)
	err := p.hearAll()
	if err != nil {
		p.stop(err.Error())
	}
	p.mail.close()
	p.in.end()
	t := time.AfterFunc(agentEnd, func() { p.stop("it did not end") })
	_ = awaitEnd(p.cmd.Process.Pid)
	t.Stop()
	p.kill() // what is left of its group
	werr := p.cmd.Wait()
	p.mu.Lock()
	p.reaped = true
	cause, hello, failed := p.cause, p.hello, p.failed
	p.mu.Unlock()
	said.finish()
	_ = p.from.Close()
	status, how := StatusFailed, "ended"
	if s := p.cmd.ProcessState; s != nil {
		how = s.String()
		switch ws, ok := s.Sys().(syscall.WaitStatus); {
		case ok && ws.Signaled():
			status = statusSignal + int(ws.Signal())
		case s.ExitCode() > 0:
			status = s.ExitCode()
		}
	} else if werr != nil {
		how = werr.Error()
	}
	if cause != "" {
		how += " (" + cause + ")"
	}
	if !hello {
		if failed == nil {
			failed = &StartError{
				Program: p.cmd.Args[0], status: status,
				Err: fmt.Errorf("the agent on %s ended before it started anything: %s", p.host, how),
			}
		}
		p.mu.Lock()
		p.failed = failed
		p.mu.Unlock()
		p.j.tell(happening{post: p})
	}
	for _, x := range p.procs {
		if hello && !x.ended {
			x.ended, x.status, x.how = true, status, fmt.Sprintf("its agent on %s ended: %s", p.host, how)
			p.j.tell(happening{rank: x.rank, ended: true})
			p.hushed(x)
		}
	}
	for _, o := range p.outs {
		o.close()
	}
}

// agentEnd is how long an agent may take to end that has nothing more to say.
const agentEnd = 5 * time.Second

func (p *post) hushed(x *remote) {
	for _, o := range p.outs {
		o.push(word{quiet: x})
	}
}

// hearAll takes reports until there are no more.
func (p *post) hearAll() error {
	in := newLineReader(p.from, reportMax)
	if err := p.greeted(in); err != nil {
		return err
	}
	for {
		line, err := in.next()
		if err != nil {
			return ended(err)
		}
		p.heard.Store(true)
		r, err := decode[report](line)
		if err == nil {
			err = r.check(func(rank int) bool { return p.proc(rank) != nil }, len(p.procs))
		}
		if err == nil {
			err = p.hear(r)
		}
		if err != nil {
			return fmt.Errorf("it sent what makes no sense: %w", err)
		}
	}
}

// ended is nil for the ends that a stream has anyway.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// greeted skips what the way to the host has to say, and shows it.
func (p *post) greeted(in *lineReader) error {
	for room := bannerMax; room > 0; {
		line, err := in.next()
		if err != nil {
			return ended(err)
		}
		p.heard.Store(true)
		if string(line) == greeting {
			return nil
		}
		if strings.HasPrefix(string(line), "goshmem agent ") {
			return fmt.Errorf("it is of another version: %.40q, not %q", line, greeting)
		}
		room -= len(line) + 1
		p.j.sayOf(p, string(line))
	}
	return errors.New("it does not come to the point")
}

func (p *post) proc(rank int) *remote {
	if i, ok := slices.BinarySearch(p.job.Ranks, rank); ok {
		return p.procs[i]
	}
	return nil
}

func (p *post) hear(r *report) error {
	switch {
	case r.PIDs != nil:
		p.mu.Lock()
		twice := p.hello
		p.hello, p.pids = true, r.PIDs
		p.mu.Unlock()
		if twice {
			return errors.New("a second start")
		}
		p.j.tell(happening{post: p})
	case r.Failed != nil:
		p.mu.Lock()
		p.failed = &StartError{Program: p.j.cfg.Program, status: r.Failed.Status, Err: fmt.Errorf("on %s: %s", p.host, r.Failed.Text)}
		p.mu.Unlock()
	case r.Output != nil:
		if p.ahead[r.Output.Stream].Add(int64(len(r.Output.Bytes))) > outputAhead+lineMax {
			return errors.New("more output than there is room for")
		}
		p.outs[r.Output.Stream].push(word{rank: r.Output.Rank, bytes: r.Output.Bytes})
	case r.Ended != nil:
		x := p.proc(r.Ended.Rank)
		if !p.hello || x.ended {
			return fmt.Errorf("an end of pe %d", x.rank)
		}
		x.ended, x.status, x.how = true, r.Ended.Status, r.Ended.How
		p.j.tell(happening{rank: x.rank, ended: true})
	case r.Quiet != nil:
		p.hushed(p.proc(*r.Quiet))
	}
	p.in.give(r.Taken)
	return nil
}

// watch sends signs of life and looks for the agent's. One that does not start
// its PEs in time has failed.
func (p *post) watch(patience time.Duration) {
	beat := time.NewTicker(p.job.Heartbeat)
	defer beat.Stop()
	tick := time.NewTicker(p.job.Deadline / silentTicks)
	defer tick.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for silent := 0; ; {
		select {
		case <-p.over:
			return
		case <-beat.C:
			p.mail.push(order{})
		case <-late.C:
			if !p.started() {
				p.stop(fmt.Sprintf("it started nothing within %v", patience))
			}
		case <-tick.C:
			if silent++; p.heard.Swap(false) || !p.started() {
				silent = 0
			}
			if silent == silentTicks {
				p.stop(fmt.Sprintf("silent for %v", p.job.Deadline))
			}
		}
	}
}

func (p *post) started() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hello
}

// stop ends the agent, for a cause.
func (p *post) stop(cause string) {
	p.mu.Lock()
	if p.cause == "" {
		p.cause = cause
	}
	p.mu.Unlock()
	p.kill()
	// Whoever else holds the pipe has nothing to say.
	_ = p.from.SetReadDeadline(time.Now().Add(afterlife)) // fails where all is over
}

// kill ends the agent's process and its group.
func (p *post) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// pause tells the agent not to take silence amiss.
func (p *post) pause() {
	p.mail.push(order{Pause: true})
	p.mail.flush(lastWords)
}

// dismiss waits for an agent whose orders have ended, and then ends it by force.
func (p *post) dismiss() {
	select {
	case <-p.over:
		return
	case <-time.After(2 * time.Second):
	}
	p.stop("given up")
	<-p.over
}
