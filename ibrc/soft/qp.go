package soft

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"

	"goshmem/ibrc"
	"goshmem/internal/errs"
)

// token names a queue pair to who may connect to it; only the bootstrap carries it.
type token [16]byte

// qp is one end of a connection. The lower rank dials, the other listens.
type qp struct {
	p     *Provider
	cfg   ibrc.QPConfig
	token token
	state ibrc.State
	peer  token
	conn  *conn
	made  atomic.Pointer[outcome] // by a goroutine
	begun bool
	known chan struct{} // closes when peer is set
	gone  atomic.Bool
	stop  func()
}

// outcome is how connecting ended.
type outcome struct {
	fd  int
	err error
}

// NewQP makes a queue pair, and listens from the first one on that waits to be
// dialled.
func (p *Provider) NewQP(cfg ibrc.QPConfig) (ibrc.QP, error) {
	if cfg.Local == cfg.Remote {
		return &loop{p: p, cfg: cfg, state: ibrc.StateInit}, nil
	}
	q := &qp{p: p, cfg: cfg, state: ibrc.StateInit, known: make(chan struct{}), stop: func() {}}
	_, _ = rand.Read(q.token[:]) // never fails (crypto/rand)
	if p.poll == nil {
		var err error
		if p.poll, err = newPoller(p.env.Kick); err != nil {
			return nil, err
		}
	}
	if cfg.Local > cfg.Remote {
		if err := p.listen(); err != nil {
			return nil, err
		}
		p.expect(q)
	}
	return q, nil
}

// The handle: version, token, and the address where the listener is.
const handleVersion = 1

func (q *qp) Handle() []byte {
	b := append([]byte{handleVersion}, q.token[:]...)
	if q.cfg.Local > q.cfg.Remote {
		b = append(b, q.p.address()...)
	}
	return b
}

func parseHandle(b []byte) (t token, addr string, err error) {
	if len(b) < 1+len(t) || b[0] != handleVersion {
		return t, "", fmt.Errorf("soft: handle of %d B: %w", len(b), errs.ErrConfig)
	}
	copy(t[:], b[1:])
	return t, string(b[1+len(t):]), nil
}

// State is the queue pair's.
func (q *qp) State() ibrc.State { return q.state }

// Connect starts to dial, or waits for the peer to do so.
func (q *qp) Connect(handle []byte) (bool, error) {
	if q.state == ibrc.StateRTS || q.state == ibrc.StateError {
		return q.state == ibrc.StateRTS, nil
	}
	if !q.begun {
		peer, addr, err := parseHandle(handle)
		if err == nil && q.cfg.Local < q.cfg.Remote {
			if _, _, e := net.SplitHostPort(addr); e != nil {
				err = fmt.Errorf("soft: handle with address %q: %w", addr, errs.ErrConfig)
			}
		}
		if err != nil {
			q.state = ibrc.StateError
			return false, err
		}
		q.peer, q.begun, q.state = peer, true, ibrc.StateRTR
		if q.cfg.Local < q.cfg.Remote {
			q.dial(addr)
		} else {
			close(q.known)
		}
	}
	o := q.made.Load()
	if o == nil {
		return false, nil
	}
	if o.err == nil {
		c := newConn(q, o.fd)
		if o.err = q.p.poll.add(c); o.err == nil {
			q.conn, q.state = c, ibrc.StateRTS
			q.p.conns = append(q.p.conns, c)
			return true, nil
		}
		c.close()
	}
	q.state = ibrc.StateError
	return false, o.err
}

// finish is called once, by the goroutine that connects.
func (q *qp) finish(o *outcome) {
	if !q.made.CompareAndSwap(nil, o) {
		if o.err == nil {
			closeFD(o.fd)
		}
	} else if q.gone.Load() {
		q.drop()
	}
	q.p.env.Kick()
}

// drop gives back a connection that nobody took.
func (q *qp) drop() {
	if o := q.made.Swap(&outcome{err: &errs.ClosedError{PE: -1}}); o != nil && o.err == nil && q.conn == nil {
		closeFD(o.fd)
	}
}

// Post queues work requests as long as there is room.
func (q *qp) Post(wrs []ibrc.WR) (int, error) {
	c := q.conn
	switch {
	case c == nil:
		return 0, &ibrc.StatusError{Op: wrs[0].Op, Status: ibrc.StatusWRFlush, Detail: "not connected"}
	case c.err != nil:
		return 0, c.err
	}
	q.p.gather(c)
	for i := range wrs {
		if !c.post(&wrs[i]) {
			return i, nil
		}
	}
	return len(wrs), nil
}

// Destroy closes the connection, in order if it can.
func (q *qp) Destroy() {
	q.state = ibrc.StateError
	q.gone.Store(true)
	q.stop()
	q.p.forget(q)
	if q.conn == nil {
		q.drop()
		return
	}
	if q.conn.fd >= 0 {
		q.conn.bye()
		q.conn.close()
	}
	for i, c := range q.p.conns {
		if c == q.conn {
			q.p.conns = append(q.p.conns[:i:i], q.p.conns[i+1:]...)
			break
		}
	}
}

// hello is what the one who dials says of itself.
type hello struct {
	world, from, to, lane uint32
	token                 token // of the queue pair dialled
	own                   token // of the one that dials
	nonce                 token
}

const helloSize = 4 + 16 + 3*16

var magic = [4]byte{'g', 's', 'r', '1'}

func (h *hello) bytes() []byte {
	b := append(make([]byte, 0, helloSize), magic[:]...)
	for _, v := range [...]uint32{h.world, h.from, h.to, h.lane} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	b = append(append(append(b, h.token[:]...), h.own[:]...), h.nonce[:]...)
	return b
}

func parseHello(b []byte) (h hello, ok bool) {
	if len(b) != helloSize || !bytes.Equal(b[:4], magic[:]) {
		return h, false
	}
	for i, v := range [...]*uint32{&h.world, &h.from, &h.to, &h.lane} {
		*v = binary.LittleEndian.Uint32(b[4+4*i:])
	}
	copy(h.token[:], b[20:])
	copy(h.own[:], b[36:])
	copy(h.nonce[:], b[52:])
	return h, true
}
