package faultlab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"goshmem/internal/options"
)

// envChild holds a child's place as JSON. The prefix is one that the runtime
// does not warn of.
const envChild = options.TestPrefix + "CHILD"

// place is what a child is told of itself.
type place struct {
	Role       string
	Rank, Size int
	Rendezvous string
	Launcher   bool
	Nice       int
	Bound      time.Duration
	Args       json.RawMessage
}

// Role is what a child does. Its error is reported, and is the exit status 1.
type Role func(c *Child) error

// Child is a process's own view of its job.
type Child struct {
	Rank, Size int
	Rendezvous string // where the job's PEs may meet; under a launcher its hub is there
	Launcher   bool   // the environment tells a launch, and the test holds the hub

	args  json.RawMessage
	bound time.Time
	words chan string

	mu  sync.Mutex
	out *json.Encoder
}

// line is one report.
type line struct {
	Event string
	Body  json.RawMessage `json:",omitempty"`
}

// The events that Hook reports itself.
const (
	eventDone   = "done"
	eventFailed = "failed"
)

// Hook plays the role of a child, if this process is one; then it reports true
// and the status to exit with. TestMain calls it first.
func Hook(roles map[string]Role) (code int, child bool) {
	text, ok := os.LookupEnv(envChild)
	if !ok {
		return 0, false
	}
	return play(text, roles, os.Stdin, os.Stdout), true
}

func play(text string, roles map[string]Role, in io.Reader, out io.Writer) int {
	c := &Child{words: make(chan string, 64), out: json.NewEncoder(out)}
	var p place
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		c.Report(eventFailed, Describe(fmt.Errorf("faultlab: %s: %w", envChild, err)))
		return 1
	}
	c.Rank, c.Size, c.Rendezvous, c.Launcher = p.Rank, p.Size, p.Rendezvous, p.Launcher
	c.args, c.bound = p.Args, time.Now().Add(p.Bound)
	go c.listen(in)
	role, ok := roles[p.Role]
	if !ok {
		c.Report(eventFailed, Describe(fmt.Errorf("faultlab: no role %q", p.Role)))
		return 1
	}
	err := renice(p.Nice)
	if err == nil {
		err = role(c)
	}
	if err != nil {
		c.Report(eventFailed, Describe(err))
		return 1
	}
	c.Report(eventDone, nil)
	return 0
}

// listen takes the test's words, one a line.
func (c *Child) listen(in io.Reader) {
	defer close(c.words)
	for s := bufio.NewScanner(in); s.Scan(); {
		c.words <- s.Text()
	}
}

// Args decodes what the test gave to this process.
func (c *Child) Args(v any) error { return json.Unmarshal(c.args, v) }

// Context ends with the job's deadline.
func (c *Child) Context() (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.Background(), c.bound)
}

// Report tells the test that something happened; body may be nil. Any goroutine
// may call it.
func (c *Child) Report(event string, body any) {
	l := line{Event: event}
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			l.Event, b = eventFailed, []byte(strconv.Quote(err.Error()))
		}
		l.Body = b
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// A test that has gone takes no reports, and ends this process soon.
	_ = c.out.Encode(l)
}

// Await waits until the test says one of the words, and tells which; other words
// are dropped.
func (c *Child) Await(words ...string) (string, error) {
	ctx, cancel := c.Context()
	defer cancel()
	for {
		select {
		case w, ok := <-c.words:
			if !ok {
				return "", fmt.Errorf("faultlab: the test has gone, no %q came", words)
			}
			if slices.Contains(words, w) {
				return w, nil
			}
		case <-ctx.Done():
			return "", fmt.Errorf("faultlab: no %q came within the job's deadline", words)
		}
	}
}

// renice lowers the priority of all threads, and so of those that they start.
func renice(nice int) error {
	if nice == 0 {
		return nil
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); err != nil && err != unix.ESRCH {
			return os.NewSyscallError("setpriority", err)
		}
	}
	return nil
}
