package bootstrap

import (
	"context"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/internal/errs"
)

// linkPair is a hub's link over a unix socket, and the other end.
func linkPair(t *testing.T, bound int) (*link, *framer) {
	t.Helper()
	l, err := Listen(testAddress(t))
	require.NoError(t, err)
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	a, err := l.Accept()
	require.NoError(t, err)
	k := newLink(newFramer(a), bound)
	t.Cleanup(func() { k.close(0); _ = c.Close() })
	f := newFramer(c)
	f.limit = MaxFrame
	return k, f
}

// judged is a hub that judges one link, tick by tick, without its clock.
type judged struct {
	h *Hub
	l *link
	s *served
}

func newJudged(t *testing.T, bound int) (*judged, *framer) {
	l, other := linkPair(t, bound)
	h := bareHub(2)
	h.admit(1, l, Peer{Rank: 1, PID: 1}, nil)
	return &judged{h, l, &served{rank: 1}}, other
}

func (j *judged) tick(n int) *judged {
	for range n {
		j.h.judge(j.l, j.s)
	}
	return j
}

func (j *judged) lost() bool { return j.h.slots[1].state == stateLost }

func TestJudgeSilence(t *testing.T) {
	j, other := newJudged(t, 1<<20)
	// However long a stop lasted, it is one tick.
	require.False(t, j.tick(silentTicks-1).lost())
	// Bytes that nobody has read yet count.
	_, err := other.conn.Write([]byte{1})
	require.NoError(t, err)
	require.False(t, j.tick(100).lost())
	// And those that were read, one tick's worth.
	var b [1]byte
	_, err = j.l.r.Read(b[:])
	require.NoError(t, err)
	require.False(t, j.tick(silentTicks).lost())
	require.True(t, j.tick(1).lost())

	// It is told, and ticks go by.
	m, err := other.read()
	require.NoError(t, err)
	require.Equal(t, kindLost, m.kind)
	require.Equal(t, 1, m.src)
	require.True(t, j.tick(100).lost())
}

func TestJudgeTakesNoMessages(t *testing.T) {
	j, other := newJudged(t, 100<<20)
	for range 4 {
		j.l.deliver(&msg{kind: kindMessage, blob: make([]byte, MaxMessage)})
	}
	alive := func(n int) {
		for range n {
			j.l.heard.Store(true)
			j.tick(1)
		}
	}
	// The writer fills the socket's buffer with the first frame and then makes no
	// progress.
	require.Eventually(t, func() bool { return j.l.wrote.Load() }, deadline, time.Millisecond)
	alive(silentTicks - 1)
	require.False(t, j.lost())
	for until := time.Now().Add(deadline); !j.lost() && time.Now().Before(until); {
		alive(1)
		time.Sleep(time.Millisecond)
	}
	require.True(t, j.lost())
	// What was queued behind the frame underway is dropped for the bad news.
	m, err := other.read()
	require.NoError(t, err)
	require.Equal(t, kindMessage, m.kind)
	m, err = other.read()
	require.NoError(t, err)
	require.Equal(t, kindLost, m.kind)
}

func TestJudgeTooMuchQueued(t *testing.T) {
	j, other := newJudged(t, 2<<20)
	for range 4 {
		j.l.deliver(&msg{kind: kindMessage, blob: make([]byte, 1<<20)})
	}
	require.True(t, j.tick(1).lost())
	for {
		m, err := other.read()
		require.NoError(t, err)
		if m.kind == kindLost {
			break
		}
	}
}

func TestJudgeDying(t *testing.T) {
	j, _ := newJudged(t, 1<<20)
	require.NoError(t, j.h.Lost(1, "exit status 3"))
	require.False(t, j.tick(1).lost()) // its goodbye may be on the way
	require.True(t, j.tick(5).lost())
	require.Equal(t, "exit status 3", j.h.slots[1].cause)

	j, _ = newJudged(t, 1<<20)
	require.NoError(t, j.h.Lost(1, "exit status 0"))
	require.NoError(t, j.h.receive(1, j.l, &msg{kind: kindGoodbye, src: 1}))
	require.False(t, j.tick(100).lost())
}

func TestLinkFlush(t *testing.T) {
	l, other := linkPair(t, 100<<20)
	require.NoError(t, l.flush(0))
	big := &msg{kind: kindMessage, blob: make([]byte, MaxMessage)}
	require.NoError(t, l.send(big))
	require.Error(t, l.flush(time.Millisecond)) // nobody reads
	l.beat()                                    // nothing to add while something is underway
	done := make(chan error, 1)
	go func() { done <- l.flush(deadline) }()
	m, err := other.read()
	require.NoError(t, err)
	require.Equal(t, big.kind, m.kind)
	require.NoError(t, <-done)
	l.beat()
	m, err = other.read()
	require.NoError(t, err)
	require.Equal(t, kindHeartbeat, m.kind)

	require.NoError(t, l.send(big))
	go func() { done <- l.flush(deadline) }()
	_ = other.conn.Close()
	require.Error(t, <-done)
	require.Error(t, l.send(big))
	require.Error(t, l.flush(deadline))
}

// A connection that is not a socket of the kernel has no buffer to look into.
func TestUnreadElsewhere(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	require.False(t, unread(a))
	_, err := checkUser(a, nil)
	require.Error(t, err)
	_, err = checkUser(a, []byte("s"))
	require.NoError(t, err)
}

// A launcher's hub that was given up tells the launcher.
func TestDeposedLauncher(t *testing.T) {
	h := bareHub(2)
	h.cfg.Holder = HolderLauncher
	s := &fakeSink{}
	h.admit(1, s, Peer{Rank: 1, PID: 1}, nil)
	events := record(t, h)
	defer h.events.close()
	require.NoError(t, h.receive(1, s, &msg{kind: kindLost, src: 1}))
	events.expect(EventHubLost, -1)
	require.NoError(t, h.Lost(0, strings.Repeat("x", 2*maxText)))
	require.Len(t, events.expect(EventLost, 0).Cause, maxText)
}

// brokenUp is an uplink whose connection has failed before the reader knows.
type brokenUp struct{ err error }

func (u brokenUp) send(*msg) error           { return u.err }
func (u brokenUp) flush(time.Duration) error { return u.err }
func (u brokenUp) close()                    {}

func TestBrokenUplink(t *testing.T) {
	m := newMember(1, 2, 0)
	m.up = brokenUp{syscall.EPIPE}
	ctx := testContext(t)
	for _, err := range []error{
		m.Send(0, nil),
		func() error { _, err := m.Gather(ctx, "x", []int{0, 1}, nil); return err }(),
	} {
		var closed *errs.ClosedError
		require.ErrorAs(t, err, &closed)
		require.Equal(t, 0, closed.PE)
		require.ErrorIs(t, err, syscall.EPIPE)
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	require.ErrorIs(t, m.WaitJoined(short), errs.ErrTimeout)
	require.ErrorIs(t, m.Goodbye(), syscall.EPIPE)
	require.NoError(t, m.Close())
}
