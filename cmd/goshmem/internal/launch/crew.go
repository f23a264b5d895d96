package launch

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"

	"goshmem/internal/bootstrap"
)

// happening is what a loop hears.
type happening struct {
	rank  int
	event *bootstrap.Event // of the world
	ended bool             // the process
	quiet bool             // and its output is out
	err   error            // of the output
	post  *post            // an agent has started its PEs, or could not
}

// crew is processes of this host: their starts, their output, their ends.
type crew struct {
	cfg      *Config
	ranks    []int                        // whose they are, ascending
	launch   func(i int) bootstrap.Launch // what the i-th is told
	input    *input                       // of rank 0, if it is one of them
	sinks    [2]sink
	starter  *starter
	children []*child
	heard    chan happening
	stop     chan struct{} // nobody listens to heard any more
	wg       sync.WaitGroup
	relays   sync.WaitGroup
}

func newCrew(cfg *Config) *crew {
	c := &crew{cfg: cfg, input: &input{stop: make(chan struct{})}, heard: make(chan happening, 64), stop: make(chan struct{})}
	for r := range cfg.N {
		c.ranks = append(c.ranks, r)
	}
	return c
}

func (w *crew) tell(h happening) {
	select {
	case w.heard <- h:
	case <-w.stop:
	}
}

// startAll starts them; all, or none is left.
func (w *crew) startAll(path string, env []string, cpus [][]int) error {
	for i, rank := range w.ranks {
		c, err := w.startOne(path, env, i, cpus[i])
		if err != nil {
			for _, c := range w.children {
				c.signal(syscall.SIGKILL)
			}
			for _, c := range w.children {
				_ = awaitEnd(c.cmd.Process.Pid) // killed: it ends
				c.reap()
			}
			w.relays.Wait()
			w.children = nil
			return &StartError{Program: w.cfg.Program, Err: fmt.Errorf("pe %d: %w", rank, err)}
		}
		w.children = append(w.children, c)
	}
	for i, c := range w.children {
		w.wg.Add(1)
		go func() {
			defer w.wg.Done()
			err := awaitEnd(c.cmd.Process.Pid)
			w.tell(happening{rank: w.ranks[i], ended: true, err: err})
		}()
	}
	return nil
}

func (w *crew) startOne(path string, env []string, i int, cpus []int) (*child, error) {
	rank := w.ranks[i]
	var stdin *os.File
	if rank == 0 {
		stdin = w.input.file
	}
	c := &child{cmd: command(path, w.cfg, append(slices.Clone(env), w.launch(i).Env()...), stdin)}
	prefix := ""
	if w.cfg.Prefix {
		prefix = fmt.Sprintf("[%d] ", rank)
	}
	var theirs []*os.File
	release := func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}
	for k, to := range w.sinks {
		r, write, err := os.Pipe()
		if err != nil {
			if k > 0 {
				_ = c.relays[0].from.Close()
			}
			release()
			return nil, err
		}
		theirs = append(theirs, write)
		c.relays[k] = &relay{
			from: r, to: to, source: rank, prefix: prefix, done: make(chan struct{}), over: make(chan struct{}),
			broken: func(err error) { w.tell(happening{rank: rank, err: err}) },
		}
	}
	c.cmd.Stdout, c.cmd.Stderr = theirs[0], theirs[1]
	err := w.starter.start(c.cmd, cpus)
	release()
	if rank == 0 {
		w.input.given()
	}
	if err != nil {
		for _, r := range c.relays {
			_ = r.from.Close()
		}
		return nil, bare(err)
	}
	for _, r := range c.relays {
		w.relays.Add(1)
		go func() {
			defer w.relays.Done()
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
