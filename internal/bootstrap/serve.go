package bootstrap

import (
	"errors"
	"fmt"
	"net"
	"time"

	"goshmem/internal/errs"
)

// served is the hub's book of a connection that has joined.
type served struct {
	rank    int
	silent  int // ticks without a byte from it
	stalled int // ticks without progress of a write to it
}

// Serve lets ranks join by connections to l, which the hub owns from now on. It
// returns at once. A hub may serve several listeners.
func (h *Hub) Serve(l net.Listener) error {
	if l.Addr().Network() != "unix" && len(h.cfg.Secret) == 0 {
		_ = l.Close()
		return fmt.Errorf("bootstrap: serve %s: %w", l.Addr(), errNoSecret)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		_ = l.Close()
		return fmt.Errorf("bootstrap: serve: %w", &errs.ClosedError{PE: -1})
	}
	if len(h.listeners) == 0 {
		h.wg.Add(1)
		go h.watch()
	}
	h.listeners = append(h.listeners, l)
	h.wg.Add(1)
	go h.accept(l)
	return nil
}

func (h *Hub) accept(l net.Listener) {
	defer h.wg.Done()
	for {
		conn, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors, or an aborted connection: others may still join.
			h.cfg.Logger.Warn("bootstrap: accept", "err", err)
			select {
			case <-h.stop:
				return
			case <-time.After(10 * time.Millisecond):
				continue
			}
		}
		h.mu.Lock()
		// Strangers that hold connections open may not use up descriptors; nor,
		// where anybody can connect, keep members out: the oldest goes.
		room := len(h.shaking) < 2*h.cfg.Size+16
		if !room && conn.LocalAddr().Network() != "unix" {
			h.dropOldest()
			room = true
		}
		if h.closed {
			h.mu.Unlock()
			_ = conn.Close()
			return
		}
		if room {
			h.shaking[conn] = time.Now()
			h.wg.Add(1)
			go h.attend(conn)
		}
		h.mu.Unlock()
		if !room {
			refuse(newFramer(conn), &RefusedError{Code: RefusedBusy, Reason: "too many connections at once"})
			_ = conn.Close()
		}
	}
}

// dropOldest ends the handshake that began first.
func (h *Hub) dropOldest() {
	var oldest net.Conn
	for c, began := range h.shaking {
		if oldest == nil || began.Before(h.shaking[oldest]) {
			oldest = c
		}
	}
	delete(h.shaking, oldest)
	_ = oldest.Close()
}

// refuse tells a stranger why, if it will take the words at once.
func refuse(f *framer, r *RefusedError) {
	_ = f.conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	_ = f.write(&msg{kind: kindRefuse, src: -1, dst: -1, code: uint8(r.Code), text: clip(r.Reason)})
}

// attend is one connection, from its handshake to its end.
func (h *Hub) attend(conn net.Conn) {
	defer h.wg.Done()
	f := newFramer(conn)
	rank, l, err := h.shake(f)
	if err != nil {
		h.cfg.Logger.Warn("bootstrap: refused a connection", "err", err)
		r, ok := errors.AsType[*RefusedError](err)
		if !ok && errors.Is(err, errWire) {
			r = &RefusedError{Code: RefusedGarbage, Reason: err.Error()}
		}
		if r != nil {
			refuse(f, r)
		}
		h.mu.Lock()
		delete(h.shaking, conn)
		if ok {
			h.refused = clip(r.Reason)
		}
		h.mu.Unlock()
		_ = conn.Close()
		return
	}
	cause := "its connection ended without goodbye"
	for {
		m, err := l.read()
		if err == nil {
			err = h.receive(rank, l, m)
		}
		if errors.Is(err, errWire) {
			cause = "breach of protocol: " + err.Error()
		}
		if err != nil {
			break
		}
	}
	h.breakOff(rank, l, cause)
	h.mu.Lock()
	delete(h.links, l)
	h.mu.Unlock()
}

// breakOff ends a connection from the hub's side. A member that broke the
// protocol is told that it is lost.
func (h *Hub) breakOff(rank int, l *link, cause string) {
	h.mu.Lock()
	if h.slots[rank].sink == l && h.slots[rank].state == stateJoined && h.slots[rank].dying != "" {
		cause = h.slots[rank].dying
	}
	if h.slots[rank].sink == l {
		h.lose(rank, cause)
		h.slots[rank].sink = nil
	}
	h.mu.Unlock()
	l.close(closeGrace)
}

// shake finds out who a new connection is and admits it. On success the
// connection is in h.links and no longer in h.shaking.
func (h *Hub) shake(f *framer) (int, *link, error) {
	_ = f.conn.SetDeadline(time.Now().Add(shakeDeadline))
	pid, err := checkUser(f.conn, h.cfg.Secret)
	if err != nil {
		return 0, nil, &RefusedError{Code: RefusedUser, Reason: err.Error()}
	}
	nonce, err := newNonce()
	if err != nil {
		return 0, nil, err
	}
	if err := f.write(&msg{kind: kindChallenge, src: -1, dst: -1, n: wireVersion, nonce: nonce}); err != nil {
		return 0, nil, err
	}
	m, err := f.read()
	if err != nil {
		return 0, nil, err
	}
	if m.kind != kindHello {
		return 0, nil, wireErr("kind %d where a hello is due", m.kind)
	}
	hi := m.hello
	switch {
	case !sameProof(hi.mac, helloProof(h.cfg.Secret, nonce, m.src, hi)):
		return 0, nil, &RefusedError{Code: RefusedKey, Reason: "wrong secret: this is another job's hub"}
	case hi.size != h.cfg.Size:
		return 0, nil, &RefusedError{Code: RefusedSize, Reason: fmt.Sprintf("the job has %d ranks, not %d", h.cfg.Size, hi.size)}
	case m.src < 0 || m.src >= h.cfg.Size:
		return 0, nil, &RefusedError{Code: RefusedRank, Reason: fmt.Sprintf("rank %d is not in 0..%d", m.src, h.cfg.Size-1)}
	}
	// The kernel's word counts where both see the same process numbers.
	if pid <= 0 || hi.host != h.cfg.HostID {
		pid = hi.pid
	}
	w := &welcome{holder: h.cfg.Holder, heartbeat: uint64(h.cfg.Heartbeat), deadline: uint64(h.cfg.FailureDeadline)}
	w.mac = welcomeProof(h.cfg.Secret, nonce, hi.nonce, m.src, w)

	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.refusal(m.src); r != nil {
		return 0, nil, r
	}
	if _, still := h.shaking[f.conn]; !still {
		return 0, nil, errLinkClosed
	}
	l := newLink(f, h.cfg.Size*(Window+maxText)+4*MaxFrame)
	h.admit(m.src, l, Peer{Rank: m.src, PID: pid, HostID: hi.host}, &msg{kind: kindWelcome, src: -1, dst: m.src, welcome: w})
	h.links[l] = &served{rank: m.src}
	delete(h.shaking, f.conn)
	return m.src, l, nil
}
