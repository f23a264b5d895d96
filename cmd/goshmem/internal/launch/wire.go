package launch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"syscall"
	"time"

	"goshmem/internal/bootstrap"
)

// Launcher and agent talk in lines of JSON over the agent's standard input and
// output. The first line of an agent is greeting; what comes before it is what
// the way to the host had to say. An empty object is a sign of life.
const (
	greeting    = "goshmem agent 1"
	reportMax   = 2*lineMax + 4<<10 // bytes of a line from an agent: a piece of output in base64
	orderMax    = 16 << 20          // bytes of a line to an agent: arguments and environment
	bannerMax   = 64 << 10          // bytes before the greeting
	outputAhead = 1 << 20           // bytes of one stream on their way from an agent
	inputAhead  = 256 << 10         // bytes of input on their way to one
)

// order is what a launcher says to an agent.
type order struct {
	Job      *assignment    `json:"job,omitempty"`    // first of all
	Signal   syscall.Signal `json:"signal,omitempty"` // to
	Ranks    []int          `json:"ranks,omitempty"`
	Input    []byte         `json:"input,omitempty"` // for rank 0
	InputEnd bool           `json:"inputEnd,omitempty"`
	Taken    [2]int         `json:"taken,omitzero"`   // bytes of output and error output that were passed on
	Pause    bool           `json:"pause,omitempty"`  // nothing may come until
	Resume   bool           `json:"resume,omitempty"` // this
	Finish   bool           `json:"finish,omitempty"` // all have ended: so do you
}

// assignment is an agent's part of a job.
type assignment struct {
	Ranks      []int         `json:"ranks"`
	Size       int           `json:"size"`
	Rendezvous string        `json:"rendezvous"`
	Secret     []byte        `json:"secret"`
	Program    string        `json:"program"`
	Args       []string      `json:"args,omitempty"`
	Env        []string      `json:"env,omitempty"`
	Dir        string        `json:"dir,omitempty"`
	Bind       Bind          `json:"bind"`
	HasInput   bool          `json:"hasInput,omitempty"`
	Heartbeat  time.Duration `json:"heartbeat"`
	Deadline   time.Duration `json:"deadline"` // silence that means an end
}

func (a *assignment) check() error {
	switch {
	case a.Size < 1 || a.Size > bootstrap.MaxSize || len(a.Ranks) == 0 || len(a.Ranks) > a.Size:
		return fmt.Errorf("%d ranks of %d", len(a.Ranks), a.Size)
	case a.Program == "":
		return errors.New("no program")
	case a.Heartbeat <= 0 || a.Deadline < silentTicks:
		return fmt.Errorf("heartbeat %v, deadline %v", a.Heartbeat, a.Deadline)
	}
	for i, r := range a.Ranks {
		if r < 0 || r >= a.Size || i > 0 && r <= a.Ranks[i-1] {
			return fmt.Errorf("ranks %v of %d", a.Ranks, a.Size)
		}
	}
	return bootstrap.CheckAddress(a.Rendezvous)
}

// report is what an agent says.
type report struct {
	PIDs   []int    `json:"pids,omitempty"` // all have been started
	Failed *failure `json:"failed,omitempty"`
	Output *piece   `json:"output,omitempty"`
	Ended  *demise  `json:"ended,omitempty"`
	Quiet  *int     `json:"quiet,omitempty"` // the output of this rank, which has ended, is out
	Taken  int      `json:"taken,omitempty"` // bytes of input that were passed on
}

// failure says why nothing was started.
type failure struct {
	Text   string `json:"text"`
	Status int    `json:"status"`
}

// piece is (part of) a line of output.
type piece struct {
	Rank   int    `json:"rank"`
	Stream int    `json:"stream"` // 0: output, 1: error output
	Bytes  []byte `json:"bytes"`
}

// demise is the end of a process.
type demise struct {
	Rank   int    `json:"rank"`
	Status int    `json:"status"`
	How    string `json:"how"`
}

// check refuses what an agent with these ranks cannot have said.
func (r *report) check(has func(rank int) bool, n int) error {
	switch {
	case r.PIDs != nil && len(r.PIDs) != n:
		return fmt.Errorf("%d processes, not %d", len(r.PIDs), n)
	case r.Output != nil && (!has(r.Output.Rank) || r.Output.Stream < 0 || r.Output.Stream > 1):
		return fmt.Errorf("output %d of pe %d", r.Output.Stream, r.Output.Rank)
	case r.Ended != nil && (!has(r.Ended.Rank) || r.Ended.Status < 0 || r.Ended.Status > math.MaxUint8):
		return fmt.Errorf("pe %d ended with %d", r.Ended.Rank, r.Ended.Status)
	case r.Quiet != nil && !has(*r.Quiet):
		return fmt.Errorf("pe %d is quiet", *r.Quiet)
	case r.Failed != nil && (r.Failed.Status < 1 || r.Failed.Status > math.MaxUint8):
		return fmt.Errorf("a failure with status %d", r.Failed.Status)
	case r.Taken < 0:
		return fmt.Errorf("%d bytes of input taken", r.Taken)
	}
	return nil
}

// lineReader reads lines of at most max bytes.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, max int) *lineReader {
	return &lineReader{bufio.NewReaderSize(r, lineMax), max}
}

// next is the next line, without its end.
func (l *lineReader) next() ([]byte, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(part) > l.max {
			return nil, fmt.Errorf("a line of over %d bytes", l.max)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			if err == io.EOF && len(line) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// decode reads a line strictly.
func decode[T any](line []byte) (*T, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	v := new(T)
	if err := d.Decode(v); err != nil {
		return nil, fmt.Errorf("not understood: %w", err)
	}
	if d.More() {
		return nil, errors.New("not understood: more than one object")
	}
	return v, nil
}

// pump hands items to a function, in order, from a goroutine of its own, so that
// whoever pushes never waits. It ends when it is closed and empty, or when the
// function gives false.
type pump[T any] struct {
	mu     sync.Mutex
	queue  []T
	closed bool
	idle   bool
	wake   chan struct{} // capacity 1
	done   chan struct{}
}

func newPump[T any](do func(T) bool) *pump[T] {
	p := &pump[T]{idle: true, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go p.run(do)
	return p
}

func (p *pump[T]) push(v T) {
	p.mu.Lock()
	if !p.closed {
		p.queue, p.idle = append(p.queue, v), false
	}
	p.mu.Unlock()
	p.ring()
}

func (p *pump[T]) ring() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// close lets the pump end behind what is queued. It does not wait.
func (p *pump[T]) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.ring()
}

// flush waits, at most long, until nothing is queued or being done.
func (p *pump[T]) flush(long time.Duration) {
	for until := time.Now().Add(long); time.Now().Before(until); time.Sleep(time.Millisecond) {
		p.mu.Lock()
		idle := p.idle
		p.mu.Unlock()
		if idle {
			return
		}
	}
}

func (p *pump[T]) run(do func(T) bool) {
	defer close(p.done)
	for range p.wake {
		p.mu.Lock()
		queue, closed := p.queue, p.closed
		p.queue = nil
		p.mu.Unlock()
		for _, v := range queue {
			if !do(v) {
				p.mu.Lock()
				p.queue, p.closed, p.idle = nil, true, true
				p.mu.Unlock()
				return
			}
		}
		p.mu.Lock()
		p.idle = len(p.queue) == 0
		p.mu.Unlock()
		if closed {
			return
		}
	}
}

// mailer is a pump that writes lines of JSON.
func mailer[T any](w io.Writer) *pump[T] {
	return newPump(func(v T) bool {
		b, err := json.Marshal(v)
		if err == nil {
			_, err = w.Write(append(b, '\n'))
		}
		return err == nil
	})
}

// window bounds bytes that are underway.
type window struct {
	mu   sync.Mutex
	cond *sync.Cond
	room int
	over bool
}

func newWindow(room int) *window {
	w := &window{room: room}
	w.cond = sync.NewCond(&w.mu)
	return w
}

// take waits for room; n may be more than there will ever be. false: it is over.
func (w *window) take(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.room <= 0 && !w.over {
		w.cond.Wait()
	}
	w.room -= n
	return !w.over
}

func (w *window) give(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.room += n
	w.cond.Broadcast()
}

// end releases all who wait.
func (w *window) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.cond.Broadcast()
}
