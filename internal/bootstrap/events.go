package bootstrap

import "sync"

// eventQueue hands events to one function, in order, from one goroutine that
// starts when the function is set. push never waits.
type eventQueue struct {
	// after is called behind the function, with whether the queue is empty now.
	after func(ev Event, empty bool)

	mu     sync.Mutex
	items  []Event
	fn     func(Event)
	closed bool
	wake   chan struct{} // capacity 1
	stop   chan struct{}
	done   chan struct{} // nil until started
}

func newEventQueue(after func(Event, bool)) *eventQueue {
	return &eventQueue{after: after, wake: make(chan struct{}, 1), stop: make(chan struct{})}
}

func (q *eventQueue) push(ev Event) {
	q.mu.Lock()
	if !q.closed {
		q.items = append(q.items, ev)
	}
	q.mu.Unlock()
	q.ring()
}

func (q *eventQueue) ring() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *eventQueue) set(fn func(Event)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.fn = fn
	if q.done == nil && fn != nil {
		q.done = make(chan struct{})
		go q.run()
	}
	q.ring()
}

func (q *eventQueue) run() {
	defer close(q.done)
	for {
		select {
		case <-q.stop:
			return
		case <-q.wake:
		}
		for q.step() {
		}
	}
}

// step hands over one event; false: there is none, or nobody to take it.
func (q *eventQueue) step() bool {
	q.mu.Lock()
	if q.closed || q.fn == nil || len(q.items) == 0 {
		q.mu.Unlock()
		return false
	}
	ev, fn := q.items[0], q.fn
	q.items[0] = Event{}
	q.items = q.items[1:]
	q.mu.Unlock()
	fn(ev)
	if q.after != nil {
		q.mu.Lock()
		empty := len(q.items) == 0
		q.mu.Unlock()
		q.after(ev, empty)
	}
	return true
}

// close drops what was not handed over and waits for the goroutine.
func (q *eventQueue) close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.items = nil
		close(q.stop)
	}
	done := q.done
	q.mu.Unlock()
	if done != nil {
		<-done
	}
}
