package fabric

import (
	"errors"
	"fmt"

	"goshmem/internal/errs"
)

// The messages of a handshake: what a transport of verbs would exchange queue
// pair numbers with.
const (
	hello    = 0xf1
	welcome  = 0xf2
	greetLen = 2
)

// greeting is how far the handshake from one PE of this process to another is.
type greeting struct{ said, answered bool }

// greet begins the handshake of a pair, or looks at it.
func (t *transport) greet(owner, peer int) (ready bool, err error) {
	g := t.greetings[[2]int{owner, peer}]
	if g == nil {
		g = &greeting{}
		t.greetings[[2]int{owner, peer}] = g
	}
	if !g.said {
		err := t.w.env.Send(owner, peer, []byte{hello, byte(peer)})
		if errors.Is(err, errs.ErrWouldBlock) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("fabric: handshake with pe %d: %w", peer, err)
		}
		g.said = true
	}
	return g.answered, nil
}

// Deliver takes a message of another PE's transport.
func (t *transport) Deliver(local, from int, msg []byte) error {
	if len(msg) != greetLen {
		return fmt.Errorf("fabric: message of %d B from pe %d: %w", len(msg), from, errs.ErrConfig)
	}
	switch {
	case msg[0] == hello && msg[1] == byte(local):
		return t.w.env.Send(local, from, []byte{welcome, byte(from)})
	case msg[0] == welcome && msg[1] == byte(local):
		t.mu.Lock()
		defer t.mu.Unlock()
		g := t.greetings[[2]int{local, from}]
		if g == nil || !g.said || g.answered {
			return fmt.Errorf("fabric: a welcome from pe %d to pe %d that nobody waits for: %w", from, local, errs.ErrConfig)
		}
		g.answered = true
		t.f.count(Event{Tick: t.now, What: "greeted", Owner: local, Peer: from}, func(s *Stats) { s.Greeted++ })
		return nil
	}
	return fmt.Errorf("fabric: message %#x to pe %d from pe %d: %w", msg, local, from, errs.ErrConfig)
}

// deadOf is why a PE of two is dead; nil if none is.
func (f *Fabric) deadOf(a, b int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.dead[a]; err != nil {
		return err
	}
	return f.dead[b]
}
