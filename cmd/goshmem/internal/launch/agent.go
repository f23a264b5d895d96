package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"goshmem/internal/bootstrap"
	"goshmem/internal/options"
)

const (
	// assignTime is how long an agent waits for its assignment.
	assignTime = time.Minute
	// silentTicks is how many of its own ticks one side of the way to a host
	// waits for a sign of life of the other. Ticks and not time: a process that
	// was stopped has seen few.
	silentTicks = 16
)

// agent runs the PEs of one host for a launcher on another one. Should the
// launcher be gone, so are they.
type agent struct {
	*crew
	job    *assignment
	mail   *pump[report]
	ahead  [2]*window
	feed   *pump[[]byte] // rank 0's input
	silent int
	paused bool
	over   chan struct{} // all output is out
}

// Agent is the command that a launcher starts on each of its hosts: it takes
// orders from in and reports to out.
func Agent(in io.Reader, out io.WriteCloser) error {
	a := &agent{ahead: [2]*window{newWindow(outputAhead), newWindow(outputAhead)}, over: make(chan struct{})}
	defer func() { _ = out.Close() }()
	if _, err := fmt.Fprintln(out, greeting); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	orders := make(chan *order)
	stop := make(chan struct{})
	defer close(stop)
	go readOrders(in, orders, stop)
	select {
	case o := <-orders:
		if o == nil || o.Job == nil {
			return errors.New("agent: no assignment came")
		}
		a.job = o.Job
	case <-time.After(assignTime):
		return errors.New("agent: no assignment came in time")
	}
	if err := a.job.check(); err != nil {
		return fmt.Errorf("agent: the assignment is none: %w", err)
	}
	a.mail = mailer[report](out)
	defer func() {
		a.mail.close()
		select {
		case <-a.mail.done:
		case <-time.After(time.Second): // nobody reads
		}
	}()
	defer a.end()
	if err := a.begin(); err != nil {
		f := &failure{Text: err.Error(), Status: StatusFailed}
		if e, ok := errors.AsType[*StartError](err); ok {
			f.Text, f.Status = e.Err.Error(), e.Status()
		}
		a.mail.push(report{Failed: f})
		return nil
	}
	return a.loop(orders)
}

// readOrders passes orders on; nil is their end.
func readOrders(in io.Reader, orders chan<- *order, stop <-chan struct{}) {
	r := newLineReader(in, orderMax)
	for {
		var o *order
		line, err := r.next()
		if err == nil {
			o, err = decode[order](line)
		}
		if err != nil {
			o = nil
		}
		select {
		case orders <- o:
		case <-stop:
			return
		}
		if o == nil {
			return
		}
	}
}

// begin starts the PEs and tells who they are.
func (a *agent) begin() error {
	job := a.job
	cfg := &Config{Program: job.Program, Args: job.Args, Bind: job.Bind}
	if job.Dir != "" {
		// A relative program is meant from there.
		if err := os.Chdir(job.Dir); err != nil {
			return fmt.Errorf("directory: %w", err)
		}
	}
	a.crew = newCrew(cfg)
	a.ranks = job.Ranks
	a.sinks = [2]sink{&outbox{a, 0}, &outbox{a, 1}}
	a.launch = func(i int) bootstrap.Launch {
		return bootstrap.Launch{
			Rank: job.Ranks[i], Size: job.Size, LocalRank: i, LocalSize: len(job.Ranks),
			Rendezvous: job.Rendezvous, Secret: job.Secret, HubExternal: true,
		}
	}
	env := append(bootstrap.WithoutLaunch(os.Environ()), job.Env...)
	if _, err := options.Resolve(options.Values{}, env); err != nil {
		return err
	}
	path, err := lookup(job.Program, "")
	if err != nil {
		return err
	}
	cpus, err := bindings(job.Bind, len(job.Ranks))
	if err != nil {
		return err
	}
	if err := a.takeInput(); err != nil {
		return err
	}
	a.starter = newStarter()
	if err := a.startAll(path, env, cpus); err != nil {
		return err
	}
	var pids []int
	for _, c := range a.children {
		pids = append(pids, c.cmd.Process.Pid)
	}
	a.mail.push(report{PIDs: pids})
	return nil
}

// takeInput makes the pipe that rank 0 reads what the launcher sends.
func (a *agent) takeInput() error {
	if !a.job.HasInput || a.ranks[0] != 0 {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	a.input = &input{file: r, done: make(chan struct{}), stop: make(chan struct{})}
	a.feed = newPump(func(b []byte) bool {
		_, err := w.Write(b)
		a.mail.push(report{Taken: len(b)})
		return err == nil // else rank 0 has ended
	})
	go func() {
		defer close(a.input.done)
		<-a.feed.done
		_ = w.Close()
	}()
	return nil
}

// outbox sends what a PE wrote to the launcher, which bounds what is underway.
type outbox struct {
	a      *agent
	stream int
}

func (o *outbox) write(rank int, _ string, line []byte) error {
	if len(line) > 0 && o.a.ahead[o.stream].take(len(line)) {
		o.a.mail.push(report{Output: &piece{rank, o.stream, slices.Clone(line)}})
	}
	return nil
}

// loop goes on until the launcher has no more use for the agent, or is gone.
func (a *agent) loop(orders <-chan *order) error {
	beat := time.NewTicker(a.job.Heartbeat)
	defer beat.Stop()
	tick := time.NewTicker(a.job.Deadline / silentTicks)
	defer tick.Stop()
	for {
		select {
		case o := <-orders:
			if o == nil {
				return a.orphaned("is gone")
			}
			a.obey(o)
		case h := <-a.heard:
			a.hear(h)
		case <-beat.C:
			a.mail.push(report{})
		case <-tick.C:
			if a.silent++; a.silent >= silentTicks && !a.paused {
				return a.orphaned("was silent for " + a.job.Deadline.String())
			}
		case <-a.over:
			return nil
		}
	}
}

func (a *agent) obey(o *order) {
	a.silent, a.paused = 0, (a.paused || o.Pause) && !o.Resume
	for i, n := range o.Taken {
		a.ahead[i].give(max(0, n))
	}
	if o.Signal > 0 {
		for _, r := range o.Ranks {
			if c := a.child(r); c != nil {
				c.signal(o.Signal)
			}
		}
	}
	if a.feed != nil && len(o.Input) > 0 {
		a.feed.push(o.Input)
	}
	if a.feed != nil && o.InputEnd {
		a.feed.close()
	}
	if o.Finish {
		go func() {
			a.relays.Wait()
			close(a.over)
		}()
	}
}

func (a *agent) child(rank int) *child {
	if i, ok := slices.BinarySearch(a.ranks, rank); ok {
		return a.children[i]
	}
	return nil
}

func (a *agent) hear(h happening) {
	switch {
	case h.ended:
		c := a.child(h.rank)
		c.reap()
		a.mail.push(report{Ended: &demise{h.rank, c.status, c.how}})
		a.wg.Add(1)
		go func() {
			defer a.wg.Done()
			c.hush(lastWords)
			a.tell(happening{rank: h.rank, quiet: true})
		}()
	case h.quiet:
		a.mail.push(report{Quiet: &h.rank})
	}
}

// orphaned is why an agent ends that its launcher has not dismissed.
func (a *agent) orphaned(why string) error {
	left := 0
	for _, c := range a.children {
		if !c.reaped {
			left++
			c.signal(syscall.SIGKILL)
		}
	}
	if left == 0 {
		return nil
	}
	return fmt.Errorf("agent: the launcher %s: %d PEs killed", why, left)
}

// end releases what the agent holds; PEs that are left are killed with it.
func (a *agent) end() {
	for _, w := range a.ahead {
		w.end()
	}
	if a.crew == nil || a.starter == nil {
		return
	}
	close(a.stop)
	for _, c := range a.children {
		c.signal(syscall.SIGKILL)
	}
	a.starter.stop()
	for _, c := range a.children {
		if !c.reaped {
			_ = awaitEnd(c.cmd.Process.Pid)
			c.reap()
		}
	}
	a.wg.Wait()
	if a.feed != nil {
		a.feed.close()
	}
	a.input.close()
}
