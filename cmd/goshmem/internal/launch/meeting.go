package launch

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"goshmem/internal/bootstrap"
	"goshmem/internal/options"
	"goshmem/internal/shm"
)

// meeting is where the PEs of the job meet: an address, and behind it one hub
// for each world that they form, one after the other. A hub begins with the
// first connection, so that its join deadline counts from there and a program
// may take its time before it joins; when all PEs have said goodbye the next
// connection begins another world.
type meeting struct {
	address string
	secret  []byte
	cfg     bootstrap.HubConfig
	l       net.Listener
	note    func(bootstrap.Event) // joined; lost or gone after having joined
	stop    chan struct{}
	wg      sync.WaitGroup // accept, and the ends of old hubs

	mu    sync.Mutex
	gen   *generation
	ended map[int]string // processes, and how they ended
}

// generation is one world.
type generation struct {
	hub     *bootstrap.Hub
	feed    *feed
	settled chan struct{} // every PE has left or is lost

	mu       sync.Mutex
	joined   map[int]bool
	goodbyes int
	over     int // goodbyes and losses
}

// newMeeting opens an address of its own on this host. note is called by one
// goroutine per world.
func newMeeting(n int, vals options.Values, log *slog.Logger, note func(bootstrap.Event)) (*meeting, error) {
	address, err := bootstrap.NewAddress()
	if err != nil {
		return nil, err
	}
	l, err := bootstrap.Listen(address)
	if err != nil {
		return nil, err
	}
	return meetAt(l, address, n, vals, log, note)
}

// meetAt is newMeeting at a listener, which it owns, for members that dial address.
func meetAt(l net.Listener, address string, n int, vals options.Values, log *slog.Logger, note func(bootstrap.Event)) (*meeting, error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("launch: no random bytes: %w", err)
	}
	m := &meeting{
		address: address, secret: secret, l: l, note: note,
		cfg: bootstrap.HubConfig{
			Size: n, Holder: bootstrap.HolderLauncher,
			JoinDeadline: vals.JoinTimeout, FailureDeadline: vals.FailureDeadline,
			Heartbeat: min(vals.Heartbeat, vals.FailureDeadline/2),
			Secret:    secret, HostID: shm.HostID(), Logger: log,
		},
		stop:  make(chan struct{}),
		ended: map[int]string{},
	}
	// Values that no hub takes are to be known before anything starts.
	trial, err := bootstrap.NewHub(m.cfg)
	if err == nil {
		err = trial.Close()
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	m.wg.Add(1)
	go m.accept()
	return m, nil
}

// launch is what a PE is told.
func (m *meeting) launch(rank int) bootstrap.Launch {
	n := m.cfg.Size
	return bootstrap.Launch{
		Rank: rank, Size: n, LocalRank: rank, LocalSize: n,
		Rendezvous: m.address, Secret: m.secret, HubExternal: true,
	}
}

func (m *meeting) accept() {
	defer m.wg.Done()
	for {
		conn, err := m.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			var g *generation
			if g, err = m.current(); err == nil {
				g.feed.give(conn)
				continue
			}
			_ = conn.Close() // it will try again
		}
		m.cfg.Logger.Warn("accept", "err", err)
		select {
		case <-m.stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// current is the world that a new connection is for.
func (m *meeting) current() (*generation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gen != nil && !m.gen.finished(m.cfg.Size) {
		return m.gen, nil
	}
	hub, err := bootstrap.NewHub(m.cfg)
	if err != nil {
		return nil, err
	}
	g := &generation{hub: hub, feed: newFeed(m.l.Addr()), settled: make(chan struct{}), joined: map[int]bool{}}
	hub.OnEvent(func(e bootstrap.Event) { m.event(g, e) })
	if err := hub.Serve(g.feed); err != nil {
		_ = hub.Close()
		return nil, err
	}
	for rank, how := range m.ended {
		if err := hub.Lost(rank, how); err != nil {
			_ = hub.Close()
			return nil, err
		}
	}
	if old := m.gen; old != nil {
		m.wg.Add(1)
		go func() {
			defer m.wg.Done()
			_ = old.hub.Close() // a listener of our own: nothing to fail
		}()
	}
	m.gen = g
	return g, nil
}

// event counts, and passes on what concerns PEs that took part.
func (m *meeting) event(g *generation, e bootstrap.Event) {
	if e.PE < 0 {
		return
	}
	g.mu.Lock()
	switch e.Kind {
	case bootstrap.EventJoined:
		g.joined[e.PE] = true
	case bootstrap.EventGoodbye:
		g.goodbyes++
		g.over++
	case bootstrap.EventLost:
		g.over++
	}
	took := g.joined[e.PE]
	last := e.Kind != bootstrap.EventJoined && g.over == m.cfg.Size
	g.mu.Unlock()
	if took {
		m.note(e)
	}
	if last {
		close(g.settled)
	}
}

// finished: all said goodbye.
func (g *generation) finished(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.goodbyes == n
}

// gone tells the world that a PE's process has ended.
func (m *meeting) gone(rank int, how string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended[rank] = how
	if m.gen != nil {
		_ = m.gen.hub.Lost(rank, how) // the rank is one of the job's
	}
}

// settled is closed once the world knows the end of every PE; at once if there
// is none.
func (m *meeting) settled() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gen != nil {
		return m.gen.settled
	}
	c := make(chan struct{})
	close(c)
	return c
}

// close ends the address and the hubs.
func (m *meeting) close() error {
	close(m.stop)
	err := m.l.Close()
	m.mu.Lock()
	g := m.gen
	m.mu.Unlock()
	if g != nil {
		err = errors.Join(err, g.hub.Close())
	}
	m.wg.Wait()
	return err
}

// feed is a listener that gets its connections from another one.
type feed struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newFeed(addr net.Addr) *feed {
	return &feed{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

// give hands a connection over, or closes it if nobody takes it any more.
func (f *feed) give(c net.Conn) {
	select {
	case f.conns <- c:
	case <-f.done:
		_ = c.Close()
	}
}

// Accept waits for the next connection.
func (f *feed) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (f *feed) Close() error {
	f.once.Do(func() { close(f.done) })
	return nil
}

// Addr is the other listener's.
func (f *feed) Addr() net.Addr { return f.addr }
