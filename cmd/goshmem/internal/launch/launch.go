package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"goshmem/internal/bootstrap"
)

const (
	// settleTime bounds the wait for a world to notice the end of its last PE.
	settleTime = 3 * time.Second
	// lastWords bounds the wait for the output of a process that ended, before
	// its end is reported.
	lastWords = 200 * time.Millisecond
)

// Signals are those that Run wants to be given. One that the process was started
// to ignore (nohup, a shell's background job) stays ignored.
func Signals() []os.Signal {
	return slices.DeleteFunc([]os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGCONT,
		syscall.SIGPIPE, // so that output that nobody reads is an error
	}, signal.Ignored)
}

// happening is what the loop of Run hears.
type happening struct {
	rank  int
	event *bootstrap.Event // of the world
	ended bool             // the process
	quiet bool             // and its output is out
	err   error            // of the output
}

// job is a running job.
type job struct {
	cfg      *Config
	policy   *policy
	meeting  *meeting
	starter  *starter
	input    *input
	out, err *output
	children []*child
	heard    chan happening
	stop     chan struct{} // nobody listens to heard any more
	wg       sync.WaitGroup
	relays   sync.WaitGroup
	timer    *time.Timer
	gaveUp   bool
}

// Run runs a job and returns its exit status. With an error nothing was started,
// or what was is gone again: *StartError if it is the program's fault,
// errs.ErrConfig if it is the configuration's. signals are what the process got
// of Signals. When ctx ends, so does the job.
func Run(ctx context.Context, cfg Config, signals <-chan os.Signal) (status int, err error) {
	if err := cfg.check(); err != nil {
		return StatusFailed, err
	}
	if cfg.Stdout == nil {
		cfg.Stdout = io.Discard
	}
	if cfg.Stderr == nil {
		cfg.Stderr = io.Discard
	}
	path, err := lookup(cfg.Program)
	if err != nil {
		return StatusFailed, err
	}
	env, opt, err := cfg.environ(os.Environ())
	if err != nil {
		return StatusFailed, err
	}
	cpus, err := bindings(cfg.Bind, cfg.N)
	if err != nil {
		return StatusFailed, err
	}
	j := &job{
		cfg: &cfg, out: newOutput(cfg.Stdout), err: newOutput(cfg.Stderr),
		heard: make(chan happening, 64), stop: make(chan struct{}),
	}
	if sameFile(cfg.Stdout, cfg.Stderr) {
		j.err = j.out
	}
	for _, w := range opt.Warnings {
		j.say("warning: " + w)
	}
	log := slog.New(slog.DiscardHandler)
	if cfg.Verbose {
		log = slog.New(slog.NewTextHandler(sayWriter{j}, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: undated}))
	}
	if j.meeting, err = newMeeting(cfg.N, opt.Values, log, j.worldEvent); err != nil {
		return StatusFailed, err
	}
	if j.input, err = newInput(cfg.Stdin); err != nil {
		_ = j.meeting.close()
		return StatusFailed, fmt.Errorf("launch: standard input: %w", err)
	}
	j.starter = newStarter()
	defer func() {
		if e := j.end(); err == nil && e != nil {
			status, err = StatusFailed, e
		}
	}()
	if err := j.startAll(path, env, cpus); err != nil {
		return StatusFailed, err
	}
	j.loop(ctx, signals)
	j.drain(ctx, signals)
	return j.policy.exitStatus(), context.Cause(ctx)
}

// startAll starts the PEs; all, or none is left.
func (j *job) startAll(path string, env []string, cpus [][]int) error {
	var pids []int
	for rank := range j.cfg.N {
		c, err := j.startOne(path, env, rank, cpus[rank])
		if err != nil {
			for _, c := range j.children {
				c.signal(syscall.SIGKILL)
			}
			for _, c := range j.children {
				_ = awaitEnd(c.cmd.Process.Pid) // killed: it ends
				c.reap()
			}
			j.relays.Wait()
			return &StartError{Program: j.cfg.Program, Err: fmt.Errorf("pe %d: %w", rank, err)}
		}
		j.children = append(j.children, c)
		pids = append(pids, c.cmd.Process.Pid)
		j.verbose("pe %d (process %d): started", rank, c.cmd.Process.Pid)
	}
	j.policy = newPolicy(pids, j.cfg.Grace, j.cfg.Timeout)
	for rank, pid := range pids {
		j.wg.Add(1)
		go func() {
			defer j.wg.Done()
			err := awaitEnd(pid)
			j.tell(happening{rank: rank, ended: true, err: err})
		}()
	}
	return nil
}

func (j *job) startOne(path string, env []string, rank int, cpus []int) (*child, error) {
	var stdin *os.File
	if rank == 0 {
		stdin = j.input.file
	}
	c := &child{cmd: command(path, j.cfg, append(slices.Clone(env), j.meeting.launch(rank).Env()...), stdin)}
	prefix := ""
	if j.cfg.Prefix {
		prefix = fmt.Sprintf("[%d] ", rank)
	}
	var theirs []*os.File
	release := func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}
	for i, to := range []*output{j.out, j.err} {
		r, w, err := os.Pipe()
		if err != nil {
			if i > 0 {
				_ = c.relays[0].from.Close()
			}
			release()
			return nil, err
		}
		theirs = append(theirs, w)
		c.relays[i] = &relay{
			from: r, to: to, source: rank, prefix: prefix, done: make(chan struct{}), over: make(chan struct{}),
			broken: func(err error) { j.tell(happening{rank: rank, err: err}) },
		}
	}
	c.cmd.Stdout, c.cmd.Stderr = theirs[0], theirs[1]
	err := j.starter.start(c.cmd, cpus)
	release()
	if rank == 0 {
		j.input.given()
	}
	if err != nil {
		for _, r := range c.relays {
			_ = r.from.Close()
		}
		return nil, bare(err)
	}
	for _, r := range c.relays {
		j.relays.Add(1)
		go func() {
			defer j.relays.Done()
			r.run()
		}()
	}
	return c, nil
}

// bare strips what the message of StartError says anyway.
func bare(err error) error {
	if e, ok := err.(*os.PathError); ok && strings.HasSuffix(e.Op, "exec") {
		return e.Err
	}
	if e, ok := err.(*exec.Error); ok {
		return e.Err
	}
	return err
}

// worldEvent is called by the meeting.
func (j *job) worldEvent(e bootstrap.Event) { j.tell(happening{rank: e.PE, event: &e}) }

func (j *job) tell(h happening) {
	select {
	case j.heard <- h:
	case <-j.stop:
	}
}

// loop goes on until all processes have ended and their world has noticed, or
// the job was given up.
func (j *job) loop(ctx context.Context, signals <-chan os.Signal) {
	j.timer = time.NewTimer(time.Hour)
	j.timer.Stop()
	defer j.timer.Stop()
	var expired <-chan time.Time
	if j.cfg.Timeout > 0 {
		t := time.NewTimer(j.cfg.Timeout)
		defer t.Stop()
		expired = t.C
	}
	var settled <-chan struct{}
	var patience <-chan time.Time
	cancelled := ctx.Done()
	for !j.gaveUp {
		select {
		case h := <-j.heard:
			j.hear(h)
			if h.quiet && j.policy.left == 0 {
				settled = j.meeting.settled()
				t := time.NewTimer(settleTime)
				defer t.Stop()
				patience = t.C
			}
		case s := <-signals:
			if sig, ok := s.(syscall.Signal); ok {
				j.signal(sig)
			}
		case <-j.timer.C:
			j.do(j.policy.timer())
		case <-expired:
			j.do(j.policy.expired())
		case <-cancelled:
			cancelled = nil
			j.do(j.policy.aborted())
		case <-settled:
			// The events that came before are in the channel.
			for {
				select {
				case h := <-j.heard:
					j.hear(h)
					continue
				default:
				}
				return
			}
		case <-patience:
			return
		}
	}
}

func (j *job) hear(h happening) {
	switch {
	case h.ended:
		c := j.children[h.rank]
		c.reap()
		j.meeting.gone(h.rank, c.how)
		j.wg.Add(1)
		go func() {
			defer j.wg.Done()
			c.hush(lastWords)
			j.tell(happening{rank: h.rank, quiet: true})
		}()
	case h.quiet:
		c := j.children[h.rank]
		j.verbose("pe %d (process %d): ended: %s", h.rank, c.cmd.Process.Pid, c.how)
		j.do(j.policy.exited(h.rank, c.status, c.how))
	case h.err != nil:
		if !errors.Is(h.err, syscall.EPIPE) {
			j.say("output: " + h.err.Error())
		}
		j.do(j.policy.aborted())
	case h.event.Kind == bootstrap.EventLost:
		j.do(j.policy.lost(h.rank, h.event.Cause))
	case h.event.Kind == bootstrap.EventJoined:
		j.verbose("pe %d: joined", h.rank)
	case h.event.Kind == bootstrap.EventGoodbye:
		j.verbose("pe %d: left", h.rank)
	}
}

// signal handles stopping and going on, which are no end; the rest is policy.
func (j *job) signal(sig syscall.Signal) {
	switch sig {
	case syscall.SIGPIPE:
		// The write that raised it has failed too.
	case syscall.SIGTSTP:
		j.signalAlive(syscall.SIGSTOP)
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP) // a SIGCONT will come
	case syscall.SIGCONT:
		j.signalAlive(syscall.SIGCONT)
	default:
		j.do(j.policy.signalled(sig))
	}
}

func (j *job) signalAlive(sig syscall.Signal) {
	for _, r := range j.policy.alive() {
		j.children[r].signal(sig)
	}
}

// do carries actions out.
func (j *job) do(actions []action) {
	for _, a := range actions {
		switch a.kind {
		case actSignal:
			for _, r := range a.ranks {
				j.children[r].signal(a.sig)
			}
		case actArm:
			j.timer.Reset(a.after)
		case actSay:
			j.say(a.text)
		case actAbandon:
			j.gaveUp = true
		}
	}
}

// drain waits for the last output. Whoever reads it may take their time; a
// signal ends the wait.
func (j *job) drain(ctx context.Context, signals <-chan os.Signal) {
	if j.gaveUp {
		return
	}
	done := make(chan struct{})
	go func() {
		j.relays.Wait()
		close(done)
	}()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case h := <-j.heard:
			j.hear(h)
		case s := <-signals:
			if s != syscall.SIGCONT && s != syscall.SIGPIPE {
				return
			}
		}
	}
}

// end releases what the job held.
func (j *job) end() error {
	close(j.stop)
	err := j.meeting.close()
	j.starter.stop() // and with it what was given up
	if !j.gaveUp {
		j.wg.Wait()
	}
	j.input.close()
	return err
}

func (j *job) say(text string) {
	_ = j.err.write(launcher, "", []byte("goshmem: "+text+"\n")) // else there is nowhere to say it
}

func (j *job) verbose(format string, args ...any) {
	if j.cfg.Verbose {
		j.say(fmt.Sprintf(format, args...))
	}
}

// undated drops time and level.
func undated(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
		return slog.Attr{}
	}
	return a
}

// sayWriter is a log's way to say.
type sayWriter struct{ j *job }

func (w sayWriter) Write(b []byte) (int, error) {
	w.j.say(strings.TrimSpace(string(b)))
	return len(b), nil
}
