package bootstrap

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// framer reads and writes frames on a connection and keeps both directions'
// sequence numbers. One reader and one writer at a time.
type framer struct {
	conn       net.Conn
	r          *bufio.Reader
	limit      int
	rseq, wseq uint64
	wbuf       []byte

	heard atomic.Bool // a byte came in since it was last cleared
	wrote atomic.Bool // a byte went out
}

func newFramer(conn net.Conn) *framer {
	f := &framer{conn: conn, limit: maxShake}
	f.r = bufio.NewReaderSize(hearing{f}, 16<<10)
	return f
}

// hearing marks that bytes came, whole frames or not: a member in the middle of
// a long frame is not silent.
type hearing struct{ f *framer }

func (h hearing) Read(p []byte) (int, error) {
	n, err := h.f.conn.Read(p)
	if n > 0 {
		h.f.heard.Store(true)
	}
	return n, err
}

func (f *framer) read() (*msg, error) {
	b, err := readFrame(f.r, f.limit)
	if err != nil {
		return nil, err
	}
	m, seq, err := decodeFrame(b)
	if err != nil {
		return nil, err
	}
	f.rseq++
	if seq != f.rseq {
		return nil, wireErr("frame %d where %d is due", seq, f.rseq)
	}
	return m, nil
}

// writeChunk is smaller than a socket's buffer, so that progress on a long frame
// shows.
const writeChunk = 64 << 10

func (f *framer) write(m *msg) error {
	f.wseq++
	f.wbuf = appendFrame(f.wbuf[:0], m, f.wseq)
	b := f.wbuf
	if cap(f.wbuf) > growStep {
		f.wbuf = nil // one large frame must not be kept for all the connection's life
	}
	for len(b) > 0 {
		n, err := f.conn.Write(b[:min(len(b), writeChunk)])
		if n > 0 {
			f.wrote.Store(true)
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

var errLinkClosed = errors.New("connection is closing")

// link is a connection after its handshake, with a goroutine that writes what is
// queued, so that nobody waits for a slow reader at the other end.
type link struct {
	*framer
	bound int // bytes that may be queued

	mu      sync.Mutex
	queue   []*msg
	queued  int // bytes in queue
	pushed  uint64
	written uint64
	over    bool // bound was passed: the link is of no use any more
	closing bool
	err     error
	flushes []flushWait
	wake    chan struct{} // capacity 1
	done    chan struct{} // the writer's end
}

type flushWait struct {
	target uint64
	ch     chan struct{}
}

func newLink(f *framer, bound int) *link {
	_ = f.conn.SetDeadline(time.Time{})
	f.limit = MaxFrame
	l := &link{framer: f, bound: bound, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go l.writeLoop()
	return l
}

func (m *msg) weight() int {
	n := 128 + len(m.blob) + 4*len(m.group) + len(m.text)
	for _, b := range m.blobs {
		n += 8 + len(b)
	}
	return n
}

// send queues a message; it never waits.
func (l *link) send(m *msg) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if l.closing || l.over {
		return errLinkClosed
	}
	w := m.weight()
	if l.queued+w > l.bound {
		l.over = true
		return errLinkClosed
	}
	l.push(m, w)
	return nil
}

func (l *link) push(m *msg, w int) {
	l.queue = append(l.queue, m)
	l.queued += w
	l.pushed++
	l.ring()
}

func (l *link) ring() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// deliver makes a link the hub's way to a member.
func (l *link) deliver(m *msg) { _ = l.send(m) }

// last drops what is queued for m, the last message the member will get.
func (l *link) last(m *msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.closing {
		return
	}
	l.written += uint64(len(l.queue))
	l.queue, l.queued, l.over = nil, 0, false
	l.settle()
	l.push(m, m.weight())
}

// beat queues a heartbeat unless something is underway already.
func (l *link) beat() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && !l.closing && len(l.queue) == 0 && l.pushed == l.written {
		m := &msg{kind: kindHeartbeat, src: -1, dst: -1}
		l.push(m, m.weight())
	}
}

// stuck reports whether there is something to write but nothing was written
// since the last call, or too much is queued.
func (l *link) stuck() (stalled, over bool) {
	moved := l.wrote.Swap(false)
	l.mu.Lock()
	defer l.mu.Unlock()
	return !moved && l.pushed != l.written && l.err == nil, l.over
}

func (l *link) writeLoop() {
	defer close(l.done)
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.closing {
			_ = l.conn.Close()
		}
	}()
	for {
		l.mu.Lock()
		if l.err != nil || (l.closing && len(l.queue) == 0) {
			l.mu.Unlock()
			return
		}
		if len(l.queue) == 0 {
			l.mu.Unlock()
			<-l.wake
			continue
		}
		m := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		l.queued -= min(l.queued, m.weight())
		l.mu.Unlock()

		err := l.write(m)

		l.mu.Lock()
		l.written++
		if err != nil {
			l.err = err
		}
		l.settle()
		l.mu.Unlock()
	}
}

// settle wakes those whose messages are written, or never will be.
func (l *link) settle() {
	kept := l.flushes[:0]
	for _, f := range l.flushes {
		if l.err != nil || l.written >= f.target {
			close(f.ch)
		} else {
			kept = append(kept, f)
		}
	}
	l.flushes = kept
}

// flush waits, at most d, until all that is queued now has been written.
func (l *link) flush(d time.Duration) error {
	l.mu.Lock()
	if l.err != nil || l.written >= l.pushed {
		defer l.mu.Unlock()
		return l.err
	}
	w := flushWait{target: l.pushed, ch: make(chan struct{})}
	l.flushes = append(l.flushes, w)
	l.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.ch:
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.err
	case <-t.C:
		return timeoutError("the hub to take what is queued", 0, nil)
	}
}

// shut closes the connection, which ends its reader too, once the queue is
// written, at the latest after grace. It does not wait.
func (l *link) shut(grace time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closing = true
	if l.err != nil {
		_ = l.conn.Close() // the writer may be gone already
		return
	}
	_ = l.conn.SetWriteDeadline(time.Now().Add(grace))
	l.ring()
}

// close shuts the link and waits for its writer.
func (l *link) close(grace time.Duration) {
	l.shut(grace)
	<-l.done
}
