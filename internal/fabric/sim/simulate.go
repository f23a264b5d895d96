package sim

import (
	"container/heap"
	"fmt"
	"slices"
	"time"

	"goshmem/internal/errs"
)

// Message is one message of a schedule. It may be posted when all messages of
// After (indices in the schedule, in any order) are known to be complete at its
// source: those to Src when they are there, those from Src when their
// acknowledgement has come back.
type Message struct {
	Src, Dst int
	Bytes    int64
	After    []int
}

// Model is where a schedule runs.
type Model struct {
	Node    []int // of each PE
	Sharing Sharing
	Net     Link // between nodes
	// Local is what copies within a node cost: the processor of the source does
	// them, one after the other, besides posting.
	Local Link
}

// Result is when everything happened, from the beginning.
type Result struct {
	Begin []time.Duration // by message: when its source could post it
	Done  []time.Duration // by message: when its last byte was there
	PE    []time.Duration // by PE: when the last message to it was there
	Total time.Duration   // when the last message was there
}

// Simulate runs a schedule. Each processor posts what is ready in the order in
// which it became so, by index where that is equal. The error is ErrConfig for
// a schedule or model that makes no sense, a circle of dependencies included.
func Simulate(schedule []Message, m Model) (Result, error) {
	s, err := newSimulation(schedule, m)
	if err != nil {
		return Result{}, err
	}
	for len(s.events) > 0 {
		s.step(heap.Pop(&s.events).(event))
	}
	if i := slices.IndexFunc(s.missing, func(n int) bool { return n > 0 }); i >= 0 {
		return Result{}, fmt.Errorf("sim: message %d waits in a circle: %w", i, errs.ErrConfig)
	}
	return s.res, nil
}

// stage is what happens to a message; of events at one time the earlier stage of
// none waits for the later of another, so any fixed order does.
type stage uint8

const (
	arrived  stage = iota // all of it is there
	entering              // its first byte comes to the destination's port
	posted                // it comes to the source's port
	ready                 // its source may post it
)

type event struct {
	at    time.Duration
	stage stage
	msg   int
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	a, b := e[i], e[j]
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.stage != b.stage:
		return a.stage < b.stage
	}
	return a.msg < b.msg
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

type simulation struct {
	msgs    []Message
	model   Model
	ports   *Ports
	events  events
	missing []int   // by message: dependencies not yet met
	waiters [][]int // by message: who waits for it
	res     Result
}

func newSimulation(schedule []Message, m Model) (*simulation, error) {
	if err := m.Local.Check(); err != nil {
		return nil, err
	}
	ports, err := NewPorts(m.Net, m.Sharing, m.Node)
	if err != nil {
		return nil, err
	}
	n, pes := len(schedule), len(m.Node)
	s := &simulation{
		msgs: schedule, model: m, ports: ports, missing: make([]int, n), waiters: make([][]int, n),
		res: Result{Begin: make([]time.Duration, n), Done: make([]time.Duration, n), PE: make([]time.Duration, pes)},
	}
	for i, msg := range schedule {
		if uint(msg.Src) >= uint(pes) || uint(msg.Dst) >= uint(pes) || msg.Bytes < 0 {
			return nil, fmt.Errorf("sim: message %d of %d B from pe %d to pe %d of %d: %w", i, msg.Bytes, msg.Src, msg.Dst, pes, errs.ErrConfig)
		}
		for _, d := range msg.After {
			if uint(d) >= uint(n) || schedule[d].Src != msg.Src && schedule[d].Dst != msg.Src {
				return nil, fmt.Errorf("sim: message %d waits for message %d, of which pe %d cannot know: %w", i, d, msg.Src, errs.ErrConfig)
			}
			s.waiters[d] = append(s.waiters[d], i)
		}
		if s.missing[i] = len(msg.After); s.missing[i] == 0 {
			s.push(0, ready, i)
		}
	}
	return s, nil
}

func (s *simulation) push(at time.Duration, st stage, msg int) {
	heap.Push(&s.events, event{at, st, msg})
}

func (s *simulation) step(e event) {
	msg := &s.msgs[e.msg]
	switch e.stage {
	case ready:
		s.res.Begin[e.msg] = e.at
		if s.local(msg) {
			l := s.model.Local
			s.push(s.ports.occupy(e.at, msg.Src, l.Post+l.Wire(msg.Bytes))+l.Latency, arrived, e.msg)
			return
		}
		s.push(s.ports.Post(e.at, msg.Src), posted, e.msg)
	case posted:
		s.push(s.ports.Send(e.at, msg.Src, msg.Dst, msg.Bytes), entering, e.msg)
	case entering:
		s.push(s.ports.Receive(e.at, msg.Src, msg.Dst, msg.Bytes), arrived, e.msg)
	case arrived:
		s.res.Done[e.msg] = e.at
		s.res.PE[msg.Dst] = max(s.res.PE[msg.Dst], e.at)
		s.res.Total = max(s.res.Total, e.at)
		for _, w := range s.waiters[e.msg] {
			s.met(w, e)
		}
	}
}

// met notes that a dependency of message w is met: when, depends on where it is
// known.
func (s *simulation) met(w int, e event) {
	known := e.at
	if dep := &s.msgs[e.msg]; dep.Dst != s.msgs[w].Src {
		known += s.back(dep)
	}
	s.res.Begin[w] = max(s.res.Begin[w], known)
	if s.missing[w]--; s.missing[w] == 0 {
		s.push(s.res.Begin[w], ready, w)
	}
}

// back is how long an acknowledgement takes.
func (s *simulation) back(m *Message) time.Duration {
	if s.local(m) {
		return s.model.Local.Latency
	}
	return s.model.Net.Latency
}

func (s *simulation) local(m *Message) bool { return s.model.Node[m.Src] == s.model.Node[m.Dst] }
