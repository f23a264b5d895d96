package bootstrap

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"goshmem/internal/errs"
)

// Hub is the coordinator of one job: who has joined, which gathers are underway,
// who is lost or has left. It is one state under one mutex; members hang on it
// directly (Local) or by a connection (Serve).
type Hub struct {
	cfg    HubConfig
	events *eventQueue
	stop   chan struct{} // closed by Close
	wg     sync.WaitGroup

	mu        sync.Mutex
	slots     []slot
	gathers   map[gatherKey]*gather
	joined    bool     // all ranks have joined
	late      *failure // the join deadline passed: who was missing
	refused   string   // why the last one was that may have been meant to be a member
	done      chan struct{}
	over      bool // done is closed
	closed    bool
	listeners []net.Listener
	shaking   map[net.Conn]time.Time // before the peer is known: since when
	links     map[*link]*served      // after
	ticks     uint64                 // of the watcher
	feuds     map[[2]int]*feud
}

type slotState uint8

const (
	stateAbsent slotState = iota
	stateJoined
	stateLeft // said goodbye
	stateLost
)

// slot is what the hub knows of a rank.
type slot struct {
	state   slotState
	sink    sink // nil: no attachment
	peer    Peer
	cause   string // of the loss
	backlog []*msg // messages from before the rank joined
	// The launcher saw the process end with dying; its connection may still hold
	// a goodbye, and has dyingTicks of the watcher left to tell it.
	dying      string
	dyingTicks int

	heard  uint64 // tick of the watcher in which its connection last had something
	blamed int    // feuds that others lost
}

// sink is the hub's way to a member. Neither method waits or calls the hub.
type sink interface {
	deliver(m *msg)
	last(m *msg) // nothing will follow m: what is queued before it is dropped
}

// NewHub starts a hub. Its join deadline counts from now.
func NewHub(cfg HubConfig) (*Hub, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	h := &Hub{
		cfg:     cfg,
		events:  newEventQueue(nil),
		stop:    make(chan struct{}),
		slots:   make([]slot, cfg.Size),
		gathers: make(map[gatherKey]*gather),
		done:    make(chan struct{}),
		shaking: make(map[net.Conn]time.Time),
		links:   make(map[*link]*served),
	}
	for i := range h.slots {
		h.slots[i].peer.Rank = i
	}
	h.wg.Add(1)
	go h.awaitJoins()
	return h, nil
}

// Local attaches this process as a rank, without a connection.
func (h *Hub) Local(rank int) (Member, error) {
	if rank < 0 || rank >= h.cfg.Size {
		return nil, fmt.Errorf("bootstrap: rank %d is not in 0..%d: %w", rank, h.cfg.Size-1, errs.ErrConfig)
	}
	m := newMember(rank, h.cfg.Size, h.cfg.Holder)
	m.shared = true
	m.up = &localUp{hub: h, rank: rank, m: m}
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.refusal(rank); r != nil {
		return nil, fmt.Errorf("bootstrap: join as rank %d: %w", rank, r)
	}
	h.admit(rank, m, Peer{Rank: rank, PID: os.Getpid(), HostID: h.cfg.HostID}, nil)
	return m, nil
}

// OnEvent sets the function that gets the hub's events (EventJoined,
// EventGoodbye, EventLost, EventHubLost), as Member.OnEvent does.
func (h *Hub) OnEvent(fn func(Event)) { h.events.set(fn) }

// Peer describes a rank that has joined.
func (h *Hub) Peer(rank int) (Peer, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if rank < 0 || rank >= len(h.slots) || h.slots[rank].peer.PID == 0 {
		return Peer{}, false
	}
	return h.slots[rank].peer, true
}

// Lost tells the hub that a rank's process has ended, as a launcher sees it. A
// goodbye that is still in the rank's connection counts first; a rank that has
// left in order is not lost.
func (h *Hub) Lost(rank int, cause string) error {
	if rank < 0 || rank >= h.cfg.Size {
		return fmt.Errorf("bootstrap: rank %d is not in 0..%d: %w", rank, h.cfg.Size-1, errs.ErrPeer)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.slots[rank]
	if _, remote := s.sink.(*link); remote && s.state == stateJoined {
		s.dying, s.dyingTicks = clip(cause), 3
		return nil
	}
	h.lose(rank, cause)
	return nil
}

// Done is closed when every rank has left or is lost, or never came.
func (h *Hub) Done() <-chan struct{} { return h.done }

// Drain waits for Done. At the end of ctx the error is a *errs.TimeoutError that
// names who is still there.
func (h *Hub) Drain(ctx context.Context) error {
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return nil
	}
	var still []int
	for r := range h.slots {
		if st := h.slots[r].state; st == stateJoined || st == stateAbsent {
			still = append(still, r)
		}
	}
	return contextError(ctx, "bootstrap: drain", timeoutError("all to leave", h.cfg.Size, still))
}

// Close ends the hub: members that are still there get EventHubClosed and their
// calls fail with errs.ErrClosed. It waits for the hub's goroutines, at most
// about a second for members that do not read.
func (h *Hub) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		h.wg.Wait()
		return nil
	}
	h.closed = true
	close(h.stop)
	h.toAll(&msg{kind: kindHubBye, src: -1, dst: -1}, -1)
	for i := range h.slots {
		h.slots[i].sink = nil
	}
	if !h.over {
		h.over = true
		close(h.done)
	}
	listeners := h.listeners
	h.listeners = nil
	for l := range h.links {
		l.shut(closeGrace)
	}
	for c := range h.shaking {
		_ = c.Close()
	}
	h.mu.Unlock()
	var first error
	for _, l := range listeners {
		if err := l.Close(); err != nil && first == nil {
			first = fmt.Errorf("bootstrap: close the hub's listener: %w", err)
		}
	}
	h.wg.Wait()
	h.events.close()
	return first
}

// refusal is why a rank may not join; nil if it may.
func (h *Hub) refusal(rank int) *RefusedError {
	s := &h.slots[rank]
	switch {
	case h.closed:
		return &RefusedError{Code: RefusedClosed, Reason: "the hub is closing"}
	case s.state == stateLost:
		return &RefusedError{Code: RefusedLost, Reason: fmt.Sprintf("rank %d is lost: %s", rank, s.cause)}
	case s.state == stateLeft:
		return &RefusedError{Code: RefusedLeft, Reason: fmt.Sprintf("rank %d has left the job", rank)}
	case s.state == stateJoined:
		return &RefusedError{Code: RefusedTaken, Reason: fmt.Sprintf("rank %d has joined already (process %d)", rank, s.peer.PID)}
	case h.late != nil:
		return &RefusedError{Code: RefusedLate, Reason: clip(fmt.Sprintf("the join deadline has passed, ranks %v were missing", h.late.missing))}
	}
	return nil
}

// admit attaches a rank that may join. welcome, if any, is its first message.
func (h *Hub) admit(rank int, to sink, peer Peer, welcome *msg) {
	s := &h.slots[rank]
	s.state, s.sink, s.peer = stateJoined, to, peer
	if welcome != nil {
		to.deliver(welcome)
	}
	for r := range h.slots {
		switch o := &h.slots[r]; o.state {
		case stateLost:
			to.deliver(&msg{kind: kindLost, src: r, dst: rank, text: o.cause})
		case stateLeft:
			to.deliver(&msg{kind: kindGoodbye, src: r, dst: rank})
		}
	}
	for _, m := range s.backlog {
		to.deliver(m)
	}
	s.backlog = nil
	h.events.push(Event{Kind: EventJoined, PE: rank})
	h.cfg.Logger.Debug("bootstrap: joined", "rank", rank, "pid", peer.PID)
	h.checkJoined()
}

func (h *Hub) checkJoined() {
	if h.joined {
		return
	}
	peers := make([]Peer, len(h.slots))
	for r := range h.slots {
		s := &h.slots[r]
		if s.state == stateAbsent || s.state == stateLost {
			return
		}
		peers[r] = s.peer
	}
	h.joined = true
	h.toAll(&msg{kind: kindJoined, src: -1, dst: -1, peers: peers}, -1)
}

// missing names the ranks that have not joined.
func (h *Hub) missing() []int {
	var v []int
	for r := range h.slots {
		if h.slots[r].state == stateAbsent {
			v = append(v, r)
		}
	}
	return v
}

// joinTimeout fails the join of a job whose ranks did not all come in time.
func (h *Hub) joinTimeout() {
	h.mu.Lock()
	defer h.mu.Unlock()
	missing := h.missing()
	if h.closed || len(missing) == 0 {
		return
	}
	h.late = &failure{kind: failJoin, pe: -1, missing: missing, want: h.cfg.Size, cause: h.refused}
	h.cfg.Logger.Warn("bootstrap: join deadline passed", "missing", missing)
	h.toAll(&msg{kind: kindJoinFailed, src: -1, dst: -1, fail: h.late}, -1)
	for _, r := range missing {
		h.slots[r].backlog = nil
	}
	h.failGathers(missing, h.late)
	h.checkDone()
}

// toAll gives m to every member but one.
func (h *Hub) toAll(m *msg, but int) {
	for r := range h.slots {
		if s := &h.slots[r]; r != but && s.sink != nil && s.state != stateLost {
			s.sink.deliver(m)
		}
	}
}

// lose declares a rank lost, unless it has left or is lost already.
func (h *Hub) lose(rank int, cause string) {
	s := &h.slots[rank]
	if h.closed || s.state == stateLost || s.state == stateLeft {
		return
	}
	s.state, s.cause, s.backlog = stateLost, clip(cause), nil
	h.cfg.Logger.Warn("bootstrap: lost", "rank", rank, "cause", cause)
	m := &msg{kind: kindLost, src: rank, dst: -1, text: s.cause}
	h.toAll(m, rank)
	if s.sink != nil {
		s.sink.last(m)
	}
	h.events.push(Event{Kind: EventLost, PE: rank, Cause: s.cause})
	h.failGathers([]int{rank}, &failure{kind: failLost, pe: rank, cause: s.cause})
	h.checkDone()
}

func (h *Hub) leave(rank int) {
	s := &h.slots[rank]
	if s.state != stateJoined {
		return
	}
	s.state = stateLeft
	h.toAll(&msg{kind: kindGoodbye, src: rank, dst: -1}, rank)
	h.events.push(Event{Kind: EventGoodbye, PE: rank})
	h.failGathers([]int{rank}, &failure{kind: failClosed, pe: rank})
	h.checkDone()
}

func (h *Hub) checkDone() {
	if h.over {
		return
	}
	for r := range h.slots {
		switch h.slots[r].state {
		case stateJoined:
			return
		case stateAbsent:
			if h.late == nil {
				return
			}
		}
	}
	h.over = true
	close(h.done)
}

// detach ends a rank's attachment; without a goodbye that is its loss.
func (h *Hub) detach(rank int, from sink, cause string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.slots[rank]
	if s.sink != from {
		return
	}
	s.sink = nil
	if s.dying != "" {
		cause = s.dying
	}
	h.lose(rank, cause)
}

// receive takes a message of an attached member. An error is a breach of the
// protocol by it.
func (h *Hub) receive(rank int, from sink, m *msg) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.slots[rank]
	if h.closed || s.sink != from || s.state == stateLost {
		return nil
	}
	switch m.kind {
	case kindHeartbeat:
	case kindGather:
		return h.contribute(rank, m)
	case kindGiveUp:
		h.giveUp(rank, m)
	case kindMessage, kindCredit:
		return h.relay(rank, m)
	case kindGoodbye:
		h.leave(rank)
	case kindAskMissing:
		s.sink.deliver(&msg{kind: kindMissing, src: -1, dst: rank, missing: h.missing()})
	case kindLost:
		h.deposed(rank)
	case kindAccuse:
		return h.accuse(rank, m.dst, m.text)
	default:
		return wireErr("kind %d from a member", m.kind)
	}
	return nil
}

// relay passes a message or credit on. What goes to ranks that are not there any
// more is dropped: the sender has been told, or will be.
func (h *Hub) relay(rank int, m *msg) error {
	if m.dst < 0 || m.dst >= len(h.slots) || m.src != rank {
		return wireErr("a message from %d to %d", m.src, m.dst)
	}
	to := &h.slots[m.dst]
	switch {
	case to.state == stateJoined && to.sink != nil:
		to.sink.deliver(m)
	case to.state == stateLeft && m.kind == kindCredit && to.sink != nil:
		to.sink.deliver(m)
	case to.state == stateAbsent && h.late == nil && m.kind == kindMessage:
		to.backlog = append(to.backlog, m)
	}
	return nil
}

// deposed handles a member's word that this hub was silent for the failure
// deadline: this process was stopped, and the job has gone on to count its
// holder as lost.
func (h *Hub) deposed(by int) {
	cause := fmt.Sprintf("its hub was silent, says pe %d", by)
	if h.cfg.Holder >= 0 {
		h.lose(h.cfg.Holder, cause)
		return
	}
	h.cfg.Logger.Warn("bootstrap: the hub was given up", "by", by)
	h.events.push(Event{Kind: EventHubLost, PE: -1, Cause: cause})
}

func clip(s string) string {
	if len(s) > maxText {
		return s[:maxText]
	}
	return s
}
