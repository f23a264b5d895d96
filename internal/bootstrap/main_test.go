package bootstrap

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childRole) != "" {
		os.Exit(childMain())
	}
	goleak.VerifyTestMain(m)
}

// deadline is for what must happen: far longer than it takes.
const deadline = 30 * time.Second

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	return ctx
}

func testAddress(t testing.TB) string {
	t.Helper()
	addr, err := NewAddress()
	require.NoError(t, err)
	return addr
}

// recorder keeps a member's or hub's events.
type recorder struct {
	t  testing.TB
	ch chan Event
}

func record(t testing.TB, on interface{ OnEvent(func(Event)) }) *recorder {
	r := &recorder{t: t, ch: make(chan Event, 1<<16)}
	on.OnEvent(func(ev Event) { r.ch <- ev })
	return r
}

func (r *recorder) next() Event {
	r.t.Helper()
	select {
	case ev := <-r.ch:
		return ev
	case <-time.After(deadline):
		require.FailNow(r.t, "no event")
		return Event{}
	}
}

// expect skips events until one of this kind and PE.
func (r *recorder) expect(kind EventKind, pe int) Event {
	r.t.Helper()
	for {
		if ev := r.next(); ev.Kind == kind && ev.PE == pe {
			return ev
		}
	}
}

// job is a hub with all its members in this process.
type job struct {
	t       testing.TB
	hub     *Hub
	address string
	members []Member
}

// attachment says which ranks are attached by connections.
type attachment struct {
	name   string
	remote func(rank int) bool
	tcp    bool
}

var attachments = []attachment{
	{"local", func(int) bool { return false }, false},
	{"socket", func(int) bool { return true }, false},
	{"mixed", func(r int) bool { return r%2 == 1 }, false},
	{"tcp", func(int) bool { return true }, true},
}

// forEach runs a test on every way of attachment.
func forEach(t *testing.T, f func(t *testing.T, a attachment)) {
	for _, a := range attachments {
		t.Run(a.name, func(t *testing.T) { f(t, a) })
	}
}

func newHub(t testing.TB, cfg HubConfig) (*Hub, string) {
	t.Helper()
	hub, err := NewHub(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, hub.Close()) })
	addr := testAddress(t)
	l, err := Listen(addr)
	require.NoError(t, err)
	require.NoError(t, hub.Serve(l))
	return hub, addr
}

func (a attachment) attach(ctx context.Context, hub *Hub, addr string, rank int) (Member, error) {
	if !a.remote(rank) {
		return hub.Local(rank)
	}
	if a.tcp {
		var err error
		if addr, err = overTCP(hub); err != nil {
			return nil, err
		}
	}
	return Dial(ctx, DialConfig{Address: addr, Rank: rank, Size: hub.cfg.Size, Secret: hub.cfg.Secret, HostID: hub.cfg.HostID})
}

// overTCP lets a hub serve the loopback interface too.
func overTCP(hub *Hub) (addr string, err error) {
	hub.mu.Lock()
	if len(hub.cfg.Secret) == 0 {
		hub.cfg.Secret = []byte("of a test")
	}
	for _, l := range hub.listeners {
		if l.Addr().Network() == "tcp" {
			addr = l.Addr().String()
		}
	}
	hub.mu.Unlock()
	if addr != "" {
		return addr, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), hub.Serve(l)
}

// start brings up a whole job; everything is closed when the test ends.
func (a attachment) start(t testing.TB, cfg HubConfig) *job {
	t.Helper()
	j := &job{t: t, members: make([]Member, cfg.Size)}
	j.hub, j.address = newHub(t, cfg)
	ctx := testContext(t)
	for r := range j.members {
		m, err := a.attach(ctx, j.hub, j.address, r)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		j.members[r] = m
	}
	for _, m := range j.members {
		require.NoError(t, m.WaitJoined(ctx))
	}
	return j
}

// outcome is what one member's Gather gave.
type outcome struct {
	blobs [][]byte
	err   error
}

// gather starts a Gather on each of these ranks and gives their outcomes.
func (j *job) gather(ctx context.Context, tag string, group []int, callers ...int) func() map[int]outcome {
	var mu sync.Mutex
	var wg sync.WaitGroup
	got := make(map[int]outcome)
	for _, r := range callers {
		wg.Go(func() {
			blobs, err := j.members[r].Gather(ctx, tag, group, []byte(fmt.Sprintf("%s of %d", tag, r)))
			mu.Lock()
			defer mu.Unlock()
			got[r] = outcome{blobs, err}
		})
	}
	return func() map[int]outcome { wg.Wait(); return got }
}

// complete checks that a gather of this whole group succeeds.
func (j *job) complete(tag string, group ...int) {
	j.t.Helper()
	for r, o := range j.gather(testContext(j.t), tag, group, group...)() {
		require.NoError(j.t, o.err, "rank %d", r)
		require.Len(j.t, o.blobs, len(group))
		for i, g := range group {
			require.Equal(j.t, fmt.Sprintf("%s of %d", tag, g), string(o.blobs[i]))
		}
	}
}

// pending waits until the hub holds n unfinished gathers in which calls calls
// have come in.
func (j *job) pending(n, calls int) {
	j.t.Helper()
	require.Eventually(j.t, func() bool {
		j.hub.mu.Lock()
		defer j.hub.mu.Unlock()
		in := 0
		for _, g := range j.hub.gathers {
			in += len(g.group) - g.left
		}
		return len(j.hub.gathers) == n && in == calls
	}, deadline, time.Millisecond)
}

func rawDial(t testing.TB, addr string) net.Conn {
	t.Helper()
	network, name, err := splitAddress(addr)
	require.NoError(t, err)
	c, err := net.Dial(network, name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(deadline)))
	return c
}
