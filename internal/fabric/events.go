package fabric

// moment is what an event is about.
type moment uint8

const (
	wake    moment = iota // nothing: the clock has a reason to come here
	sending               // the request leaves its source, and may be lost
	entered               // its first byte is at the target (simulated link)
	raised                // its signal alone takes effect (Broken)
	arrived               // it takes effect at its target
	replied               // the first byte of the reply is back (simulated link)
	ended                 // it is complete, as far as its sender can know
)

var momentNames = [...]string{"wake", "sending", "entered", "raised", "arrived", "replied", "ended"}

func (m moment) String() string { return momentNames[m] }

// event is something to happen. Of events at one time, the tie breaks the order
// of different lanes; seq keeps that of one.
type event struct {
	at   int64
	tie  uint64
	seq  uint64
	what moment
	lost bool // sending: this attempt is lost
	f    *flight
}

func (e *event) before(o *event) bool {
	switch {
	case e.at != o.at:
		return e.at < o.at
	case e.tie != o.tie:
		return e.tie < o.tie
	}
	return e.seq < o.seq
}

// queue is a heap of events.
type queue []event

func (q *queue) push(e event) {
	h := append(*q, e)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	*q = h
}

func (q *queue) pop() event {
	h := *q
	top := h[0]
	last := len(h) - 1
	h[0] = h[last]
	h[last] = event{}
	h = h[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			break
		}
		if r := down + 1; r < last && h[r].before(&h[down]) {
			down = r
		}
		if !h[down].before(&h[i]) {
			break
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
	*q = h
	return top
}
