package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"goshmem/internal/bootstrap"
	"goshmem/internal/options"
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

// job is a running job.
type job struct {
	*crew
	policy   *policy
	meeting  *meeting
	out, err *output
	procs    []handle // by rank
	posts    []*post  // of the hosts
	notStart *StartError
	timer    *time.Timer
	gaveUp   bool
}

// handle is a PE's process, here or on another host.
type handle interface {
	signal(syscall.Signal)            // to its group
	reap()                            // it has ended
	result() (status int, how string) // once it is reaped
	hush(long time.Duration)          // wait for its output
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
	env, opt, err := cfg.environ(os.Environ())
	if err != nil {
		return StatusFailed, err
	}
	j := &job{crew: newCrew(&cfg), out: newOutput(cfg.Stdout), err: newOutput(cfg.Stderr)}
	if sameFile(cfg.Stdout, cfg.Stderr) {
		j.err = j.out
	}
	j.sinks = [2]sink{j.out, j.err}
	for _, w := range opt.Warnings {
		j.say("warning: " + w)
	}
	log := slog.New(slog.DiscardHandler)
	if cfg.Verbose {
		log = slog.New(slog.NewTextHandler(sayWriter{j}, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: undated}))
	}
	begin := j.beginHere
	if len(cfg.Hosts) > 0 {
		begin = j.beginOnHosts
	}
	if err := begin(ctx, env, opt.Values, log); err != nil {
		return StatusFailed, err
	}
	defer func() {
		if e := j.end(); err == nil && e != nil {
			status, err = StatusFailed, e
		}
	}()
	j.loop(ctx, signals)
	j.drain(ctx, signals)
	if j.notStart != nil {
		return StatusFailed, j.notStart
	}
	return j.policy.exitStatus(), context.Cause(ctx)
}

// beginHere starts the PEs as processes of this host; all, or none is left.
func (j *job) beginHere(_ context.Context, env []string, vals options.Values, log *slog.Logger) error {
	path, err := lookup(j.cfg.Program, j.cfg.Dir)
	if err != nil {
		return err
	}
	cpus, err := bindings(j.cfg.Bind, j.cfg.N)
	if err != nil {
		return err
	}
	if j.cfg.Rendezvous == "" {
		j.meeting, err = newMeeting(j.cfg.N, vals, log, j.worldEvent)
	} else {
		j.meeting, err = j.meetAt(vals, log)
	}
	if err != nil {
		return err
	}
	if j.input, err = newInput(j.cfg.Stdin); err != nil {
		_ = j.meeting.close()
		return fmt.Errorf("launch: standard input: %w", err)
	}
	j.launch = j.meeting.launch
	j.starter = newStarter()
	if err := j.startAll(path, env, cpus); err != nil {
		return errors.Join(err, j.end())
	}
	var pids []int
	for rank, c := range j.children {
		j.procs = append(j.procs, c)
		pids = append(pids, c.cmd.Process.Pid)
		j.verbose("pe %d (process %d): started", rank, c.cmd.Process.Pid)
	}
	j.policy = newPolicy(pids, j.cfg.Grace, j.cfg.Timeout)
	return nil
}

// meetAt opens the rendezvous that was asked for, and says where.
func (j *job) meetAt(vals options.Values, log *slog.Logger) (*meeting, error) {
	l, bound, err := bootstrap.ListenAt(j.cfg.Rendezvous, vals.Interface)
	if err != nil {
		return nil, err
	}
	if bound.Addr.IsValid() {
		j.say(fmt.Sprintf("the PEs meet at %s (%v)", j.cfg.Rendezvous, bound))
	}
	return meetAt(l, j.cfg.Rendezvous, j.cfg.N, vals, log, j.worldEvent)
}

// worldEvent is called by the meeting.
func (j *job) worldEvent(e bootstrap.Event) { j.tell(happening{rank: e.PE, event: &e}) }

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
			if (h.quiet || h.post != nil) && j.policy.left == 0 {
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
		c := j.procs[h.rank]
		c.reap()
		_, how := c.result()
		j.meeting.gone(h.rank, how)
		j.wg.Add(1)
		go func() {
			defer j.wg.Done()
			c.hush(lastWords)
			j.tell(happening{rank: h.rank, quiet: true})
		}()
	case h.quiet:
		status, how := j.procs[h.rank].result()
		x := &j.policy.procs[h.rank]
		j.verbose("pe %d (process %d%s): ended: %s", h.rank, x.pid, x.on, how)
		j.do(j.policy.exited(h.rank, status, how))
	case h.post != nil:
		j.hearPost(h)
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
		for _, p := range j.posts {
			p.pause()
		}
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP) // a SIGCONT will come
	case syscall.SIGCONT:
		for _, p := range j.posts {
			p.mail.push(order{Resume: true})
		}
		j.signalAlive(syscall.SIGCONT)
	default:
		j.do(j.policy.signalled(sig))
	}
}

func (j *job) signalAlive(sig syscall.Signal) {
	for _, r := range j.policy.alive() {
		j.procs[r].signal(sig)
	}
}

// do carries actions out.
func (j *job) do(actions []action) {
	for _, a := range actions {
		switch a.kind {
		case actSignal:
			for _, r := range a.ranks {
				j.procs[r].signal(a.sig)
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
	for _, p := range j.posts {
		p.mail.push(order{Finish: true})
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
	for _, p := range j.posts {
		p.mail.close()
	}
	for _, p := range j.posts {
		p.dismiss()
	}
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
