package bootstrap

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"goshmem/internal/errs"
)

// uplink is a member's way to its hub.
type uplink interface {
	send(m *msg) error
	flush(d time.Duration) error
	close()
}

// member is the part of a Member that does not depend on how it is attached.
// Its mutex is taken under the hub's (deliver), so it is never held over a call
// of the uplink.
type member struct {
	rank, size, holder int
	up                 uplink
	shared             bool // what the hub delivers belongs to other members too
	events             *eventQueue

	mu       sync.Mutex
	err      error // why calls fail
	goodbye  bool
	closed   bool
	hubOver  bool              // the hub's end, or this member's loss, has been told
	seqs     map[string]uint64 // calls made per tag and group
	lastCall uint64
	calls    map[uint64]*call
	lost     map[int]string // causes
	gone     map[int]bool   // said goodbye
	underway []int64        // bytes sent per rank and not yet credited
	credits  map[int]uint64 // bytes consumed per rank and not yet told
	peers    []Peer
	joined   chan struct{} // closed when joinErr or peers are set
	joinOver bool
	joinErr  error
	asked    []chan []int // waiting for kindMissing
}

// call is a Gather that waits for its outcome.
type call struct {
	done  chan struct{}
	blobs [][]byte
	err   error
}

func newMember(rank, size, holder int) *member {
	m := &member{
		rank: rank, size: size, holder: holder,
		seqs:     make(map[string]uint64),
		calls:    make(map[uint64]*call),
		lost:     make(map[int]string),
		gone:     make(map[int]bool),
		underway: make([]int64, size),
		credits:  make(map[int]uint64),
		joined:   make(chan struct{}),
	}
	m.events = newEventQueue(m.consumed)
	return m
}

func (m *member) Rank() int              { return m.rank }
func (m *member) Size() int              { return m.size }
func (m *member) Holder() int            { return m.holder }
func (m *member) OnEvent(fn func(Event)) { m.events.set(fn) }
func (m *member) last(x *msg)            { m.deliver(x) }
func (m *member) wrap(op string, e error) error {
	return fmt.Errorf("bootstrap: %s: %w", op, e)
}

func (m *member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *member) Peer(rank int) (Peer, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if rank < 0 || rank >= len(m.peers) {
		return Peer{}, false
	}
	return m.peers[rank], true
}

func (m *member) WaitJoined(ctx context.Context) error {
	select {
	case <-m.joined:
	case <-ctx.Done():
		missing := m.askMissing()
		select {
		case <-m.joined:
		default:
			return contextError(ctx, "bootstrap: join", timeoutError("all ranks to join", m.size, missing))
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.joinErr != nil {
		return m.wrap("join", m.joinErr)
	}
	return nil
}

// askMissing asks the hub who has not joined; nil if it does not answer.
func (m *member) askMissing() []int {
	ch := make(chan []int, 1)
	m.mu.Lock()
	m.asked = append(m.asked, ch)
	m.mu.Unlock()
	if m.up.send(&msg{kind: kindAskMissing, src: m.rank, dst: -1}) != nil {
		return nil
	}
	t := time.NewTimer(answerWait)
	defer t.Stop()
	select {
	case v := <-ch:
		return v
	case <-m.joined:
	case <-t.C:
	}
	return nil
}

func (m *member) Gather(ctx context.Context, tag string, group []int, blob []byte) ([][]byte, error) {
	op := fmt.Sprintf("gather %q", tag)
	if len(tag) > maxTag {
		return nil, m.wrap("gather", fmt.Errorf("a tag of %d bytes, over %d: %w", len(tag), maxTag, errs.ErrConfig))
	}
	if !goodGroup(group, m.rank, m.size) {
		return nil, m.wrap(op, fmt.Errorf("group %v must ascend in 0..%d and contain %d: %w", group, m.size-1, m.rank, errs.ErrConfig))
	}
	if !gatherFits(len(group), len(blob)) {
		return nil, m.wrap(op, fmt.Errorf("%d blobs of %d bytes, over %d: %w", len(group), len(blob), MaxBlob, errs.ErrCapacity))
	}
	if ctx.Err() != nil {
		return nil, contextError(ctx, "bootstrap: "+op, &errs.TimeoutError{What: "the group", PE: -1})
	}
	req := &msg{kind: kindGather, src: m.rank, dst: -1, tag: tag, group: slices.Clone(group), blob: copyBlob(blob)}
	c := &call{done: make(chan struct{})}
	m.mu.Lock()
	if m.err != nil {
		defer m.mu.Unlock()
		return nil, m.wrap(op, m.err)
	}
	key := tag + "\x00" + groupKey(group)
	m.seqs[key]++
	m.lastCall++
	req.gseq, req.call = m.seqs[key], m.lastCall
	m.calls[req.call] = c
	m.mu.Unlock()

	err := m.up.send(req)
	if err == nil {
		err = m.await(ctx, c, req)
	} else {
		m.hearWhy()
		err = m.broken(err)
	}
	m.mu.Lock()
	delete(m.calls, req.call)
	m.mu.Unlock()
	if err != nil {
		return nil, m.wrap(op, err)
	}
	if !m.shared {
		return c.blobs, nil
	}
	own := make([][]byte, len(c.blobs))
	for i, b := range c.blobs {
		own[i] = copyBlob(b)
	}
	return own, nil
}

func (m *member) Forget(prefix string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.seqs, func(key string, _ uint64) bool { return strings.HasPrefix(key, prefix) })
}

// copyBlob copies b; never nil, so that no attachment differs from another.
func copyBlob(b []byte) []byte { return append([]byte{}, b...) }

// await waits for the hub's word on a call. When ctx ends first the hub is told
// and still has the last word, for the outcome must be one for all; only a hub
// that does not answer leaves it open.
func (m *member) await(ctx context.Context, c *call, req *msg) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	give := &msg{kind: kindGiveUp, src: m.rank, dst: -1, call: req.call, tag: req.tag, group: req.group, gseq: req.gseq, code: giveUpTimeout}
	if ctx.Err() != context.DeadlineExceeded {
		give.code = giveUpCancel
	}
	unknown := contextError(ctx, "no answer from the hub", &errs.TimeoutError{What: "the hub", PE: -1})
	if m.up.send(give) != nil {
		return unknown
	}
	t := time.NewTimer(answerWait)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
		return unknown
	}
	if a, ok := c.err.(*AbortedError); ok && a.PE == m.rank {
		return contextError(ctx, "given up", c.err)
	}
	return c.err
}

// hearWhy gives the reader of a connection that cannot be written to any more a
// moment to find why: that the hub's holder is lost says more than that the
// connection is.
func (m *member) hearWhy() {
	for range 100 {
		if m.Err() != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// broken is the reason for a failed send: the sticky error, or that the
// connection is at its end and the reader is about to say why.
func (m *member) broken(err error) error {
	if e := m.Err(); e != nil {
		return e
	}
	return fmt.Errorf("%w: %w", err, &errs.ClosedError{PE: m.holder})
}

func (m *member) Send(to int, blob []byte) error {
	op := fmt.Sprintf("send %d B to pe %d", len(blob), to)
	if to < 0 || to >= m.size {
		return m.wrap(op, errs.ErrPeer)
	}
	if len(blob) > MaxMessage {
		return m.wrap(op, fmt.Errorf("over %d bytes: %w", MaxMessage, errs.ErrCapacity))
	}
	cost := messageCost(len(blob))
	m.mu.Lock()
	err := m.err
	if err == nil {
		if cause, ok := m.lost[to]; ok {
			err = &errs.PeerLostError{PE: to, Cause: cause}
		} else if m.gone[to] {
			err = &errs.ClosedError{PE: to}
		} else if m.underway[to] > 0 && m.underway[to]+cost > Window {
			err = errs.ErrWouldBlock
		} else {
			m.underway[to] += cost
		}
	}
	m.mu.Unlock()
	if err != nil {
		return m.wrap(op, err)
	}
	if err := m.up.send(&msg{kind: kindMessage, src: m.rank, dst: to, blob: copyBlob(blob)}); err != nil {
		return m.wrap(op, m.broken(err))
	}
	return nil
}

func (m *member) Accuse(pe int, cause string) error {
	op := fmt.Sprintf("accuse pe %d", pe)
	if pe < 0 || pe >= m.size {
		return m.wrap(op, errs.ErrPeer)
	}
	if err := m.Err(); err != nil {
		return m.wrap(op, err)
	}
	if err := m.up.send(&msg{kind: kindAccuse, src: m.rank, dst: pe, text: clip(cause)}); err != nil {
		return m.wrap(op, m.broken(err))
	}
	return nil
}

// messageCost is what a message of n bytes counts in the window.
func messageCost(n int) int64 { return int64(n) + messageExtra }

// consumed gives credit for messages that the event function is done with: when
// there is nothing more to do, else a quarter of the window at a time.
func (m *member) consumed(ev Event, empty bool) {
	var out []*msg
	m.mu.Lock()
	if ev.Kind == EventMessage {
		m.credits[ev.PE] += uint64(messageCost(len(ev.Blob)))
	}
	if m.err == nil || m.goodbye {
		for r, n := range m.credits {
			if empty || n >= Window/4 {
				out = append(out, &msg{kind: kindCredit, src: m.rank, dst: r, n: n})
				delete(m.credits, r)
			}
		}
	}
	m.mu.Unlock()
	for _, c := range out {
		_ = m.up.send(c) // a broken uplink is told by its reader
	}
}

func (m *member) Goodbye() error {
	m.mu.Lock()
	if m.goodbye {
		m.mu.Unlock()
		return nil
	}
	if m.err != nil {
		defer m.mu.Unlock()
		return m.wrap("goodbye", m.err)
	}
	m.goodbye = true
	m.fail(&errs.ClosedError{PE: -1})
	m.mu.Unlock()
	if err := m.up.send(&msg{kind: kindGoodbye, src: m.rank, dst: -1}); err != nil {
		return m.wrap("goodbye", err)
	}
	if err := m.up.flush(answerWait); err != nil {
		return m.wrap("goodbye", err)
	}
	return nil
}

func (m *member) Close() error {
	m.mu.Lock()
	m.closed = true
	m.fail(&errs.ClosedError{PE: -1})
	m.mu.Unlock()
	m.up.close()
	m.events.close()
	return nil
}

// fail makes all calls fail from now on; the first reason stays.
func (m *member) fail(err error) {
	if m.err == nil {
		m.err = err
	}
	for id, c := range m.calls {
		c.err = m.err
		close(c.done)
		delete(m.calls, id)
	}
	m.endJoin(m.err)
}

func (m *member) endJoin(err error) {
	if !m.joinOver {
		m.joinOver, m.joinErr = true, err
		close(m.joined)
	}
}

// deliver takes a message of the hub. It never waits.
func (m *member) deliver(x *msg) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	switch x.kind {
	case kindResult:
		if c := m.calls[x.call]; c != nil {
			c.blobs = x.blobs
			delete(m.calls, x.call)
			close(c.done)
		}
	case kindFailed:
		if c := m.calls[x.call]; c != nil {
			c.err = x.fail.err(m.rank)
			delete(m.calls, x.call)
			close(c.done)
		}
	case kindMessage:
		m.events.push(Event{Kind: EventMessage, PE: x.src, Blob: x.blob})
	case kindCredit:
		if x.src >= 0 && x.src < m.size {
			m.underway[x.src] = max(0, m.underway[x.src]-int64(min(x.n, 1<<40)))
		}
	case kindLost:
		m.lose(x.src, x.text)
	case kindGoodbye:
		if x.src >= 0 && x.src < m.size && !m.gone[x.src] {
			m.gone[x.src] = true
			m.events.push(Event{Kind: EventGoodbye, PE: x.src})
		}
	case kindJoined:
		m.peers = x.peers
		m.endJoin(nil)
	case kindJoinFailed:
		m.endJoin(x.fail.err(m.rank))
	case kindMissing:
		for _, ch := range m.asked {
			ch <- x.missing
		}
		m.asked = nil
	case kindHubBye:
		if !m.hubOver {
			m.hubOver = true
			m.fail(&errs.ClosedError{PE: m.holder})
			m.events.push(Event{Kind: EventHubClosed, PE: -1})
		}
	}
}

func (m *member) lose(pe int, cause string) {
	if _, known := m.lost[pe]; known || pe < 0 || pe >= m.size {
		return
	}
	m.lost[pe] = cause
	m.endJoin(&errs.PeerLostError{PE: pe, Cause: cause})
	if pe == m.rank {
		m.hubOver = true
		m.fail(&errs.PeerLostError{PE: pe, Cause: cause})
	}
	m.events.push(Event{Kind: EventLost, PE: pe, Cause: cause})
}

// hubLost is the end of the connection without a word.
func (m *member) hubLost(cause string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.hubOver {
		return
	}
	m.hubOver = true
	if m.holder >= 0 {
		m.fail(&errs.PeerLostError{PE: m.holder, Cause: cause})
		m.lose(m.holder, cause)
		return
	}
	m.fail(&HubLostError{Cause: cause})
	m.events.push(Event{Kind: EventHubLost, PE: -1, Cause: cause})
}

// contextError is what a wait returns whose context ended: the deadline as
// atDeadline, a cancellation as the context's error.
func contextError(ctx context.Context, op string, atDeadline error) error {
	if ctx.Err() == context.DeadlineExceeded {
		return fmt.Errorf("%s: %w", op, atDeadline)
	}
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%s: %w: %w", op, ctx.Err(), cause)
	}
	return fmt.Errorf("%s: %w", op, ctx.Err())
}

// localUp hangs a member on a hub of its own process.
type localUp struct {
	hub  *Hub
	rank int
	m    *member
}

func (u *localUp) send(x *msg) error         { return u.hub.receive(u.rank, u.m, x) }
func (u *localUp) flush(time.Duration) error { return nil }
func (u *localUp) close()                    { u.hub.detach(u.rank, u.m, "closed without goodbye") }
