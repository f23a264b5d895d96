package faultlab

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"goshmem/internal/bootstrap"
)

// Spec describes a job.
type Spec struct {
	Role string
	N    int
	Args any // for every process, as JSON

	// Launcher: the test holds the hub, as a launcher does, and the processes
	// find themselves by their environment. Otherwise each must join explicitly.
	Launcher        bool
	FailureDeadline time.Duration // of the launcher's hub
	JoinTimeout     time.Duration // of the launcher's hub
	Secret          []byte        // of a launch

	Env   []string      // more variables; later ones count
	Nice  int           // priority of the processes
	Bound time.Duration // of the whole job; 0: one minute

	// Each, if set, changes the plan of one process.
	Each func(rank int, p *Plan)
}

// Plan is one process of a job.
type Plan struct {
	Role       string
	Rank, Size int
	Rendezvous string
	Nice       int
	Env        []string
	Args       any
	Absent     bool // it is not started
}

// Job is a set of processes that a test has started.
type Job struct {
	Procs      []*Proc // by the order of the plan; nil: absent
	Hub        *bootstrap.Hub
	Rendezvous string

	tb     testing.TB
	bound  time.Time
	shared map[string]bool
	end    chan struct{}
	ended  sync.WaitGroup
}

// Start starts a job. When the test ends, what is left of it is killed, and
// what it left behind in /dev/shm is an error.
func Start(tb testing.TB, spec Spec) *Job {
	tb.Helper()
	if spec.Bound == 0 {
		spec.Bound = time.Minute
	}
	addr, err := bootstrap.NewAddress()
	if err != nil {
		tb.Fatal(err)
	}
	j := &Job{
		Procs: make([]*Proc, spec.N), Rendezvous: addr,
		tb: tb, bound: time.Now().Add(spec.Bound), shared: sharedFiles(), end: make(chan struct{}),
	}
	if spec.Launcher {
		j.serve(spec)
	}
	plans := make([]Plan, spec.N)
	for rank := range plans {
		p := &plans[rank]
		*p = Plan{Role: spec.Role, Rank: rank, Size: spec.N, Rendezvous: addr, Nice: spec.Nice, Args: spec.Args}
		if spec.Launcher {
			l := bootstrap.Launch{
				Rank: rank, Size: spec.N, LocalRank: rank, LocalSize: spec.N,
				Rendezvous: addr, Secret: spec.Secret, HubExternal: true,
			}
			p.Env = l.Env()
		}
		p.Env = append(p.Env, spec.Env...)
		if spec.Each != nil {
			spec.Each(rank, p)
		}
	}
	started := make(chan error)
	j.ended.Add(1)
	go func() {
		defer j.ended.Done()
		// The kernel ends the children with the thread that started them: it
		// must live as long as they.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- j.startAll(spec, plans)
		<-j.end
	}()
	err = <-started
	tb.Cleanup(j.cleanup)
	if err != nil {
		tb.Fatal(err)
	}
	return j
}

func (j *Job) serve(spec Spec) {
	j.tb.Helper()
	hub, err := bootstrap.NewHub(bootstrap.HubConfig{
		Size: spec.N, Holder: bootstrap.HolderLauncher, Secret: spec.Secret,
		FailureDeadline: spec.FailureDeadline, JoinDeadline: spec.JoinTimeout,
	})
	if err != nil {
		j.tb.Fatal(err)
	}
	j.Hub = hub
	j.tb.Cleanup(func() {
		if err := hub.Close(); err != nil {
			j.tb.Errorf("faultlab: the hub: %v", err)
		}
	})
	l, err := bootstrap.Listen(j.Rendezvous)
	if err == nil {
		err = hub.Serve(l)
	}
	if err != nil {
		j.tb.Fatal(err)
	}
}

func (j *Job) startAll(spec Spec, plans []Plan) error {
	for i := range plans {
		if plans[i].Absent {
			continue
		}
		p, err := j.start(spec, &plans[i])
		if err != nil {
			return fmt.Errorf("faultlab: start process %d: %w", i, err)
		}
		j.Procs[i] = p
	}
	return nil
}

func (j *Job) start(spec Spec, plan *Plan) (*Proc, error) {
	args, err := json.Marshal(plan.Args)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(place{
		Role: plan.Role, Rank: plan.Rank, Size: plan.Size, Rendezvous: plan.Rendezvous,
		Launcher: spec.Launcher, Nice: plan.Nice, Bound: spec.Bound + time.Minute, Args: args,
	})
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(environ(), plan.Env...)
	// The race detector's reports come at once: no need to linger for them.
	cmd.Env = append(cmd.Env, envChild+"="+string(text), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return run(j, plan.Rank, cmd)
}

// environ is this process's own environment less what would tell a launch or an
// option.
func environ() []string {
	var out []string
	for _, kv := range bootstrap.WithoutLaunch(os.Environ()) {
		if !strings.HasPrefix(kv, "GOSHMEM_") {
			out = append(out, kv)
		}
	}
	return out
}

// cleanup kills what is left and looks at what the job leaves behind.
func (j *Job) cleanup() {
	for _, p := range j.Procs {
		if p != nil {
			p.reap()
		}
	}
	close(j.end)
	j.ended.Wait()
	for name := range sharedFiles() {
		if !j.shared[name] {
			j.tb.Errorf("faultlab: the job left /dev/shm/%s", name)
		}
	}
}

// WaitAll waits for the end of all processes that were not killed and checks
// that each played its role without an error.
func (j *Job) WaitAll() {
	j.tb.Helper()
	for _, p := range j.Procs {
		if p != nil && !p.killed {
			p.WaitDone()
		}
	}
}

// Say says a word to every process that was not killed.
func (j *Job) Say(word string) {
	j.tb.Helper()
	for _, p := range j.Procs {
		if p != nil && !p.killed {
			p.Say(word)
		}
	}
}

// Expect waits for an event of every process that was not killed.
func (j *Job) Expect(event string) {
	j.tb.Helper()
	for _, p := range j.Procs {
		if p != nil && !p.killed {
			p.Expect(event, nil)
		}
	}
}

// left is the time to the job's deadline.
func (j *Job) left() time.Duration { return max(0, time.Until(j.bound)) }
